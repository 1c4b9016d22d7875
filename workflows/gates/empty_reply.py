"""Holds a reply with neither visible text nor a call (thinking only). One redo; then the run says so.

Source: shared design, gates.md, gate 2.
"""

from __future__ import annotations

from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo

__all__ = ["NAME", "gate"]

NAME = "empty_reply"
REDOS = 1


def gate(facts: Facts) -> Pass | Redo | Close:
    """Pass any reply with visible text."""
    if facts.reply.text.strip():
        return Pass()
    left = facts.left(NAME, REDOS)
    if not left:
        return Close(NAME, "refused", "the model gave no visible answer")
    return Redo(
        NAME,
        NAME,
        "the reply has neither text nor a call",
        "[empty-step] Your reply had no visible text and no tool call. Answer now, or call a tool.",
        left - 1,
    )
