"""Lines and views: what a person sees of a run."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any, get_args

import pytest
from rich.console import Console

from mainspring.feed import CallInFlight, Flight
from mainspring.render import (
    CallText,
    LiveView,
    Narrator,
    duration,
    indented,
    line_of,
    one_line,
    spend_line,
    table,
)
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


CALLED: dict[str, Any] = {"seq": 4, "turn": 1, "at": "", "event": "ToolCompleted", "call_id": "a-1"}


@pytest.mark.parametrize(
    ("event", "call", "line"),
    [
        (
            {"tool": "files/read", "status": "ok", "ms": 18, "bytes": 1227},
            CallText({"path": "README.md"}, "# Mainspring"),
            "✓ files/read README.md · 18 ms · 1,227 bytes",
        ),
        (
            {"tool": "price", "status": "error", "ms": 3, "bytes": 30},
            CallText({"sku": "zz"}, "ValueError: no such\nsku: zz"),
            "✗ price: ValueError: no such sku: zz",
        ),
        (
            {"tool": "price", "status": "not_run", "ms": 0, "bytes": 1},
            CallText({"sku": "zz", "count": 2}),
            '– price {"sku": "zz", "count": 2} not run · 0 ms · 1 byte',
        ),
    ],
    ids=["ok", "error", "not run"],
)
def test_line_of_a_call_says_what_was_asked_and_why_it_failed(
    event: dict[str, Any], call: CallText, line: str
) -> None:
    """With the ledger's text at hand, a call's line has its arguments, and a failure's its reason."""
    assert line_of({**CALLED, **event}, call) == line


def _told(*events: dict[str, Any]) -> list[str]:
    narrator = Narrator()
    return [line for event in events for line in narrator.lines({"seq": 0, "turn": 1, "at": "", **event})]


FAILED = {"event": "ModelFailed", "model": "gpt", "error": "model_misconfigured", "message": "no key"}
ENDED = {"event": "ExchangeEnded", "exchange": 1, "outcome": "model", "message": "no key"}


def test_end_of_a_run_is_left_to_whoever_tells_its_result() -> None:
    """A single run that fails says nothing of it twice: not the call, nor its exchange, nor its end."""
    started = {"event": "RunStarted", "agent": "a", "model": "m", "lifetime": "single", "tools": 1}
    spent = {"event": "BudgetCheckpoint", "tokens": 0, "calls": 0}
    told = _told(started, FAILED, spent, ENDED, {"event": "Finished", "outcome": "model"})
    assert told == ["agent a · model m · 1 tool"]


def test_end_of_an_exchange_in_a_conversation_is_told_at_once() -> None:
    """A conversation goes on after an exchange that failed, so its one line must not be held back."""
    assert _told(FAILED, ENDED) == ["! exchange 1 ended: model: no key"]


def test_failure_with_more_to_come_is_told_before_it() -> None:
    """What was held back as a possible end is told, in order, when the run goes on after all."""
    assert _told(FAILED, {"event": "Paused"}) == ["✗ model gpt: model_misconfigured: no key", "! paused"]


def test_missing_agent_and_model_are_a_dash() -> None:
    """A run that was refused before it had a model does not show Python's None."""
    started = {"event": "RunStarted", "agent": None, "model": None, "tools": 0}
    assert _told(started) == ["agent – · model – · 0 tools"]


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
