from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.activities import ModelReply
from mainspring.workflows.gates import GATES, Close, Facts, Pass, Redo, judge

REDOS = st.dictionaries(
    st.sampled_from(["empty_reply", "explicit_completion", "output_schema"]), st.integers(0, 5)
)
FACTS = st.builds(
    Facts,
    reply=st.builds(
        ModelReply, text=st.sampled_from(["", " \n", "hi"]), output_problem=st.sampled_from([None, "bad"])
    ),
    redos=REDOS,
    schema_repairs=st.integers(0, 3),
    explicit=st.booleans(),
)


def _facts(text: str = "hi", problem: str | None = None, **facts: Any) -> Facts:
    return Facts(ModelReply(text=text, output_problem=problem), **facts)


@pytest.mark.parametrize(
    ("facts", "verdict", "gate"),
    [
        (_facts(), Pass, None),
        (_facts(""), Redo, "empty_reply"),
        (_facts("", "bad"), Redo, "empty_reply"),
        (_facts("", explicit=True), Redo, "empty_reply"),
        (_facts("", "bad", redos={"empty_reply": 1}), Close, "empty_reply"),
        (_facts("hi", explicit=True), Redo, "explicit_completion"),
        (_facts("hi", "bad", explicit=True), Redo, "explicit_completion"),
        (_facts("hi", explicit=True, redos={"explicit_completion": 1}), Pass, None),
        (_facts("hi", "bad", explicit=True, redos={"explicit_completion": 1}), Redo, "output_schema"),
        (_facts("hi", "bad"), Redo, "output_schema"),
        (_facts("hi", "bad", redos={"output_schema": 2}), Close, "output_schema"),
        (_facts("hi", "bad", redos={"empty_reply": 1}), Redo, "output_schema"),
        (_facts("hi", "bad", schema_repairs=0), Close, "output_schema"),
    ],
    ids=count(),
)
def test_judge_table(facts: Facts, verdict: type, gate: str | None) -> None:
    """The first gate that does not pass decides, in the order of the tuple."""
    judged = judge(facts)
    assert isinstance(judged, verdict)
    assert getattr(judged, "gate", None) == gate


@given(FACTS)
def test_judge_is_the_first_verdict_that_is_not_pass(facts: Facts) -> None:
    """What one gate holds, no later gate is asked about."""
    held = [verdict for verdict in (gate(facts) for gate in GATES) if not isinstance(verdict, Pass)]
    assert judge(facts) == (held[0] if held else Pass())


@given(FACTS)
def test_judge_never_traps_a_run(facts: Facts) -> None:
    """The same reply, sent back again and again, is taken or closed after a few redos."""
    redos = dict(facts.redos)
    for _ in range(10):
        verdict = judge(Facts(facts.reply, redos, facts.schema_repairs, facts.explicit))
        if not isinstance(verdict, Redo):
            return
        redos[verdict.gate] = redos.get(verdict.gate, 0) + 1
    pytest.fail("the run is trapped")


@given(FACTS)
def test_judge_says_how_many_redos_are_left(facts: Facts) -> None:
    """`bound_left` is what the gate would have left after this redo."""
    bounds = {"empty_reply": 1, "explicit_completion": 1, "output_schema": facts.schema_repairs}
    verdict = judge(facts)
    if isinstance(verdict, Redo):
        assert verdict.bound_left == bounds[verdict.gate] - facts.redos.get(verdict.gate, 0) - 1 >= 0


@pytest.mark.parametrize(
    ("redos", "bound", "left"), [({}, 2, 2), ({"g": 1}, 2, 1), ({"g": 2}, 2, 0), ({"g": 9}, 2, 0)]
)
def test_facts_left_is_clamped(redos: dict[str, int], bound: int, left: int) -> None:
    """What a gate has left of its bound never falls below 0, and other gates do not spend it."""
    assert _facts(redos={**redos, "other": 5}).left("g", bound) == left
