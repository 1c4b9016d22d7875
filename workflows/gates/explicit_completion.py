"""Holds a text without `nika:done` where the agent completes explicitly. One redo; then the text is taken.

Source: shared design, loop.md "Intrinsics" (`completion: explicit`).
"""

from __future__ import annotations

from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo

__all__ = ["NAME", "gate"]

NAME = "explicit_completion"
REDOS = 1


def gate(facts: Facts) -> Pass | Redo | Close:
    """Pass where completion is implicit, and a text that was sent back before."""
    left = facts.left(NAME, REDOS)
    if not facts.explicit or not left:
        return Pass()
    return Redo(
        NAME,
        NAME,
        "the reply is a text without nika:done",
        "[completion-check] Finish by calling nika:done with the result, or go on working.",
        left - 1,
    )
