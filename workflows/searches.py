"""What `nika:find_tools` answers: to the loop, and to the backtest where a recorded answer would be another.

Pure. Source: shared design, loop.md "Intrinsics".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainspring.schemas.base import JsonValue
from mainspring.schemas.tools import ToolDeclaration, ToolOutcome
from mainspring.workflows import router
from mainspring.workflows.intrinsics import found

__all__ = ["Searched", "search"]

FOUND_USUAL = 5


@dataclass(frozen=True, slots=True)
class Searched:
    """What became of a search.

    Args:
        tools: Names of what was found, best first; they count as used.
        outcome: What the model is told.
        refused: The exchange had no search left.
    """

    tools: tuple[str, ...]
    outcome: ToolOutcome
    refused: bool = False


def search(
    universe: router.Universe,
    tools: Mapping[str, ToolDeclaration],
    arguments: Mapping[str, JsonValue],
    *,
    made: int,
    bound: int,
) -> Searched:
    """Search the catalog, if the exchange has a search left.

    Args:
        universe: What is searched.
        tools: The same tools, by name.
        arguments: The call's, as its schema has them.
        made: Searches of the exchange until now.
        bound: Searches that an exchange has.
    """
    if made >= bound:
        told = f"No more searches: {bound} were made for this message. Use what is offered, or answer."
        return Searched((), ToolOutcome(content=told, is_error=True), refused=True)
    limit = arguments.get("limit")
    result = router.search(
        universe,
        str(arguments["query"]),
        int(limit) if isinstance(limit, int | float) else FOUND_USUAL,  # 8.0 is an integer to a schema
    )
    names = tuple(ranked.name for ranked in result.tools)
    told_of = [tools[name] for name in names]
    return Searched(names, found(told_of, weak=result.weak, left=bound - made - 1))
