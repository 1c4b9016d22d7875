"""Questions of a run to a person: what waits, what was answered, and what can no longer be.

Pure. A question waits under the id of its call. It is closed once, by whatever comes first.

Source: shared design, loop.md "Intrinsics" (`nika:ask`), "Talking to a run" (`answer`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from mainspring.schemas.base import JsonValue

__all__ = ["Answered", "Closed", "Question", "Questions", "Unknown", "waited_ms"]

CLOSED_KEPT = 500
QUESTIONS_NAMED = 20

Status = Literal["answered", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Question:
    """One question. Times are in nanoseconds of the workflow's clock."""

    id: str
    text: str
    options: tuple[str, ...]
    asked: int
    expires: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The question waits, and may be answered."""

    question: Question


@dataclass(frozen=True, slots=True)
class Closed:
    """It waits no more, and why."""

    status: Status


@dataclass(frozen=True, slots=True)
class Unknown:
    """No question of that id was ever asked; `pending` are those that wait."""

    pending: tuple[str, ...]


def waited_ms(question: Question, now: int) -> int:
    """How long a question has waited, in milliseconds, rounded up."""
    return -(-(now - question.asked) // 1_000_000)


@dataclass(slots=True)
class Questions:
    """The questions of a run, by id; answers with the time that they came at."""

    pending: dict[str, Question] = field(default_factory=dict)
    answers: dict[str, tuple[str, int]] = field(default_factory=dict)
    closed: dict[str, Status] = field(default_factory=dict)

    def ask(self, question: Question) -> None:
        """Let a question wait."""
        assert question.id not in self.pending, f"question {question.id} waits already"
        self.pending[question.id] = question

    def find(self, question_id: str) -> Answered | Closed | Unknown:
        """Whether an answer to that question can be taken."""
        if question_id in self.answers:
            return Closed("answered")
        if question_id in self.pending:
            return Answered(self.pending[question_id])
        if question_id in self.closed:
            return Closed(self.closed[question_id])
        return Unknown(tuple(self.pending)[:QUESTIONS_NAMED])

    def answer(self, question_id: str, text: str, now: int) -> int:
        """Take the answer of a question that waits; how long it waited, in milliseconds, rounded up."""
        self.answers[question_id] = (text, now)
        return waited_ms(self.pending[question_id], now)

    @property
    def settled(self) -> bool:
        """Every question that waits has its answer."""
        return len(self.answers) == len(self.pending)

    def open(self) -> tuple[Question, ...]:
        """Those that have no answer yet, in the order of asking."""
        return tuple(question for question in self.pending.values() if question.id not in self.answers)

    def close(self, question_id: str, status: Status) -> tuple[str, int] | None:
        """Wait no more for it; its answer and when that came, if it has one.

        An answer that came in time counts, whatever closes the question afterwards.
        """
        del self.pending[question_id]
        answer = self.answers.pop(question_id, None)
        self.closed[question_id] = "answered" if answer is not None else status
        while len(self.closed) > CLOSED_KEPT:
            del self.closed[next(iter(self.closed))]
        return answer

    def shown(self, instant: Callable[[int], str]) -> list[JsonValue]:
        """The questions that wait, for the query `state`."""
        return [
            {
                "question_id": question.id,
                "question": question.text,
                "options": list(question.options),
                "asked": instant(question.asked),
                "expires": instant(question.expires),
            }
            for question in self.open()
        ]
