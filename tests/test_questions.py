"""Questions as the client sees them: what a person's line means, and how an answer finds its question."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring.questions import Question, how_to_answer, picked, unclear

PLAIN: dict[str, Any] = {
    "question_id": "a-1",
    "question": "Which\ncolour?",
    "options": ["red", "blue"],
    "asked": "2026-01-01T00:00:00.000+00:00",
    "expires": "2026-01-08T00:00:00.000+00:00",
}


@pytest.mark.parametrize(
    ("typed", "options", "meant"),
    [
        ("2\n", ["red", "blue"], "blue"),
        ("blue\n", ["red", "blue"], "blue"),
        (" neither of them \n", ["red", "blue"], "neither of them"),
        ("3", ["red", "blue"], "3"),
        ("0", ["red", "blue"], "0"),
        ("1", [], "1"),
        ("2", ["2", "1"], "2"),
        ("²", ["red", "blue"], "²"),
        ("9" * 9_000, ["red"], "9" * 9_000),
        ("\n", ["red"], ""),
    ],
)
def test_picked_takes_a_number_for_its_option_and_all_else_as_it_is(
    typed: str, options: list[str], meant: str
) -> None:
    """Only a number that is an option's and no option itself stands for something else."""
    assert picked(typed, options) == meant


def test_question_is_read_from_the_state_of_a_later_version() -> None:
    """What is not known here is left out, and times are times."""
    question = Question.of({**PLAIN, "urgent": True})
    assert (question.id, question.text, question.options) == ("a-1", "Which\ncolour?", ("red", "blue"))
    assert question.expires - question.asked == timedelta(days=7)
    assert question.brief == "Which colour?"


def test_unclear_names_the_questions_that_wait() -> None:
    """Whoever answered without saying which question reads their ids and what they ask."""
    several = [Question.of(PLAIN), Question.of({**PLAIN, "question_id": "a-2", "question": "x" * 200})]
    told = unclear("run-1", several)
    assert "a-1: Which colour?" in told
    assert "a-2: xxx" in told
    assert len(told) < 300
    assert "waits for no answer" in unclear("run-1", [])


def test_how_to_answer_names_the_question_only_where_it_must() -> None:
    """The command is as short as it can be."""
    assert how_to_answer("run-1") == 'mainspring answer run-1 "…"'
    assert how_to_answer("run-1", "a-1") == 'mainspring answer run-1 "…" --question a-1'
