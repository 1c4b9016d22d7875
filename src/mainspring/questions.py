"""Questions that a run waits with: the model asked them with `nika:ask`, and a person answers.

Source: shared design, loop.md "Intrinsics" (`nika:ask`); interfaces.md "On the wire" (`answer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["Question", "how_to_answer", "picked", "unclear"]

SHOWN_CHARACTERS = 80
SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a run that has no answer yet.

    Args:
        id: Under which it is answered.
        text: Whole, as the model wrote it.
        options: Answers to choose from; the person may answer otherwise.
        asked: When.
        expires: When the run goes on without an answer.
    """

    id: str
    text: str
    options: tuple[str, ...]
    asked: datetime
    expires: datetime

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Question:
        """A question as the query `state` shows it; what a later version adds is left out."""
        return cls(
            plain["question_id"],
            plain["question"],
            tuple(plain.get("options", ())),
            datetime.fromisoformat(plain["asked"]),
            datetime.fromisoformat(plain["expires"]),
        )

    @property
    def brief(self) -> str:
        """The text on one line, clipped."""
        line = " ".join(self.text.split())
        return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


def picked(typed: str, options: Sequence[str]) -> str:
    """What a person's line means: the number of an option is that option, anything else is meant as it is.

    A line that is an option itself is that option, also where the options are numbers.
    """
    line = typed.strip()
    if line in options or not (line.isascii() and line.isdigit()):
        return line
    number = int(line[:4])
    return options[number - 1] if 1 <= number <= len(options) else line


def how_to_answer(run_id: str, question_id: str | None = None) -> str:
    """The command that answers a question of a run."""
    which = "" if question_id is None else f" --question {question_id}"
    return f'mainspring answer {run_id} "…"{which}'


def unclear(run_id: str, waiting: Sequence[Question]) -> str:
    """Why an answer that names no question cannot be taken."""
    if not waiting:
        return f"answer: run {run_id!r} waits for no answer"
    named = "; ".join(f"{item.id}: {item.brief}" for item in waiting[:SHOWN_MAX])
    return f"answer: run {run_id!r} waits with {len(waiting)} questions; say which one you answer: {named}"
