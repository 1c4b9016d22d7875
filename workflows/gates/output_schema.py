"""Holds a reply that does not meet the agent's output schema. Its repairs are shared with `nika:done`.

Source: shared design, loop.md "Outcomes" (`schema`).
"""

from __future__ import annotations

from mainspring.workflows.gates.verdicts import Close, Facts, Pass, Redo

__all__ = ["NAME", "gate", "judge_output"]

NAME = "output_schema"


def gate(facts: Facts) -> Pass | Redo | Close:
    """Pass a reply that meets the schema, or any reply when there is none."""
    return judge_output(facts, facts.reply.output_problem)


def judge_output(facts: Facts, problem: str | None) -> Pass | Redo | Close:
    """Judge an output, of a text or of `nika:done`, by what is wrong with it."""
    if problem is None:
        return Pass()
    left = facts.left(NAME, facts.schema_repairs)
    if not left:
        return Close(NAME, "schema", f"the output does not meet its schema: {problem}")
    text = (
        f"[schema-check] Your answer does not meet the output schema: {problem}. "
        "Answer again with one JSON value that meets it, and nothing else."
    )
    return Redo(NAME, "schema_repair", problem, text, left - 1)
