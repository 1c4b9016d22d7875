from __future__ import annotations

import pytest

from mainspring.schemas.activities import ModelReply
from mainspring.workflows.gates.explicit_completion import NAME, gate
from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo


def _judge(explicit: bool, spent: int = 0, text: str = "The answer.") -> Pass | Redo | Close:
    return gate(Facts(ModelReply(text=text), {NAME: spent}, explicit=explicit))


@pytest.mark.parametrize("text", ["", "The answer.", "Now I'll", "nika:done"])
@pytest.mark.parametrize("spent", [0, 1])
def test_explicit_completion_passes_where_completion_is_implicit(text: str, spent: int) -> None:
    """Granting `nika:done` does not forbid a plain answer."""
    assert _judge(False, spent, text) == Pass()


@pytest.mark.parametrize("text", ["The answer.", "nika:done", "漢"])
def test_explicit_completion_sends_a_text_back_once(text: str) -> None:
    """A text without the call is sent back, naming the call."""
    verdict = _judge(True, 0, text)
    assert isinstance(verdict, Redo)
    assert (verdict.gate, verdict.kind, verdict.bound_left) == (NAME, "explicit_completion", 0)
    assert "nika:done" in verdict.text


@pytest.mark.parametrize("spent", [1, 2])
def test_explicit_completion_accepts_the_second_text(spent: int) -> None:
    """Then the text is taken: the gate nudges and never traps."""
    assert _judge(True, spent) == Pass()
