"""The scripted model: a provider like any other, for tests, demos and reproducing faults.

Source: shared design, interfaces.md "The scripted model".
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from mainspring.schemas.activities import FinishReason
from mainspring.schemas.base import Closed, Duration, JsonValue

__all__ = [
    "Expectation",
    "Finish",
    "Script",
    "ScriptedCall",
    "ScriptedFailure",
    "ScriptedReply",
    "ScriptedUsage",
    "TokenPrice",
]

REPEAT_MAX = 1_000_000


class ScriptedUsage(Closed):
    """Tokens that the scripted provider reports."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)


class ScriptedCall(Closed):
    """A call in a reply. `raw_arguments` is sent as it stands, to reproduce what providers really send.

    In `arguments`, the string `${n}` alone becomes the number; within other text it becomes its digits.
    """

    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    raw_arguments: str | None = None
    id: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> ScriptedCall:
        if self.raw_arguments is not None and self.arguments:
            raise ValueError("give either arguments or raw_arguments")
        return self


class ScriptedFailure(Closed):
    """One earlier attempt at a reply: an HTTP status, or a fault of the transport.

    `usage` is what the provider had reported before it failed: it is billed, so it is counted.
    `retry_after` is the header's value as it stands, so that odd ones can be tried too.
    """

    status: int | None = Field(default=None, ge=400, le=599)
    retry_after: float | str | None = None
    code: str | None = None
    message: str = ""
    timeout: bool = False
    connection: bool = False
    truncated: bool = False
    usage: ScriptedUsage | None = None

    @model_validator(mode="after")
    def _one_fault(self) -> ScriptedFailure:
        named = [self.status is not None, self.timeout, self.connection, self.truncated]
        if sum(named) != 1:
            raise ValueError("name exactly one of status, timeout, connection and truncated")
        return self


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Expectation(Closed):
    """What is asserted on the request; a mismatch fails the run and names it.

    `contains` and `excludes` look at the instructions and every message; several texts must all be there.
    """

    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    messages_min: int | None = Field(default=None, ge=0)
    messages_max: int | None = Field(default=None, ge=0)
    offered: tuple[str, ...] = ()
    not_offered: tuple[str, ...] = ()

    _lists = field_validator("contains", "excludes", "offered", "not_offered", mode="before")(_listed)


class ScriptedReply(Closed):
    """The n-th reply answers the n-th model call of the run; with `repeat`, that many calls in a row.

    Texts and arguments may hold `${n}` (which of the repeats, from 0), `${call}` (the model call of the run,
    from 0) and `${last_observation}`.

    Args:
        fails: What the earlier attempts at this reply meet: attempt k meets the k-th.
        usage: Tokens reported; `estimated` from the request and the reply; null when none are reported.
        finish_reason: `tool_call` with calls and `stop` without, where it is None.
        delay: Seconds; the text is streamed in pieces over that time.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str | None = None
    usage: ScriptedUsage | Literal["estimated"] | None = "estimated"
    fails: tuple[ScriptedFailure, ...] = ()
    repeat: int = Field(default=1, ge=1, le=REPEAT_MAX)
    finish_reason: FinishReason | None = None
    delay: Duration = Field(default=0.0, ge=0, le=3_600)
    expect: Expectation | None = None


class Finish(Closed):
    """The text that every further model call is answered with."""

    finish: str


class TokenPrice(Closed):
    """Dollars for a million tokens. Cached tokens cost as others do where `cached` is None."""

    input: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    output: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)


_FINISH = re.compile(r"""finish\s+(?P<quote>["']?)(?P<text>.*)(?P=quote)""", re.DOTALL)


class Script(Closed):
    """A scripted model's whole content, as it stands in its file and in `ModelSpec.script`.

    `then` says what answers further calls: nothing (`fail`), the last reply again (`repeat_last`), or a text
    (`finish "text"`).
    """

    replies: tuple[ScriptedReply, ...] = ()
    then: Literal["fail", "repeat_last"] | Finish = "fail"
    price: TokenPrice | None = None

    @field_validator("then", mode="before")
    @classmethod
    def _finish(cls, value: object) -> object:
        if isinstance(value, str) and (matched := _FINISH.fullmatch(value.strip())):
            return {"finish": matched["text"]}
        return value

    @model_validator(mode="after")
    def _something(self) -> Script:
        if not self.replies and not isinstance(self.then, Finish):
            raise ValueError('a script has at least one reply, or `then: finish "text"`')
        return self
