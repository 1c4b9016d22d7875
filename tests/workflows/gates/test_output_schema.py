from __future__ import annotations

import pytest

from mainspring.schemas.activities import ModelReply
from mainspring.workflows.gates.output_schema import NAME, gate, judge_output
from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo


def _facts(problem: str | None = None, spent: int = 0, bound: int = 2, text: str = "{}") -> Facts:
    return Facts(ModelReply(text=text, output_problem=problem), {NAME: spent}, schema_repairs=bound)


@pytest.mark.parametrize("spent", [0, 2, 9])
@pytest.mark.parametrize("text", ["", "{}", "prose"])
def test_output_schema_passes_what_has_no_problem(spent: int, text: str) -> None:
    """No schema, or one that is met: nothing is held, whatever the bound."""
    assert gate(_facts(None, spent, text=text)) == Pass()


@pytest.mark.parametrize(("spent", "bound", "left"), [(0, 2, 1), (1, 2, 0), (0, 1, 0), (3, 10, 6)])
def test_output_schema_sends_back_with_the_problem(spent: int, bound: int, left: int) -> None:
    """The model is told what is wrong, and one repair less is left."""
    verdict = gate(_facts("a: required", spent, bound))
    assert isinstance(verdict, Redo)
    assert (verdict.gate, verdict.kind, verdict.bound_left) == (NAME, "schema_repair", left)
    assert "a: required" in verdict.text
    assert verdict.reason == "a: required"


@pytest.mark.parametrize(("spent", "bound"), [(2, 2), (0, 0), (5, 2)])
def test_output_schema_closes_when_repairs_are_spent(spent: int, bound: int) -> None:
    """Then the exchange ends as `schema`, naming the problem."""
    verdict = gate(_facts("a: required", spent, bound))
    assert verdict == Close(NAME, "schema", "the output does not meet its schema: a: required")


def test_output_schema_holds_an_empty_problem_too() -> None:
    """A problem without words is still a problem."""
    assert isinstance(gate(_facts("")), Redo)


@pytest.mark.parametrize("spent", [0, 1, 2])
def test_output_schema_judges_both_paths_alike(spent: int) -> None:
    """A text and the result of `nika:done` share the repairs: the same problem has the same verdict."""
    assert judge_output(_facts(None, spent), "bad") == gate(_facts("bad", spent))
    assert judge_output(_facts("bad", spent), None) == Pass()
