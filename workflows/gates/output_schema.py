"""Holds a reply that does not meet the agent's output schema. Its repairs are shared with `nika:done`.

Source: shared design, loop.md "Outcomes" (`schema`).
"""

from __future__ import annotations

from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo

__all__ = ["gate", "repair_text"]

NAME = "output_schema"


def gate(facts: Facts) -> Pass | Redo | Close:
    """Pass a reply that meets the schema, or any reply when there is none."""
    problem = facts.reply.output_problem
    if problem is None:
        return Pass()
    if facts.repairs_left <= 0:
        return Close(NAME, "schema", f"the output does not meet its schema: {problem}")
    return Redo(NAME, "schema_repair", problem, repair_text(problem), facts.repairs_left - 1)


def repair_text(problem: str) -> str:
    """What the model is told."""
    return (
        f"[schema-check] Your answer does not meet the output schema: {problem}. "
        "Answer again with one JSON value that meets it, and nothing else."
    )
