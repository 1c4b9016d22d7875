"""The context plan: which ledger entries the model sees this turn.

Pure. Source: shared design, context.md "Plan".
"""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.schemas.ledger import Plan

__all__ = ["Planned", "plan"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and its composition: entries in the ledger, entries shown, estimated tokens shown."""

    plan: Plan
    entries: int
    shown: int
    tokens: int


def plan(entries: int, tokens: int) -> Planned:
    """Show everything; `tokens` is the estimate over all entries."""
    return Planned(Plan(), entries, entries, tokens)
