"""Holds a reply with neither visible text nor a call (thinking only). One redo; then the run says so.

Source: shared design, gates.md, gate 2.
"""

from __future__ import annotations

from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo

__all__ = ["gate"]

NAME = "empty_reply"


def gate(facts: Facts) -> Pass | Redo | Close:
    """Pass any reply with visible text."""
    if facts.reply.text.strip():
        return Pass()
    if facts.empty_left <= 0:
        return Close(NAME, "refused", "the model gave no visible answer")
    return Redo(
        NAME,
        NAME,
        "the reply has neither text nor a call",
        "[empty-step] Your reply had no visible text and no tool call. Answer now, or call a tool.",
        facts.empty_left - 1,
    )
