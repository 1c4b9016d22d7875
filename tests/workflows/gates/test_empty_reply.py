from __future__ import annotations

import pytest

from mainspring.schemas.activities import ModelReply
from mainspring.schemas.ledger import Thinking
from mainspring.workflows.gates.empty_reply import NAME, gate
from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo


def _judge(text: str, spent: int = 0) -> Pass | Redo | Close:
    return gate(Facts(ModelReply(text=text, thinking=(Thinking(text="hm"),)), {NAME: spent}))


@pytest.mark.parametrize(
    "text", ["a", ".", "0", "null", "{}", " a ", "\nok\n", "漢", "🍸", "…", "```\n```", "[stop-guard]"]
)
def test_empty_reply_passes_visible_text(text: str) -> None:
    """Any visible character is text, whatever the bound."""
    assert _judge(text) == Pass()
    assert _judge(text, 1) == Pass()


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "\t", "\r\n", "\u3000", "\u00a0", "\u2003", "\x0b", " \n \n"]
)
def test_empty_reply_holds_blank_text(text: str) -> None:
    """Nothing visible is sent back once, as a control message of its own kind."""
    verdict = _judge(text)
    assert isinstance(verdict, Redo)
    assert (verdict.gate, verdict.kind, verdict.bound_left) == (NAME, "empty_reply", 0)
    assert verdict.text.startswith("[empty-step] ")


@pytest.mark.parametrize("spent", [1, 2])
def test_empty_reply_closes_when_the_bound_is_spent(spent: int) -> None:
    """The second time the exchange is refused, saying that there was no visible answer."""
    assert _judge("", spent) == Close(NAME, "refused", "the model gave no visible answer")
