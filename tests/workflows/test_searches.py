"""Searches of the catalog: what is found, and that there are only so many."""

from __future__ import annotations

import pytest

from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows import router
from mainspring.workflows.searches import search

TOOLS = {
    name: ToolDeclaration(name=name, description=f"Play a song on the {name}") for name in ("piano", "organ")
}
UNIVERSE = router.universe(tuple(TOOLS.values()))


@pytest.mark.parametrize(
    ("made", "bound", "left"), [(0, 1, 0), (1, 3, 1), (1, 1, None), (0, 0, None)], ids=str
)
def test_search_is_refused_where_none_is_left(made: int, bound: int, left: int | None) -> None:
    """The bound is told, and nothing is found; before it, the model is told how many are left."""
    found = search(UNIVERSE, TOOLS, {"query": "play a song"}, made=made, bound=bound)
    assert found.refused == found.outcome.is_error == (left is None)
    assert found.tools == (() if left is None else ("piano", "organ"))
    content = found.outcome.content
    assert (content["searches_left"] == left) if isinstance(content, dict) else (f": {bound} were" in content)


@pytest.mark.parametrize(("limit", "names"), [(1, 1), (1.0, 1), (2, 2)])
def test_search_takes_its_limit(limit: float, names: int) -> None:
    """However the number is written."""
    found = search(UNIVERSE, TOOLS, {"query": "play a song", "limit": limit}, made=0, bound=9)
    assert len(found.tools) == names
