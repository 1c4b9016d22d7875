"""The scripted model: answers from a script, through the same accounting and parsing as any other.

Source: shared design, interfaces.md "The scripted model".
"""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from temporalio.exceptions import ApplicationError

from mainspring.activities import faults
from mainspring.activities.arguments import RawCall
from mainspring.activities.prices import dollars
from mainspring.activities.projection import Projection
from mainspring.activities.pulse import Pulse
from mainspring.activities.replies import RawReply
from mainspring.activities.setup import Catalog, Offer
from mainspring.schemas.activities import Usage
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.base import JsonValue, unwire
from mainspring.schemas.ledger import Thinking
from mainspring.schemas.script import (
    Expectation,
    Finish,
    Script,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
    ScriptedUsage,
)
from mainspring.workflows.catalog import wire_name
from mainspring.workflows.ledger import Message, UserMessage
from mainspring.workflows.tokens import estimate
from mainspring.workflows.values import clip, render

__all__ = ["Asked", "ScriptedModel"]

PROVIDER = "scripted"
PIECE_SECONDS = 0.05
PIECES_MAX = 200
_VARIABLE = re.compile(r"\$\{(n|call|last_observation)\}")


@dataclass(frozen=True, slots=True)
class Asked:
    """One attempt at one model call, before it is translated for a provider."""

    system: str
    system_tokens: int
    projection: Projection
    offer: Offer
    catalog: Catalog
    call: int
    attempt: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """The reply that answers a call: its number in the script, which of its repeats, and itself."""

    number: int
    n: int
    reply: ScriptedReply


class ScriptedModel:
    """One scripted model. Stateless: the number of the call decides, so retries and replays meet the same."""

    def __init__(self, spec: ModelSpec) -> None:
        """Read the script; raises pydantic.ValidationError for one that arming should have refused."""
        self._spec = spec
        self._script = unwire(Script, spec.script)
        self._ends = list(accumulate(reply.repeat for reply in self._script.replies))

    async def answer(self, asked: Asked, pulse: Pulse) -> RawReply:
        """The reply to a call.

        Raises: ApplicationError, of SCRIPT_MISMATCH or of what the attempt is scripted to meet.
        """
        turn = self._turn(asked.call)
        reply = turn.reply
        if reply.expect is not None:
            _check(reply.expect, asked, turn.number)
        fill = _Filler(turn.n, asked)
        if asked.attempt <= len(reply.fails):
            failure = reply.fails[asked.attempt - 1]
            pulse.billed(self._usage(failure.usage, asked, ""))
            raise _fault(failure)
        text = fill.text(reply.text)
        thought = None if reply.thinking is None else fill.text(reply.thinking)
        await _stream(text, reply.delay, pulse, thought)
        calls = tuple(_call(call, fill, asked.catalog) for call in reply.calls)
        thinking = () if thought is None else (Thinking(text=thought),)
        said = text if not calls else text + "".join(f"{call.name}{call.arguments}" for call in calls)
        return RawReply(
            text=text,
            calls=calls,
            thinking=thinking,
            finish_reason=reply.finish_reason or ("tool_call" if calls else "stop"),
            usage=self._usage(reply.usage, asked, said),
            model=self._spec.name,
        )

    def _turn(self, call: int) -> _Turn:
        replies = self._script.replies
        total = self._ends[-1] if self._ends else 0
        if call < total:
            index = bisect_right(self._ends, call)
            before = self._ends[index - 1] if index else 0
            return _Turn(index + 1, call - before, replies[index])
        match self._script.then:
            case Finish(finish=text):
                return _Turn(len(replies) + 1, call - total, ScriptedReply(text=text))
            case "repeat_last":
                return _Turn(len(replies), call - total + replies[-1].repeat, replies[-1])
            case _:
                raise faults.script_mismatch(
                    f"the script {self._spec.name!r} answers {total} calls and this is call {call + 1}; "
                    'add a reply, or `then: repeat_last`, or `then: finish "text"`'
                )

    def _usage(self, usage: ScriptedUsage | str | None, asked: Asked, said: str) -> Usage | None:
        if usage is None:
            return None
        if isinstance(usage, ScriptedUsage):
            known = Usage(**usage.model_dump())
        else:
            sent = asked.system_tokens + asked.offer.tokens + asked.projection.tokens
            known = Usage(input_tokens=sent, output_tokens=estimate(said))
        cost = dollars(self._spec, known)
        return known if cost is None else known.model_copy(update={"dollars": cost})


async def _stream(text: str, delay: float, pulse: Pulse, thought: str | None) -> None:
    """Hand the text over in pieces, over `delay` seconds; the thinking, whole, before its first piece."""
    pulse.asked()
    pieces = 1 if delay <= 0 else max(1, min(PIECES_MAX, round(delay / PIECE_SECONDS), len(text)))
    for index in range(pieces):
        if delay > 0:
            await asyncio.sleep(delay / pieces)
        if thought is not None and index == 0:
            pulse.thought(thought)
        pulse.token(text[len(text) * index // pieces : len(text) * (index + 1) // pieces])


def _fault(failure: ScriptedFailure) -> ApplicationError:
    if failure.timeout:
        return faults.timed_out(PROVIDER)
    if failure.connection:
        return faults.disconnected(PROVIDER)
    if failure.truncated:
        return faults.truncated(PROVIDER)
    assert failure.status is not None
    return faults.answered(
        PROVIDER,
        failure.status,
        code=failure.code,
        text=failure.message,
        retry_after=failure.retry_after,
    )


def _call(call: ScriptedCall, fill: _Filler, catalog: Catalog) -> RawCall:
    """The call under the name that providers are told, with its arguments as the text that they send."""
    name = wire_name(call.tool) if call.tool in catalog.definitions else call.tool
    if call.raw_arguments is not None:
        return RawCall(name, fill.text(call.raw_arguments))
    return RawCall(name, json.dumps(fill.value(call.arguments), ensure_ascii=False))


class _Filler:
    """Fills `${n}`, `${call}` and `${last_observation}` in."""

    def __init__(self, n: int, asked: Asked) -> None:
        self._values: dict[str, Callable[[], int | str]] = {
            "n": lambda: n,
            "call": lambda: asked.call,
            "last_observation": lambda: _last_observation(asked.projection.messages),
        }

    def text(self, text: str) -> str:
        """The text with every variable filled in."""
        if "${" not in text:
            return text
        return _VARIABLE.sub(lambda found: str(self._values[found[1]]()), text)

    def value(self, value: JsonValue) -> JsonValue:
        """The value likewise; a variable alone keeps its type."""
        if isinstance(value, str):
            alone = _VARIABLE.fullmatch(value)
            return self._values[alone[1]]() if alone else self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        return value


def _last_observation(messages: Sequence[Message]) -> str:
    for message in reversed(messages):
        if isinstance(message, UserMessage) and message.results:
            return render(message.results[-1].content)
    return ""


def _check(expect: Expectation, asked: Asked, number: int) -> None:
    """Assert what the script expects of the request.

    Raises: ApplicationError(SCRIPT_MISMATCH), which names the reply, the expectation and what was found.
    """
    unmet = [*_texts_unmet(expect, asked), *_offer_unmet(expect, asked), *_count_unmet(expect, asked)]
    if unmet:
        raise faults.script_mismatch(f"reply {number} of the script expects {'; '.join(unmet)}")


def _texts_unmet(expect: Expectation, asked: Asked) -> list[str]:
    if not expect.contains and not expect.excludes:
        return []
    texts = _texts(asked)
    newest = clip(texts[-1], 200)
    missing = [item for item in expect.contains if not any(item in text for text in texts)]
    present = [item for item in expect.excludes if any(item in text for text in texts)]
    return [
        *(f"the request to contain {item!r}; its newest text is {newest!r}" for item in missing),
        *(f"the request not to contain {item!r}" for item in present),
    ]


def _texts(asked: Asked) -> list[str]:
    """Every text of the request, oldest first."""
    texts = [asked.system]
    for message in asked.projection.messages:
        if isinstance(message, UserMessage):
            texts += [render(result.content) for result in message.results]
            texts += [words.text for words in message.texts]
        else:
            texts.append(message.text)
            texts += [f"{call.tool} {render(call.arguments)}" for call in message.calls]
    return texts


def _offer_unmet(expect: Expectation, asked: Asked) -> list[str]:
    offered = [tool.name for tool in asked.offer.tools]
    shown = clip(", ".join(offered) or "none", 300)
    return [
        *(f"{name} to be offered; offered: {shown}" for name in expect.offered if name not in offered),
        *(f"{name} not to be offered; offered: {shown}" for name in expect.not_offered if name in offered),
    ]


def _count_unmet(expect: Expectation, asked: Asked) -> list[str]:
    count = len(asked.projection.messages)
    unmet: list[str] = []
    if expect.messages_min is not None and count < expect.messages_min:
        unmet.append(f"at least {expect.messages_min} messages, and there are {count}")
    if expect.messages_max is not None and count > expect.messages_max:
        unmet.append(f"at most {expect.messages_max} messages, and there are {count}")
    return unmet
