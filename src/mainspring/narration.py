"""What happens in a run, told to a person: one plain line an event, and no end told twice.

Lines are pure functions of events, so that a pipe and a terminal tell the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mainspring.render import CallText, count, duration, one_line, shown
from mainspring.workflows.intrinsics import ASK

__all__ = ["Narrator", "line_of", "repeated", "stall_lines", "why_offered"]

MARKS = {"ok": "✓", "error": "✗", "refused": "✗", "not_run": "–", "interrupted": "–", "unknown": "?"}

_WHY = {
    "small": "all, since they are few",
    "ranked": "those that meet the words best, with what is pinned and what was used lately",
    "no_overlap": "all, since none meets the words",
    "sticky": "as in the turn before",
}

Event = Mapping[str, Any]


def _started(event: Event) -> str:
    notes = "".join(f"\n! {note}" for note in event.get("notes", ()))
    agent, model = event.get("agent") or "–", event.get("model") or "–"
    return f"agent {agent} · model {model} · {count(event['tools'], 'tool')}{notes}"


def _tool(event: Event, call: CallText | None = None) -> str | None:
    if event["tool"] == ASK and event["status"] in ("ok", "error", "interrupted"):
        return _asked(event, call)
    mark = MARKS.get(event["status"], "·")
    if event["status"] == "error" and call is not None and call.said:
        return f"{mark} {event['tool']}: {one_line(shown(call.said), 200)}"
    told = "" if event["status"] == "ok" else f" {event['status'].replace('_', ' ')}"
    said = f" {call.brief}" if call is not None and call.brief else ""
    size = f" · {count(event['bytes'], 'byte')}" if event["bytes"] else ""
    spilled = " · spilled" * event.get("spilled", False)
    return f"{mark} {event['tool']}{said}{told} · {duration(event['ms'])}{size}{spilled}"


def _asked(event: Event, call: CallText | None) -> str | None:
    """What became of a question; `QuestionClosed` has told why one got no answer."""
    if event["status"] != "ok":
        return None
    said = f": {one_line(shown(call.said), 200)}" if call is not None and call.said else ""
    return f"✓ answered{said} · after {duration(event['ms'])}"


def _question_closed(event: Event) -> str | None:
    waited = f" · after {duration(event['waited_ms'])}" if event.get("waited_ms") else ""
    match event["status"]:
        case "answered":
            return None  # the call's line has the answer
        case "expired":
            return f"! nobody answered in time{waited}"
        case "unattended":
            return "! the question was put to nobody: the run is unattended"
        case status:
            return f"– question {status}{waited}"


def repeated(period: int, repeats: int) -> str:
    """A cycle of turns in words: `the same 2 turns came 5 times in a row`."""
    turns = "turn" if period == 1 else f"{period:,} turns"
    return f"the same {turns} came {count(repeats, 'time')} in a row"


def why_offered(why: str) -> str:
    """The router's reason, for a person; one of a later version as it is."""
    return _WHY.get(why, why)


def stall_lines(period: int, repeats: int, steps: Sequence[str]) -> str:
    """Why a run stalled, with the turns that repeated, one a line."""
    listed = "".join(f"\n  {step}" for step in steps)
    return f"{repeated(period, repeats)}, with the same results{':' * bool(steps)}{listed}"


def _nudged(event: Event) -> str:
    if event["reason"] == "error_streak":
        seen = f"every call of the last {count(event['repeats'], 'turn')} failed"
    else:
        seen = repeated(event["period"], event["repeats"])
    return f"! nudged: {seen}"


def _selected(event: Event) -> str | None:
    if event["offered"] >= event["universe"]:
        return None
    return f"offered {event['offered']:,} of {count(event['universe'], 'tool')}"


def _checked(event: Event) -> str:
    size = f" · {count(event['bytes'], 'byte')}"
    found = f" · {count(event['findings'], 'finding')}" if event.get("findings") else ""
    if event.get("valid") is None:
        return f"? draft not checked ({event.get('stage', 'check')}){size}"
    return f"{'✓' if event['valid'] else '✗'} draft {'valid' if event['valid'] else 'not valid'}{found}{size}"


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
    left = f" · {count(event['unanswered'], 'message')} unanswered" if event.get("unanswered") else ""
    return f"{event['outcome']}{code}{left}"


_LINES: dict[str, Callable[[Event], str | None]] = {
    "RunStarted": _started,
    "ExchangeStarted": lambda e: f"exchange {e['exchange']}" if e["exchange"] > 1 else None,
    "TurnStarted": lambda e: f"turn {e['turn']}",
    "ToolsSelected": _selected,
    "ContextPlanned": lambda e: None,
    "BudgetCheckpoint": lambda e: None,
    "ToolCompleted": _tool,
    "ModelFailed": _model_failed,
    "ComposeChecked": _checked,
    "Nudged": _nudged,
    "Stalled": lambda e: f"✗ stalled: {repeated(e['period'], e['repeats'])}",
    "QuestionAsked": lambda e: f"? {one_line(e['question'], 300)}",
    "QuestionClosed": _question_closed,
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


def line_of(event: Event, call: CallText | None = None) -> str | None:
    """An event for a person; None for one that says nothing to them. An unknown event shows its fields.

    Args:
        event: As the query `events` gives it.
        call: Of a call that has ended: what was asked for and what came, where it is known.
    """
    if event["event"] == "ToolCompleted":
        return _tool(event, call)
    return _LINES.get(event["event"], _unknown)(event)


def _unknown(event: Event) -> str:
    rest = {key: value for key, value in event.items() if key not in ("seq", "turn", "at", "event")}
    told = " ".join(f"{key}={one_line(shown(value), 60)}" for key, value in rest.items())
    return f"! {event['event']} {told}".rstrip()


@dataclass(slots=True)
class Narrator:
    """Tells a run to somebody who is told its end anyway, so that the end is told once.

    What announces an end is held back until it is known whether the run ends with it.
    """

    single: bool = False
    offered: str | None = None
    held: list[str] = field(default_factory=list[str])

    def lines(self, event: Event, call: CallText | None = None) -> list[str]:
        """The lines to show now that this has happened."""
        kind, line = event["event"], line_of(event, call)
        if kind == "RunStarted":
            self.single = event.get("lifetime") == "single"
        if kind == "Finished":
            self.held.clear()
            return []
        if kind == "ToolsSelected":
            line, self.offered = (None if line == self.offered else line), line
        if line is None and kind != "ExchangeEnded":
            return []
        if kind == "ExchangeEnded" and event.get("message"):
            self.held.clear()  # its message is what the failed call, or the guard, said
        told = [*self.held, line] if line else list(self.held)
        self.held.clear()
        ends = (
            kind == "Stalled"
            or (kind == "ModelFailed" and not event.get("fallback"))
            or (kind == "ExchangeEnded" and self.single)
        )
        if ends:
            self.held, told = told, []
        return told
