"""The router: which tools the model is offered this turn.

Pure. Source: shared design, loop.md "Router".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.catalog import source_of

__all__ = ["Offer", "route"]


@dataclass(frozen=True, slots=True)
class Offer:
    """What is offered of the universe, in universe order; "all" is the whole of it."""

    names: Literal["all"] | tuple[str, ...]
    offered: int
    universe: int
    by_source: dict[str, int]


def route(universe: Sequence[ToolDeclaration]) -> Offer:
    """The whole universe, byte-identical each turn, so that a provider's prompt cache stays warm."""
    by_source = {"builtin": 0, "mcp": 0, "other": 0}
    for tool in universe:
        by_source[source_of(tool.name)] += 1
    return Offer("all", len(universe), len(universe), by_source)
