"""How a run looks on a terminal: words for what is counted, the live view, the tables of the commands.

The live view adds to the lines of events (`narration`) what they do not hold: the text that is being written,
and the calls in flight.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from mainspring.feed import Flight

__all__ = [
    "CallText",
    "LiveView",
    "count",
    "duration",
    "hint_of_queue",
    "indented",
    "money",
    "one_line",
    "shown",
    "spend_line",
    "started_line",
    "styled",
    "table",
    "visible",
]

LIVE_LINES = 6
GAP = 2
"""Columns of the terminal between two of a table."""
CLIPPED_MIN = 24
CELL_MAX = 200
SHOWN_SECONDS = 1.0
"""A call in flight for this long is shown; most have ended by then."""
STYLES = {"✓": "green", "✗": "red", "?": "yellow", "!": "yellow"}

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Event = Mapping[str, Any]


def visible(text: str) -> str:
    """Text with its control characters made visible: what a model writes must not steer the terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: object, characters: int) -> str:
    """Text on one line, clipped; control characters are made visible."""
    line = visible(" ".join(str(text).split()))
    return line if len(line) <= characters else line[: characters - 1] + "…"


def shown(value: object) -> str:
    """Text as it is, a number with its thousands, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value, ensure_ascii=False, default=str)


def count(number: int, noun: str) -> str:
    """`1 call`, `1,204 calls`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def duration(ms: float) -> str:
    """`18 ms`, `8.1 s`, `9m 59s`, `2h 5m`."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes}m {seconds}s"
    return f"{minutes // 60:,}h {minutes % 60}m"


def money(dollars: float | None) -> str:
    """`$0.0042`; nothing where there is no price."""
    return "" if dollars is None else f"${dollars:,.4f}"


def spend_line(spend: Mapping[str, Any]) -> str:
    """Spend in one line: `3 turns · 4 calls · 5,120 tokens in (2,048 cached), 310 out · $0.0042 · 8.1 s`."""
    cached = f" ({spend['cached_tokens']:,} cached)" if spend.get("cached_tokens") else ""
    parts = [
        count(spend.get("turns", 0), "turn"),
        count(spend.get("tool_calls", 0), "call"),
        f"{spend.get('input_tokens', 0):,} tokens in{cached}, {spend.get('output_tokens', 0):,} out",
        money(spend.get("dollars")),
        duration(spend.get("wall_ms", 0)),
    ]
    return " · ".join(part for part in parts if part) + (" (at least)" if spend.get("partial") else "")


def indented(text: str, indent: int, width: int | None) -> str:
    """Text whose lines after the first begin at `indent`; with a width they are wrapped to it."""
    margin = " " * indent
    lines = text.splitlines() or [""]
    if width is None:
        return f"\n{margin}".join(lines)
    room = max(20, width - indent)
    wrapped = [part for line in lines for part in (textwrap.wrap(line, room, drop_whitespace=True) or [""])]
    return f"\n{margin}".join(wrapped)


# --- calls and queues ---


@dataclass(frozen=True, slots=True)
class CallText:
    """What the ledger holds of a call, for its line."""

    arguments: Mapping[str, Any]
    said: object = ""
    tool: str = ""

    @property
    def brief(self) -> str:
        """The arguments in a few words: one text alone as it is, else JSON."""
        values = list(self.arguments.values())
        if not values:
            return ""
        alone = len(values) == 1 and isinstance(values[0], str)
        return one_line(values[0] if alone else shown(dict(self.arguments)), 60)


def started_line(tool: str, call: CallText | None) -> str:
    """A call that is under way: `→ price {"sku": "a1"}`; `tool` is for one that the ledger does not know."""
    if call is None:
        return f"→ {tool}"
    return one_line(f"→ {call.tool or tool} {shown(dict(call.arguments)) if call.arguments else ''}", 80)


def hint_of_queue(task_queue: str, *, call: bool = False) -> str:
    """What to do about a task queue that nobody serves."""
    if call:
        return f"no worker serves task queue {task_queue!r}; the call waits for one that has its activity"
    return f"no worker serves task queue {task_queue!r}; the run waits for one: mainspring worker"


# --- the live view ---


@dataclass(slots=True)
class LiveView:
    """The foot of a run on a terminal, drawn again and again below the lines of its events."""

    flight: Flight = field(default_factory=Flight)
    calls: Mapping[str, CallText] = field(default_factory=dict[str, CallText])
    hint: str = ""
    spend: str = ""
    turn: int = 0
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    def feed(self, event: Event) -> None:
        """Take an event in."""
        self.turn = max(self.turn, event["turn"])
        if event["event"] == "BudgetCheckpoint":
            spent = (count(event["tokens"], "token"), count(event["calls"], "call"))
            self.spend = " · ".join(part for part in (*spent, money(event.get("dollars"))) if part)

    def __rich__(self) -> RenderableType:
        """The view as it is now."""
        parts: list[RenderableType] = []
        for call in self.flight.calls:
            if call.seconds >= SHOWN_SECONDS or call.attempt > 1:
                again = f" (attempt {call.attempt})" if call.attempt > 1 else ""
                since = f" · {duration(call.seconds * 1000)}" if call.seconds >= SHOWN_SECONDS else ""
                line = f"{started_line(call.tool, self.calls.get(call.id))}{again}{since}"
                parts.append(Text(line, "cyan", overflow="ellipsis", no_wrap=True))
        if self.flight.text:
            newest = "\n".join(self.flight.text.splitlines()[-LIVE_LINES:])
            parts.append(Padding(Text(newest, "italic"), (0, 0, 0, 2)))
        told = Text(
            " · ".join(part for part in (f"turn {self.turn}" * bool(self.turn), self.spend) if part), "dim"
        )
        if self.hint:
            told.append(f" {self.hint}".rstrip(), "yellow")
        self.spinner.update(text=told)
        return Group(*parts, self.spinner)


def styled(line: str) -> Text:
    """A line of an event, coloured by its mark."""
    return Text(line, STYLES.get(line[:1], "dim" if line.startswith(("turn ", "offered ")) else ""))


# --- tables ---


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int | None = None,
    drop: Sequence[str] = (),
) -> Table:
    """A table without a frame. The first column, which is what one copies, is never folded or clipped.

    Args:
        headings: Of the columns.
        rows: Cells.
        width: Of the terminal.
        drop: Columns that are left out, in this order, as long as it is too wide.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    wide = [max(cell_len(text) for text in column) for column in zip(headings, *cells, strict=True)]
    left = _that_fit(headings, wide, width, drop)
    others = sum(wide[index] + GAP for index in left[:-1])
    room = CELL_MAX if width is None else max(1, width - others)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for index in left:
        drawn.add_column(headings[index], no_wrap=True, min_width=0 if index == left[-1] else wide[index])
    for row in cells:
        told = [row[index] for index in left]
        if len(left) > 1:
            told[-1] = one_line(told[-1], room)
        drawn.add_row(*(escape(text) for text in told))
    return drawn


def _cell(value: object) -> str:
    return "–" if value is None else one_line(shown(value), CELL_MAX)


def _that_fit(
    headings: Sequence[str], wide: Sequence[int], width: int | None, drop: Sequence[str]
) -> list[int]:
    """Indexes of the columns that are shown. The last one may be clipped, but not to next to nothing."""
    left = list(range(len(headings)))
    needed = [*wide[:-1], min(wide[-1], CLIPPED_MIN)]
    for name in drop:
        if width is None or sum(needed[index] + GAP for index in left) - GAP <= width:
            break
        left.remove(headings.index(name))
    return left
