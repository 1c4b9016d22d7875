"""Words, views and tables: what a person sees of a run beside its events."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mainspring.feed import CallInFlight, Flight
from mainspring.render import (
    CallText,
    LiveView,
    duration,
    indented,
    one_line,
    spend_line,
    table,
)


def test_spend_line_tells_unknown_from_nothing() -> None:
    """Without a price there are no dollars; sums that are a lower bound say so."""
    spend = {"turns": 1, "tool_calls": 2, "input_tokens": 1000, "output_tokens": 5, "wall_ms": 1500}
    assert spend_line(spend) == "1 turn · 2 calls · 1,000 tokens in, 5 out · 1.5 s"
    assert spend_line({**spend, "dollars": 0.5, "partial": True}).endswith("$0.5000 · 1.5 s (at least)")


def test_live_view_shows_what_is_in_flight() -> None:
    """The text under way, the calls with their attempts, and that nobody serves the run."""
    calls = CallInFlight("a-1", "price", seconds=2), CallInFlight("a-2", "files/read", attempt=2)
    view = LiveView(Flight("Thinking about it", calls), {"a-1": CallText({"sku": "a1"})}, "no worker serves")
    written = io.StringIO()
    Console(file=written, width=150).print(view)
    for told in ("Thinking about it", '→ price {"sku": "a1"} · 2.0 s', "files/read (attempt 2)", "no worker"):
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
    assert one_line("a\x1b[2Jb\x07", 20) == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("ms", "told"),
    [(18, "18 ms"), (8_100, "8.1 s"), (59_990, "1m 0s"), (599_000, "9m 59s"), (7_500_000, "2h 5m")],
)
def test_duration_is_in_the_unit_that_fits(ms: int, told: str) -> None:
    """Milliseconds, seconds, minutes, hours."""
    assert duration(ms) == told


def test_indented_keeps_lines_and_wraps_to_the_terminal() -> None:
    """A text's own line breaks stay; on a terminal long lines are wrapped below where they begin."""
    assert indented("a\nb", 2, None) == "a\n  b"
    assert indented("word " * 8, 4, 24) == "word word word word\n    word word word word"


def test_table_drops_columns_and_never_breaks_the_first() -> None:
    """In a narrow terminal the run's id stays whole, and what matters least goes."""
    run = "guide-1f2e3d4c5b6a"
    rows = [[run, "guide", 12, "2026-01-01 00:00:00"]]
    written = io.StringIO()
    drawn = table(["run", "agent", "turns", "started"], rows, width=30, drop=("turns", "started", "agent"))
    Console(file=written, width=30).print(drawn)
    assert run in written.getvalue().splitlines()[1]
    assert "started" not in written.getvalue()
    assert "guide" in written.getvalue().splitlines()[1].split()


def test_table_clips_its_last_column() -> None:
    """A text that does not fit says by an ellipsis that it goes on."""
    written = io.StringIO()
    Console(file=written, width=40).print(table(["tool", "description"], [["price", "x" * 99]], width=40))
    assert written.getvalue().splitlines()[1] == f"price  {'x' * 32}…"
