"""The backtest: what guard and router decided in a run, and what they would have under other settings.

    recorded     →  `told`        what the run's events say
                 →  `recomputed`  what guard and router say to the same turns, with these settings
    the two      →  `compared`    turn by turn, as far as anything can be claimed

Pure, and without a model call: decisions are functions of what a run has recorded. With the recorded settings
the recomputed decisions are the recorded ones. With others they tell what would have been decided on the
turns as they went: which replies the model would have given after another nudge, or from another offer,
nobody knows. Searches of the catalog are refused or answered as those settings say. Nothing is claimed beyond
the turn at which an exchange would have ended that went on, or gone on that ended.

Source: shared design, loop.md "Guard (stalls)", "Router"; README.md, laws 1 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from mainspring.schemas.agent import GuardSpec, RoutingSpec
from mainspring.schemas.base import Closed, JsonValue
from mainspring.schemas.ledger import Entry, EntryCall
from mainspring.schemas.tools import ToolDeclaration, ToolOutcome
from mainspring.workflows import guard, router
from mainspring.workflows.dispatch import label
from mainspring.workflows.guard import Acted, Held
from mainspring.workflows.intrinsics import FIND_TOOLS, without_hints
from mainspring.workflows.recorded import DECISIONS_SINCE, Recorded, RecordedTurn, Setup, turns
from mainspring.workflows.searches import search
from mainspring.workflows.values import render

__all__ = [
    "NOTHING",
    "Change",
    "Compared",
    "Decisions",
    "Told",
    "Verdict",
    "compared",
    "recomputed",
    "told",
]


@dataclass(frozen=True, slots=True)
class Change:
    """Settings to put in place of recorded ones, by name. A run that had no guard or no router gets one."""

    guard: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    routing: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


NOTHING = Change()
"""The recorded settings."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the guard said. `none`: it was not asked. `left` are the reflections left after a nudge."""

    kind: Literal["none", "proceed", "nudge", "stall"]
    reason: str | None = None
    period: int = 0
    repeats: int = 0
    left: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What was offered. `names` is None where the run has not kept them."""

    offered: int
    universe: int
    by_source: Mapping[str, int]
    names: Literal["all"] | tuple[str, ...] | None = None

    def lacks(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Those of these tools that were not offered, each once."""
        if self.names is None or self.names == "all":
            return ()
        return tuple(dict.fromkeys(tool for tool in tools if tool not in self.names))


@dataclass(frozen=True, slots=True)
class Decisions:
    """Guard and router on one turn; `refused` are searches of the catalog beyond those of an exchange."""

    turn: int
    exchange: int
    verdict: Verdict
    offer: Told
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
    """One turn under both settings.

    Args:
        did: Its calls in short, or the gate that held its reply; nothing where the reply was let through.
        called: The tools that it called and that exist.
        then: As it was decided.
        now: As it would have been; None where nothing can be claimed.
    """

    did: tuple[str, ...]
    called: tuple[str, ...]
    then: Decisions
    now: Decisions | None

    @property
    def missed(self) -> tuple[str, ...]:
        """Tools that were called and would not have been offered; they may be called all the same."""
        return self.now.offer.lacks(self.called) if self.now else ()


# -- what the run decided ------------------------------------------------------------------------------


def told(recorded: Recorded) -> tuple[Decisions, ...]:
    """What guard and router decided, as the run's events say."""
    found: list[Decisions] = []
    for turn in turns(recorded):
        for selected in turn.named("ToolsSelected"):
            offer = recorded.offers.get(turn.number)
            names = offer.names if offer else None
            seen = Told(selected["offered"], selected["universe"], dict(selected["by_source"]), names)
            refused = sum(turn.statuses.get(call.id) == "error" for call in _searches(turn))
            found.append(Decisions(turn.number, turn.exchange, _verdict_told(turn), seen, refused))
    return tuple(found)


def _searches(turn: RecordedTurn) -> list[EntryCall]:
    """Its searches of the catalog; one that was made is an error only where none was left."""
    return [call for call in turn.calls if call.tool == FIND_TOOLS]


def _verdict_told(turn: RecordedTurn) -> Verdict:
    for event in turn.events:
        if event["event"] == "Stalled":
            return Verdict("stall", None, event["period"], event["repeats"])
        if event["event"] == "Nudged":
            left = event["reflections_left"]
            return Verdict("nudge", event["reason"], event["period"], event["repeats"], left)
    asked = turn.setup.decisions >= DECISIONS_SINCE and turn.judged is not None
    return Verdict("proceed" if asked else "none")


# -- what it would have decided --------------------------------------------------------------------------


def recomputed(recorded: Recorded, change: Change = NOTHING) -> tuple[Decisions, ...]:
    """What guard and router say to the recorded turns, with the recorded settings or with these.

    Raises: ValueError, when a changed setting is unknown or out of its bounds.
    """
    found: list[Decisions] = []
    routing = _Routing(recorded.entries)
    guarding = _Guarding()
    for turn in turns(recorded):
        spec, judged = _routing_of(turn.setup, change), turn.judged
        offer = routing.offer(turn, spec)
        refused = routing.happened(turn, spec, sent_back=isinstance(judged, Held))
        if isinstance(judged, Acted):
            judged = _as_answered(turn, judged, routing.searching.instead)
        verdict = guarding.verdict(turn.exchange, judged, _guard_of(turn.setup, change))
        if turn.named("ToolsSelected"):
            found.append(Decisions(turn.number, turn.exchange, verdict, offer, refused))
    return tuple(found)


def _as_answered(turn: RecordedTurn, acted: Acted, instead: Mapping[str, ToolOutcome]) -> Acted:
    """The turn with what its searches would have answered, where that is not what they did."""
    acts = tuple(
        replace(act, content=without_hints(act.tool, other.content), is_error=other.is_error)
        if (other := instead.get(call.id))
        else act
        for call, act in zip(turn.calls, acted.acts, strict=True)
    )
    return replace(acted, acts=acts)


S = TypeVar("S", bound=Closed)


def _with(spec: S, change: Mapping[str, JsonValue]) -> S:
    return type(spec).model_validate({**spec.model_dump(), **change}) if change else spec


def _guard_of(setup: Setup, change: Change) -> GuardSpec | None:
    has = setup.decisions >= DECISIONS_SINCE or change.guard
    return _with(setup.guard, change.guard) if has else None


def _routing_of(setup: Setup, change: Change) -> RoutingSpec | None:
    has = setup.decisions >= DECISIONS_SINCE or change.routing
    return _with(setup.routing, change.routing) if has else None


@dataclass(slots=True)
class _Guarding:
    """The guard, from turn to turn of an exchange."""

    exchange: int = 0
    guard: guard.Guard | None = None

    def verdict(self, exchange: int, turn: Acted | Held | None, spec: GuardSpec | None) -> Verdict:
        """What it says to this turn."""
        if turn is None or spec is None:
            return Verdict("none")
        before = self.guard if self.exchange == exchange and self.guard else guard.fresh(spec)
        self.exchange = exchange
        self.guard, said = guard.observe(before, turn)
        match said:
            case guard.Proceed():
                return Verdict("proceed")
            case guard.Nudge(reason, period, repeats):
                return Verdict("nudge", reason, period, repeats, self.guard.reflections_left)
            case guard.Stall(period, repeats):
                return Verdict("stall", None, period, repeats)


@dataclass(slots=True)
class _Searching:
    """The searches of an exchange; `instead` is what they would have answered where they did not, by call."""

    exchange: int = 0
    made: int = 0
    instead: dict[str, ToolOutcome] = field(default_factory=dict[str, ToolOutcome])

    def search(
        self, turn: RecordedTurn, call: EntryCall, spec: RoutingSpec | None, universe: router.Universe
    ) -> tuple[str, ...] | None:
        """What a call has found, or would have; None where it would have been refused."""
        if self.exchange != turn.exchange:
            self.exchange, self.made = turn.exchange, 0
        was_refused = turn.statuses[call.id] == "error"
        refused = was_refused if spec is None else self.made >= spec.searches
        if refused != was_refused and spec is not None:
            tools, bound = turn.setup.tools, spec.searches
            other = search(universe, tools, call.arguments, made=self.made, bound=bound)
            self.instead[call.id], names = other.outcome, other.tools
        else:
            names = () if refused else tuple(turn.found(call))
        self.made += not refused
        return None if refused else names


@dataclass(slots=True)
class _Routing:
    """The router, and what it goes by from turn to turn."""

    entries: Sequence[Entry]
    read: int = 0
    directive: str = ""
    last_text: str = ""
    observations: list[str] = field(default_factory=list[str])
    used: dict[str, int] = field(default_factory=dict[str, int])
    searching: _Searching = field(default_factory=_Searching)
    widen: bool = False
    kept: tuple[int, router.Offer] | None = None
    tools: Mapping[str, ToolDeclaration] | None = None
    universe: router.Universe = field(default_factory=lambda: router.universe(()))

    def offer(self, turn: RecordedTurn, spec: RoutingSpec | None) -> Told:
        """What is offered on this turn; everything where there is no router."""
        if self.tools is not turn.setup.tools:
            self.tools = turn.setup.tools
            self.universe = router.universe(tuple(self.tools.values()))
        for entry in self.entries[self.read : turn.start]:
            self._take(entry)
        self.read = turn.start
        offer = router.everything(self.universe) if spec is None else self._route(turn, spec)
        self.kept = (turn.exchange, offer)
        return Told(offer.offered, offer.universe, offer.by_source, offer.names)

    def _take(self, entry: Entry) -> None:
        """Read on in the ledger."""
        match entry.kind:
            case "user":
                self.directive = str(entry.content)
            case "reply":
                self.last_text = str(entry.content) or self.last_text
                self.observations.clear()
            case "observation":
                other = self.searching.instead.get(entry.call_id or "")
                self.observations.append(render(other.content if other else entry.content))
            case _:
                pass

    def _route(self, turn: RecordedTurn, spec: RoutingSpec) -> router.Offer:
        recent = router.recent(self.used, turn.number)
        kept = self.kept[1].names if spec.sticky and self.kept and self.kept[0] == turn.exchange else None
        words = router.query(self.directive, self.last_text, self.observations)
        widen, self.widen = self.widen, False
        return router.route(self.universe, spec, words, recent, kept=kept, widen=widen)

    def happened(self, turn: RecordedTurn, spec: RoutingSpec | None, *, sent_back: bool) -> int:
        """Take note of what was called and found, and of a reply that was sent back; the searches refused."""
        self.widen = self.widen or sent_back
        refused = 0
        if turn.dispatched:
            statuses = turn.statuses
            for call in turn.calls:
                found: tuple[str, ...] | None = ()
                if call.tool == FIND_TOOLS and statuses[call.id] in ("ok", "error"):
                    found = self.searching.search(turn, call, spec, self.universe)
                    refused += found is None
                if statuses[call.id] != "refused":
                    self.used.update(dict.fromkeys((call.tool, *(found or ())), turn.number))
        return refused


# -- both, side by side ------------------------------------------------------------------------------------


def compared(recorded: Recorded, change: Change = NOTHING) -> tuple[Compared, ...]:
    """Each turn of the run as it was decided and as it would have been, as far as that can be claimed.

    Raises: ValueError, as `recomputed`.
    """
    by_number = {turn.number: turn for turn in turns(recorded)}
    found: list[Compared] = []
    claimed = True
    for then, now in zip(told(recorded), recomputed(recorded, change), strict=True):
        turn = by_number[then.turn]
        called = tuple(call.tool for call in turn.calls if call.tool in turn.setup.tools)
        found.append(Compared(_did(turn), called, then, now if claimed else None))
        claimed = claimed and (then.verdict.kind == "stall") == (now.verdict.kind == "stall")
    return tuple(found)


def _did(turn: RecordedTurn) -> tuple[str, ...]:
    if turn.calls:
        return tuple(label(call) for call in turn.calls)
    return tuple(f"held by {event['gate']}" for event in turn.named("GateHeld"))
