"""Completion gates: one gate a file, and the ordered tuple of them.

A gate judges a reply that wants to be the answer. It is pure and bounded: it can send a reply back a few
times, never trap a run. The loop applies `GATES` in order; the first that does not pass decides.

Source: shared design, gates.md.
"""

from __future__ import annotations

from typing import Final

from mainspring.workflows.gates import empty_reply, explicit_completion, output_schema
from mainspring.workflows.gates.verdicts import Close, Facts, Gate, Pass, Redo

__all__ = ["GATES", "Close", "Facts", "Gate", "Pass", "Redo", "judge"]

GATES: Final[tuple[Gate, ...]] = (empty_reply.gate, explicit_completion.gate, output_schema.gate)


def judge(facts: Facts) -> Pass | Redo | Close:
    """The first verdict that is not Pass, in the order of `GATES`."""
    for gate in GATES:
        verdict = gate(facts)
        if not isinstance(verdict, Pass):
            return verdict
    return Pass()
