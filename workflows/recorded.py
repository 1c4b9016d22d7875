"""A run as it was recorded, turn by turn: what its decisions can be read from, and made again.

Pure. It takes the ledger and the events, and nothing that a run keeps beside them.

Source: shared design, README.md, law 8; loop.md "Events".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from mainspring.schemas.agent import GuardSpec, RoutingSpec
from mainspring.schemas.ledger import Entry, EntryCall
from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows import router
from mainspring.workflows.acts import act_of
from mainspring.workflows.catalog import wire_name
from mainspring.workflows.guard import Act, Acted, Held
from mainspring.workflows.intrinsics import DONE

__all__ = ["DECISIONS_SINCE", "Event", "Recorded", "RecordedTurn", "Setup", "turns"]

DECISIONS_SINCE = 2
"""Arming records of this number and later have a guard and a router."""

JUDGED_LAST = (None, "stalled", "max_turns", "budget")
"""Outcomes of an exchange whose last turn the guard may have judged; any other one ended amid its turn."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """What an exchange worked with: settings, tools by name in universe order, which decisions were made."""

    guard: GuardSpec
    routing: RoutingSpec
    tools: Mapping[str, ToolDeclaration]
    decisions: int = DECISIONS_SINCE


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run as it was recorded.

    Args:
        entries: The ledger, from its first entry.
        events: All events, from the first.
        setups: By exchange.
        offers: By turn: which tools were offered. Events have only their number.
    """

    entries: Sequence[Entry]
    events: Sequence[Event]
    setups: Mapping[int, Setup]
    offers: Mapping[int, router.Offer] = field(default_factory=dict[int, router.Offer])


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """What is recorded of one turn.

    Args:
        start: Entries that there were when it was routed.
        entries: That came with it: the reply, what was observed, control messages, and what people said.
        events: From its `TurnStarted` to the next one.
    """

    number: int
    exchange: int
    start: int
    entries: Sequence[Entry]
    events: Sequence[Event]
    setup: Setup

    def named(self, name: str) -> list[Event]:
        """Its events of that name."""
        return [event for event in self.events if event["event"] == name]

    @property
    def reply(self) -> Entry | None:
        """The model's reply; None where none came."""
        return next((entry for entry in self.entries if entry.kind == "reply"), None)

    @property
    def calls(self) -> tuple[EntryCall, ...]:
        """The reply's calls."""
        return self.reply.calls if self.reply else ()

    @property
    def statuses(self) -> dict[str, str]:
        """What became of each call, by its id."""
        return {event["call_id"]: event["status"] for event in self.named("ToolCompleted")}

    @property
    def ending(self) -> str | None:
        """Outcome of the exchange, where it ended before another turn began."""
        return next((event["outcome"] for event in self.named("ExchangeEnded")), None)

    @property
    def dispatched(self) -> bool:
        """Whether its batch was run: not where `nika:done` won, or the exchange ended before it."""
        statuses = self.statuses
        if not statuses or any(call.tool == DONE and statuses.get(call.id) == "ok" for call in self.calls):
            return False
        return self.ending is None or any(status != "not_run" for status in statuses.values())

    @property
    def judged(self) -> Acted | Held | None:
        """The turn as the guard is shown it; None where it is not asked.

        It is asked after a batch that was run and that no person withdrew, and after a reply that a gate
        sent back.
        """
        spoke = bool(self.named("Nudged") or self.named("Stalled"))
        if self.reply is None or not (spoke or self.ending in JUDGED_LAST):
            return None
        controls = [entry.control_kind for entry in self.entries if entry.kind == "control"]
        if self.calls:
            if not spoke and (not self.dispatched or self.named("Interrupted")):
                return None
            return Acted(tuple(map(self._act, self.calls)), "repair_directive" in controls)
        held = self.named("GateHeld")
        sent_back = any(kind not in ("nudge", "interrupted") for kind in controls)
        return Held(str(self.reply.content), held[-1]["gate"]) if held and sent_back else None

    def _act(self, call: EntryCall) -> Act:
        completed = next(item for item in self.named("ToolCompleted") if item["call_id"] == call.id)
        tool = self.setup.tools.get(call.tool)
        return act_of(call, self.observation(call), tool, completed["status"], completed.get("digest"))

    def observation(self, call: EntryCall) -> Entry:
        """What was observed of a call; each has exactly one."""
        return next(entry for entry in self.entries if entry.call_id == call.id)

    def found(self, call: EntryCall) -> list[str]:
        """Names of the tools that this search of the catalog found."""
        content = self.observation(call).content
        shown = content.get("tools") if isinstance(content, dict) else None
        items = [item for item in shown if isinstance(item, dict)] if isinstance(shown, list) else []
        wires = [item.get("name") for item in items]
        return [name for name in self.setup.tools if wire_name(name) in wires]


def turns(recorded: Recorded) -> Iterator[RecordedTurn]:
    """The run's turns, in order."""
    entries, events = recorded.entries, recorded.events
    begins = [at for at, event in enumerate(events) if event["event"] == "TurnStarted"]
    for begin, end in pairwise([*begins, len(events)]):
        number, exchange = events[begin]["turn"], events[begin]["exchange"]
        start = bisect_left(entries, number, key=_turn_of)
        stop = bisect_left(entries, number + 1, key=_turn_of)
        setup = recorded.setups[exchange]
        yield RecordedTurn(number, exchange, start, entries[start:stop], events[begin:end], setup)


def _turn_of(entry: Entry) -> int:
    return entry.turn
