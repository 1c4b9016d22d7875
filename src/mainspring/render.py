"""How a run looks on a terminal: one plain line an event, a live view, the tables of the other commands.

Lines are pure functions of events, so that a pipe and a terminal tell the same. The live view adds what they
do not hold: the text that is being written, and the calls in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from mainspring.feed import Flight

__all__ = ["LiveView", "line_of", "one_line", "spend_line", "styled", "table"]

LIVE_LINES = 6
MARKS = {"ok": "✓", "error": "✗", "refused": "✗", "not_run": "–", "interrupted": "–", "unknown": "?"}
STYLES = {"✓": "green", "✗": "red", "?": "yellow", "!": "yellow"}

Event = Mapping[str, Any]


def one_line(text: object, characters: int) -> str:
    """Text on one line, clipped."""
    line = " ".join(str(text).split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def money(dollars: float | None) -> str:
    """`$0.0042`; nothing where there is no price."""
    return "" if dollars is None else f"${dollars:.4f}"


def spend_line(spend: Mapping[str, Any]) -> str:
    """Spend in one line: `3 turns · 4 calls · 5,120 in (2,048 cached) + 310 out · $0.0042 · 8.1 s`."""
    cached = f" ({spend['cached_tokens']:,} cached)" if spend.get("cached_tokens") else ""
    parts = [
        f"{spend.get('turns', 0)} turns",
        f"{spend.get('tool_calls', 0)} calls",
        f"{spend.get('input_tokens', 0):,} tokens in{cached}, {spend.get('output_tokens', 0):,} out",
        money(spend.get("dollars")),
        f"{spend.get('wall_ms', 0) / 1000:.1f} s",
    ]
    return " · ".join(part for part in parts if part) + (" (at least)" if spend.get("partial") else "")


# --- events as lines ---


def _started(event: Event) -> str:
    notes = "".join(f"\n! {note}" for note in event.get("notes", ()))
    return f"agent {event['agent']} · model {event.get('model')} · {event['tools']} tools{notes}"


def _tool(event: Event) -> str:
    mark = MARKS.get(event["status"], "·")
    told = "" if event["status"] == "ok" else f" {event['status']}"
    size = f" · {event['bytes']:,} bytes" if event["bytes"] else ""
    return (
        f"{mark} {event['tool']}{told} · {event['ms']} ms{size}{' · spilled' * event.get('spilled', False)}"
    )


def _model_failed(event: Event) -> str:
    then = f" → {event['fallback']}" if event.get("fallback") else ""
    return f"✗ model {event['model']}: {event['error']}: {one_line(event['message'], 300)}{then}"


def _exchange_ended(event: Event) -> str | None:
    if event["outcome"] in ("completed", "done"):
        return None  # the answer itself says it
    code = f" ({event['code']})" if event.get("code") else ""
    told = f": {one_line(event['message'], 500)}" if event.get("message") else ""
    return f"! exchange {event['exchange']} ended: {event['outcome']}{code}{told}"


def _finished(event: Event) -> str:
    code = f" ({event['code']})" if event.get("code") else ""
    left = f" · {event['unanswered']} messages unanswered" if event.get("unanswered") else ""
    return f"{event['outcome']}{code}{left}"


_LINES: dict[str, Callable[[Event], str | None]] = {
    "RunStarted": _started,
    "ExchangeStarted": lambda e: f"exchange {e['exchange']}" if e["exchange"] > 1 else None,
    "TurnStarted": lambda e: f"turn {e['turn']}",
    "ToolsSelected": lambda e: None,
    "ContextPlanned": lambda e: None,
    "BudgetCheckpoint": lambda e: None,
    "ToolCompleted": _tool,
    "ModelFailed": _model_failed,
    "ExchangeEnded": _exchange_ended,
    "Steered": lambda e: "! steered",
    "GateHeld": lambda e: f"! gate {e['gate']}: {one_line(e['reason'], 200)}",
    "SignalRejected": lambda e: f"! signal {e['signal']} rejected: {one_line(e['reason'], 300)}",
    "BudgetExtended": lambda e: "! budget extended",
    "ConfigurationRefreshed": lambda e: (
        f"! new configuration: {', '.join(e['changed']) or 'nothing changed'}"
    ),
    "Interrupted": lambda e: "! interrupted",
    "Paused": lambda e: "! paused",
    "Resumed": lambda e: "! resumed",
    "Finished": _finished,
}


def line_of(event: Event) -> str | None:
    """An event for a person; None for one that says nothing to them. An unknown event shows its fields."""
    shown = _LINES.get(event["event"], _unknown)
    return shown(event)


def _unknown(event: Event) -> str:
    rest = {key: value for key, value in event.items() if key not in ("seq", "turn", "at", "event")}
    told = " ".join(f"{key}={one_line(value, 60)}" for key, value in rest.items())
    return f"! {event['event']} {told}".rstrip()


# --- the live view ---


@dataclass(slots=True)
class LiveView:
    """The foot of a run on a terminal, drawn again and again below the lines of its events."""

    flight: Flight = field(default_factory=Flight)
    served: bool = True
    spend: str = ""
    turn: int = 0
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    def feed(self, event: Event) -> None:
        """Take an event in."""
        self.turn = max(self.turn, event["turn"])
        if event["event"] == "BudgetCheckpoint":
            parts = (f"{event['tokens']:,} tokens", f"{event['calls']} calls", money(event.get("dollars")))
            self.spend = " · ".join(part for part in parts if part)

    def __rich__(self) -> RenderableType:
        """The view as it is now."""
        parts: list[RenderableType] = []
        for name, attempt in self.flight.calls:
            again = f" (attempt {attempt})" if attempt > 1 else ""
            parts.append(Text(f"… {name}{again}", "cyan"))
        if self.flight.text:
            newest = "\n".join(self.flight.text.splitlines()[-LIVE_LINES:])
            parts.append(Padding(Text(newest, "italic"), (0, 0, 0, 2)))
        told = Text(
            " · ".join(part for part in (f"turn {self.turn}" * bool(self.turn), self.spend) if part), "dim"
        )
        if not self.served:
            told.append(" no worker serves this run; it waits", "yellow")
        self.spinner.update(text=told)
        return Group(*parts, self.spinner)


def styled(line: str) -> Text:
    """A line of an event, coloured by its mark."""
    return Text(line, STYLES.get(line[:1], "dim" if line.startswith("turn ") else ""))


# --- tables ---


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table without a frame."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(heading, overflow="fold")
    for row in rows:
        drawn.add_row(*(escape("" if cell is None else str(cell)) for cell in row))
    return drawn
