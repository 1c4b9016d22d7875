"""Lines and views: what a person sees of a run."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any, get_args

import pytest
from rich.console import Console

from mainspring.feed import Flight
from mainspring.render import LiveView, line_of, one_line, spend_line
from mainspring.workflows import events

SAMPLES: dict[str, Any] = {
    "str": "text",
    "int": 3,
    "float": 0.5,
    "bool": True,
    "dict": {},
    "tuple": ("a note",),
}
KINDS: tuple[type[Any], ...] = get_args(events.Event)


def _event(kind: type[Any], *, whole: bool) -> dict[str, Any]:
    """An event as the query gives it: with every field, or with those alone that have no default."""
    given = {
        item.name: SAMPLES[str(item.type).partition("[")[0].partition(" ")[0]]
        for item in fields(kind)
        if whole or item.default is item.default_factory
    }
    return events.Journal().append(kind(**given), 1, "2026-01-01T00:00:00.000+00:00")


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "bare"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_line_of_takes_every_event(kind: type[Any], whole: bool) -> None:
    """Each event of a run has a line or none, also when what may be missing of it is missing."""
    line = line_of(_event(kind, whole=whole))
    assert line is None or line.strip()


def test_line_of_shows_an_event_of_a_later_version() -> None:
    """An event that this version does not know is shown with its fields."""
    event = {"seq": 1, "turn": 1, "at": "", "event": "Approved", "by": "somebody"}
    assert line_of(event) == "! Approved by=somebody"


def test_spend_line_tells_unknown_from_nothing() -> None:
    """Without a price there are no dollars; sums that are a lower bound say so."""
    spend = {"turns": 1, "tool_calls": 2, "input_tokens": 1000, "output_tokens": 5, "wall_ms": 1500}
    assert spend_line(spend) == "1 turns · 2 calls · 1,000 tokens in, 5 out · 1.5 s"
    assert spend_line({**spend, "dollars": 0.5, "partial": True}).endswith("$0.5000 · 1.5 s (at least)")


def test_live_view_shows_what_is_in_flight() -> None:
    """The text under way, the calls with their attempts, and that nobody serves the run."""
    view = LiveView(flight=Flight("Thinking about it", (("files/read", 2),)), served=False)
    written = io.StringIO()
    Console(file=written, width=100).print(view)
    for told in ("Thinking about it", "files/read (attempt 2)", "no worker"):
        assert told in written.getvalue()


def test_live_view_takes_text_as_text() -> None:
    """What a model writes is no markup: brackets neither vanish nor break the view."""
    written = io.StringIO()
    Console(file=written, width=100).print(LiveView(flight=Flight("[bold]x[/nothing] [link=y]")))
    assert "[bold]x[/nothing] [link=y]" in written.getvalue()


def test_one_line_is_one_line_and_bounded() -> None:
    """Line breaks become spaces, and a clipped text is exactly as long as allowed."""
    assert one_line("a\n b\r\n\tc", 10) == "a b c"
    assert len(one_line("x" * 50, 10)) == 10
