from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.run import ANSWERED, CODES, Outcome, RunResult, Spend
from mainspring.schemas.tools import BlobRef
from mainspring.workflows.outcomes import Ending, result_of, sentence

SPEND = Spend(turns=2)
LONG = st.integers(0, 3_000_000)


def _result(ending: Ending, partial: str = "", unanswered: tuple[str, ...] = ()) -> RunResult:
    return result_of(ending, partial=partial, spend=SPEND, exchanges=1, unanswered=unanswered)


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_every_outcome_answers_or_has_a_meaning(outcome: Outcome) -> None:
    """An outcome with an answer has no code; the code of any other is the design's."""
    ending = Ending(outcome)
    assert ending.answered == (outcome in {"completed", "done", "degraded"})
    assert ending.code is None or not ending.answered


def test_codes_are_the_designs() -> None:
    """Codes are API: each belongs to one outcome and never changes."""
    assert [CODES[name][-3:] for name in CODES] == [str(460 + n) for n in range(10)]
    assert set(CODES) | ANSWERED | {"unmet", "cancelled", "interrupted"} == set(get_args(Outcome))


def test_result_of_carries_an_answer_whole() -> None:
    """An answer, its output and its blob are in the result; the partial text is not repeated."""
    blob = BlobRef(digest="blake2b:0", size=1)
    ending = Ending("completed", answer="yes", output={"a": 1}, answer_blob=blob)
    result = _result(ending, partial="yes")
    assert (result.answer, result.output, result.answer_blob, result.partial) == ("yes", {"a": 1}, blob, "")
    assert (result.spend, result.exchanges) == (SPEND, 1)


def test_result_of_keeps_the_draft_where_there_is_no_answer() -> None:
    """A run without an answer hands over what there was, its code and its message."""
    result = _result(Ending("stalled", message="period 2"), partial="draft", unanswered=("and?",))
    assert (result.outcome, result.code, result.message) == ("stalled", "NIKA-467", "period 2")
    assert (result.answer, result.partial, result.unanswered) == (None, "draft", ("and?",))


@given(LONG, LONG, LONG, LONG, st.sampled_from(["x", "漢", "🍸"]))
def test_result_of_is_bounded(answer: int, output: int, partial: int, message: int, character: str) -> None:
    """Whatever the model wrote, the result can be stored."""
    ending = Ending("done", answer=character * answer, output=[character * output], message="m" * message)
    failed = Ending("refused", message="m" * message)
    for case in (ending, failed):
        result = _result(case, partial=character * partial, unanswered=("u" * 1_000,) * 200)
        assert len(json.dumps(result.model_dump(mode="json"), ensure_ascii=False).encode()) < 1_700_000


@pytest.mark.parametrize(
    ("answer", "output", "whole"),
    [
        (700_000, 700_000, (True, True)),
        (900_000, 900_000, (False, True)),
        (1_600_000, 0, (False, True)),
        (0, 1_600_000, (True, False)),
    ],
)
def test_result_of_gives_up_text_before_output(answer: int, output: int, whole: tuple[bool, bool]) -> None:
    """Where both do not fit, the text is cut; only an output too large by itself is left out, and told."""
    ending = Ending("done", answer="a" * answer, output="o" * output)
    result = _result(ending)
    assert (result.answer == ending.answer, result.output == ending.output) == whole
    assert (result.message is None) == whole[1]


@pytest.mark.parametrize(
    ("ending", "line"),
    [
        (Ending("completed"), "completed"),
        (Ending("stalled", message="period 2"), "stalled (NIKA-467): period 2"),
        (Ending("cancelled", message="two\nlines"), "cancelled: two lines"),
        (Ending("budget"), "budget (NIKA-461)"),
    ],
)
def test_sentence_table(ending: Ending, line: str) -> None:
    """Outcome, code and what is known, on one line."""
    assert sentence(ending) == line


def test_sentence_is_bounded() -> None:
    """A failure's message stays short, whatever it tells."""
    assert len(sentence(Ending("refused", message="m" * 100_000))) < 600
