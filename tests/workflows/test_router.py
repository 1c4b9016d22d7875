from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.router import Offer, everything, universe

TOOLS = st.lists(
    st.sampled_from(["nika:done", "files/read", "mcp:git/log", "billing/charge", "look"]).map(
        lambda name: ToolDeclaration(name=name)
    )
)


def test_everything_is_counted_by_source() -> None:
    """Every tool, counted by its source; the order of sources is always the same."""
    names = ["mcp:git/log", "nika:done", "files/read", "look", "mcp:git/show"]
    offer = everything(universe([ToolDeclaration(name=name) for name in names]))
    assert offer == Offer("all", 5, 5, {"builtin": 2, "mcp": 2, "other": 1})
    assert list(offer.by_source) == ["builtin", "mcp", "other"]


@given(TOOLS)
def test_everything_adds_up(tools: list[ToolDeclaration]) -> None:
    """The sum over sources is what is offered, which is never more than there is."""
    offer = everything(universe(tools))
    assert sum(offer.by_source.values()) == offer.offered <= offer.universe == len(tools)
    assert everything(universe(tools)) == offer
