"""How an exchange and a run end.

Pure. Source: shared design, loop.md "Outcomes".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from mainspring.schemas.base import JsonValue
from mainspring.schemas.run import ANSWERED, CODES, Outcome, RunResult, Spend, Stall
from mainspring.schemas.tools import BlobRef
from mainspring.workflows.values import clip, preview

__all__ = ["Ending", "result_of", "sentence"]

PARTIAL_BYTES = 16_384
RESULT_BYTES = 1_500_000
"""Of answer and output together: a result above 2 MB could not be stored at all."""
MESSAGE_CHARACTERS = 1_000
UNANSWERED_BYTES = 200_000
UNANSWERED_EACH_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Ending:
    """How an exchange ended. `entry` is the ledger entry that holds the answer."""

    outcome: Outcome
    answer: str | None = None
    output: JsonValue = None
    message: str | None = None
    entry: int | None = None
    answer_blob: BlobRef | None = None
    stall: Stall | None = None

    @property
    def answered(self) -> bool:
        """Whether it ended with an answer."""
        return self.outcome in ANSWERED

    @property
    def code(self) -> str | None:
        """The outcome's code."""
        return CODES.get(self.outcome)


def result_of(
    ending: Ending, *, partial: str, spend: Spend, exchanges: int, unanswered: tuple[str, ...] = ()
) -> RunResult:
    """The result of a run that ends so; bounded, whatever the model wrote: the ledger has it whole."""
    ending = _fitting(ending)
    return RunResult(
        outcome=ending.outcome,
        code=ending.code,
        answer=ending.answer,
        output=ending.output,
        partial="" if ending.answered else preview(partial, limit=PARTIAL_BYTES),
        message=None if ending.message is None else clip(ending.message, MESSAGE_CHARACTERS),
        spend=spend,
        exchanges=exchanges,
        answer_blob=ending.answer_blob,
        unanswered=_told(unanswered),
        stall=ending.stall,
    )


def _fitting(ending: Ending) -> Ending:
    """The text yields to the output that says the same; an output too large by itself is left out."""
    output = _size(ending.output)
    if output + _size(ending.answer) <= RESULT_BYTES:
        return ending
    if ending.answer is not None:
        ending = replace(ending, answer=preview(ending.answer, limit=PARTIAL_BYTES))
    if output <= RESULT_BYTES:
        return ending
    return replace(ending, output=None, message="the output is too large for a result; the transcript has it")


def _told(unanswered: tuple[str, ...]) -> tuple[str, ...]:
    """As many of the undelivered messages as fit, the oldest first."""
    told: list[str] = []
    left = UNANSWERED_BYTES
    for text in unanswered:
        shown = preview(text, limit=UNANSWERED_EACH_BYTES)
        left -= len(shown.encode("utf-8", "replace"))
        if left < 0:
            break
        told.append(shown)
    return tuple(told)


def _size(value: JsonValue) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def sentence(ending: Ending) -> str:
    """One line for a failure's message: outcome, code, and what is known."""
    code = f" ({ending.code})" if ending.code else ""
    told = f": {clip(ending.message, 500)}" if ending.message else ""
    return f"{ending.outcome}{code}{told}"
