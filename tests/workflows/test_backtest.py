from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.activities import ModelReply
from mainspring.schemas.agent import GuardSpec, RoutingSpec
from mainspring.schemas.ledger import Entry
from mainspring.schemas.tools import BlobRef, ParsedCall, ToolDeclaration, ToolOutcome
from mainspring.workflows import router
from mainspring.workflows.backtest import (
    Change,
    Compared,
    Verdict,
    compared,
    recomputed,
    told,
)
from mainspring.workflows.catalog import wire_name
from mainspring.workflows.ledger import control_entry, observation_entry, reply_entry, user_entry
from mainspring.workflows.recorded import Recorded, Setup, turns

NAMES = ("look", "read", "write", "status", "nika:done", "nika:find_tools")
TOOLS = {name: ToolDeclaration(name=name, polls=name == "status") for name in NAMES}
SETUP = Setup(GuardSpec(), RoutingSpec(), TOOLS)
MANY = {
    name: ToolDeclaration(name=name, description=text)
    for name, text in {
        "invoices": "List invoices of a customer",
        "weather": "Weather forecast of a city",
        "calendar": "Appointments of a day",
        "music": "Play a song",
        "mail": "Send an email",
    }.items()
}
ROUTED = Setup(GuardSpec(), RoutingSpec(threshold=0, top=1), MANY)
NOTHING_ASKED = Verdict("none")
GO_ON = Verdict("proceed")


@dataclass
class Record:
    """Writes down a run as the loop does, turn by turn."""

    setup: Setup = SETUP
    entries: list[Entry] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    setups: dict[int, Setup] = field(default_factory=dict)
    exchange: int = 0
    turn: int = 0

    def event(self, name: str, **more: Any) -> Record:
        """An event of the turn."""
        self.events.append({"seq": len(self.events), "turn": self.turn, "event": name, **more})
        return self

    def say(self, text: str) -> Record:
        """A person's words, which open an exchange."""
        self.exchange += 1
        self.setups[self.exchange] = self.setup
        self.entries.append(user_entry(len(self.entries), self.exchange, self.turn, text))
        return self.event("ExchangeStarted", exchange=self.exchange, entry=len(self.entries) - 1)

    def steer(self, text: str) -> Record:
        """A person's words amid an exchange."""
        self.entries.append(user_entry(len(self.entries), self.exchange, self.turn, text))
        return self.event("Steered", entry=len(self.entries) - 1)

    def begin(self) -> Record:
        """A turn begins, and everything is offered."""
        self.turn += 1
        size = len(self.setup.tools)
        self.event("TurnStarted", exchange=self.exchange)
        return self.event("ToolsSelected", offered=size, universe=size, by_source={"other": size})

    def reply(self, text: str = "", *calls: tuple[str, str, Any, bool], **outcome: Any) -> Record:
        """A turn with this reply; a call is its tool, what became of it, its content and its error flag."""
        self.begin()
        parsed = tuple(ParsedCall(tool=tool) for tool, *_ in calls)
        ids = [f"c{self.turn}-{index}" for index in range(len(calls))]
        reply = ModelReply(text=text, calls=parsed)
        self.entries.append(reply_entry(len(self.entries), self.exchange, self.turn, reply, ids))
        for id_, (tool, status, content, is_error) in zip(ids, calls, strict=True):
            made = ToolOutcome(content=content, is_error=is_error, **outcome)
            seq = len(self.entries)
            self.entries.append(observation_entry(seq, self.exchange, self.turn, id_, tool, made))
            self.event("ToolCompleted", call_id=id_, tool=tool, status=status)
        return self

    def act(self, tool: str = "look", content: Any = "same", *, error: bool = False) -> Record:
        """A turn of one call."""
        return self.reply("", (tool, "error" if error else "ok", content, error))

    def control(self, kind: str) -> Record:
        """A control message."""
        self.entries.append(control_entry(len(self.entries), self.exchange, self.turn, kind, "told"))
        return self

    def hold(self, text: str, gate: str = "empty_reply") -> Record:
        """A turn whose reply a gate sent back."""
        return self.reply(text).event("GateHeld", gate=gate).control(gate)

    def end(self, outcome: str = "completed") -> Record:
        """The exchange ends."""
        return self.event("ExchangeEnded", exchange=self.exchange, outcome=outcome)

    @property
    def recorded(self) -> Recorded:
        """What was written down."""
        return Recorded(self.entries, self.events, self.setups)


def _looks(turns: int, **setup: Any) -> Record:
    """The same look so often."""
    record = Record(replace(SETUP, **setup)).say("go")
    for _ in range(turns):
        record.act()
    return record


def _marks(compared_: Sequence[Compared]) -> str:
    """Verdicts as they would have been, a letter each; `?` where nothing is claimed."""
    letters = {"none": "-", "proceed": ".", "nudge": "N", "stall": "S"}
    return "".join("?" if item.now is None else letters[item.now.verdict.kind] for item in compared_)


# -- the guard ---------------------------------------------------------------------------------------


def test_tighter_guard_would_have_ended_the_run() -> None:
    """It is told at which turn; what came later is not claimed, since it would not have been."""
    record = _looks(3).act("read").reply("Done.").end()
    assert _marks(compared(record.recorded)) == "..N.-"
    assert _marks(compared(record.recorded, Change({"stall_after": 3}))) == "..S??"
    assert _marks(compared(record.recorded, Change({"nudge_after": 2}))) == ".N..-"


def test_looser_guard_would_have_gone_on() -> None:
    """At the turn at which the run stalled; of a later exchange nothing is claimed either."""
    record = _looks(5).event("Stalled", period=1, repeats=5).end("stalled").say("again").act()
    looser = compared(record.recorded, Change({"stall_after": 9}))
    assert looser[4].then.verdict == Verdict("stall", None, 1, 5)
    assert _marks(looser) == "..N..?"
    assert _marks(compared(record.recorded)) == "..N.S."


def test_guard_begins_anew_with_each_exchange() -> None:
    """What was done for one directive is nothing to the next."""
    record = _looks(4).reply("One.").end().say("again").act().act().reply("Two.").end()
    assert _marks(compared(record.recorded)) == "..N.-..-"


def test_run_of_an_earlier_version_had_neither() -> None:
    """Its decisions were none; other settings give it a guard or a router, each by itself."""
    record = _looks(5, decisions=1)
    assert {decided.verdict for decided in (*told(record.recorded), *recomputed(record.recorded))} == {
        NOTHING_ASKED
    }
    assert _marks(compared(record.recorded, Change({"stall_after": 4}))) == "..NS?"
    record = Record(replace(ROUTED, decisions=1)).say("the weather").act("weather")
    (plain,), (routed,) = recomputed(record.recorded), recomputed(record.recorded, Change(routing={"top": 1}))
    assert (plain.verdict, plain.offer.names) == (NOTHING_ASKED, "all")
    assert (routed.verdict, routed.offer.names) == (NOTHING_ASKED, ("weather",))


def test_verdicts_told_are_the_events() -> None:
    """A nudge and a stall as the run recorded them, whatever the guard of today would say."""
    record = Record().say("go").act()
    record.event("Nudged", reason="error_streak", period=0, repeats=2, reflections_left=4)
    record.act().event("Stalled", period=3, repeats=7).end("stalled")
    assert [decided.verdict for decided in told(record.recorded)] == [
        Verdict("nudge", "error_streak", 0, 2, 4),
        Verdict("stall", None, 3, 7),
    ]


OK = ("look", "ok", "same", False)
NOT_RUN = ("look", "not_run", "Not run.", True)


@pytest.mark.parametrize(
    ("record", "asked"),
    [
        (Record().say("go").reply("", OK), True),
        (Record().say("go").reply("", ("no_such", "refused", "?", True)), True),
        (Record().say("go").reply("", OK).end("stalled"), True),
        (Record().say("go").reply("", OK).end("max_turns"), True),
        (Record().say("go").reply("", OK).end("cancelled"), False),
        (Record().say("go").reply("", OK).end("security"), False),
        (Record().say("go").reply("", OK).event("Interrupted", calls=1), False),
        (Record().say("go").reply("", NOT_RUN).end("max_turns"), False),
        (Record().say("go").reply("", NOT_RUN), True),
        (Record().say("go").reply("", OK, ("nika:done", "ok", "Not final.", False)), False),
        (Record().say("go").reply("", OK, ("nika:done", "refused", "no", True)), True),
        (Record().say("go").hold(""), True),
        (Record().say("go").reply("").event("GateHeld", gate="g").end("max_turns"), False),
        (Record().say("go").reply("Done.").end(), False),
        (Record().say("go").reply("Late.").steer("no"), False),
        (Record().say("go").begin().event("Interrupted", calls=0).end("interrupted"), False),
        (
            Record()
            .say("go")
            .reply("", OK)
            .event("Nudged", reason="error_streak", period=0, repeats=2, reflections_left=0)
            .control("nudge")
            .end("cancelled"),
            True,
        ),
    ],
)
def test_guard_was_asked_of_what_the_loop_shows_it(record: Record, asked: bool) -> None:
    """After a batch that was run and not withdrawn, and after a reply that was sent back; else never."""
    (turn,) = turns(record.recorded)
    assert (turn.judged is not None) == asked


def test_turn_is_judged_as_it_was_seen() -> None:
    """Errors, polls, what never ran, digests of what is shown in part, directives, and a gate's name."""
    record = Record().say("go")
    record.reply("", ("status", "ok", "running", False), NOT_RUN, ("no_such", "refused", "?", True))
    blob = BlobRef(digest="d1", size=9, media_type="text/plain")
    record.reply("", OK, spilled=blob, files=(blob.model_copy(update={"digest": "d2"}),))
    record.act().control("repair_directive")
    record.hold("Done?", "explicit_completion")
    first, second, third, fourth = (turn.judged for turn in turns(record.recorded))
    assert [(act.tool, act.polls, act.tried, act.is_error) for act in first.acts] == [
        ("status", True, True, False),
        ("look", False, False, True),
        ("no_such", False, True, True),
    ]
    assert second.acts[0].digest == "d1 d2"
    assert (second.directed, third.directed) == (False, True)
    assert (fourth.text, fourth.gate) == ("Done?", "explicit_completion")


@pytest.mark.parametrize(
    "change",
    [
        Change({"stall_after": 1}),
        Change({"stal_after": 3}),
        Change(routing={"top": 0}),
        Change(routing={"threshold": "many"}),
    ],
)
def test_settings_that_no_agent_could_have_are_refused(change: Change) -> None:
    """An unknown name and a value out of bounds, as in a configuration."""
    with pytest.raises(ValueError, match="validation error"):
        recomputed(_looks(1).recorded, change)


@given(
    st.lists(st.sampled_from(["ok", "error", "refused", "not_run", "held", "steer", "next"]), max_size=30),
    st.integers(2, 6),
    st.integers(2, 6),
)
def test_backtest_is_total_and_repeatable(steps: list[str], nudge_after: int, stall_after: int) -> None:
    """Whatever was recorded: one pair of decisions a turn, the same again, claimed up to one turn."""
    record = Record().say("go")
    for step in steps:
        match step:
            case "held":
                record.hold("text")
            case "steer":
                record.steer("words")
            case "next":
                record.reply("Done.").end().say("more")
            case status:
                record.reply("", ("look", status, "same", status != "ok"))
    change = Change({"nudge_after": nudge_after, "stall_after": stall_after}, {"threshold": 0, "top": 2})
    found = compared(record.recorded, change)
    assert found == compared(record.recorded, change)
    assert len(found) == record.turn
    assert all(item.then.turn == item.now.turn for item in found if item.now)
    claimed = [item.now is not None for item in found]
    assert claimed == sorted(claimed, reverse=True)


# -- the router --------------------------------------------------------------------------------------


def _offered(record: Record, **routing: Any) -> list[Any]:
    """The names offered, turn by turn."""
    return [item.offer.names for item in recomputed(record.recorded, Change(routing=routing))]


def test_offer_goes_by_directive_last_text_and_newest_observations() -> None:
    """As in the loop: the newest words of a person, the last text of the model, what was just observed."""
    record = Record(ROUTED).say("the weather")
    record.act("nothing_such", "a song").reply("An email?", ("no", "refused", "appointments", True))
    record.steer("invoices").reply("Done.").end().say("music").begin()
    words = [
        router.query("the weather", "", []),
        router.query("the weather", "", ["a song"]),
        router.query("invoices", "An email?", ["appointments"]),
        router.query("music", "Done.", []),
    ]
    tools = router.universe(tuple(MANY.values()))
    recent = [(), ("nothing_such",), ("nothing_such",), ()]
    spec = RoutingSpec(threshold=0, top=2)
    assert _offered(record, top=2) == [
        router.route(tools, spec, said, used).names for said, used in zip(words, recent, strict=True)
    ]


def test_tool_that_was_used_stays_offered_for_two_turns() -> None:
    """As long as in the loop; one that was refused was not used."""
    record = Record(ROUTED).say("the weather").act("mail").reply("", ("music", "refused", "no", True))
    record.act("weather").act("weather")
    mails = ["mail" in names for names in _offered(record)]
    assert mails == [False, True, True, False]
    assert not any("music" in names for names in _offered(record))


def test_tools_that_a_search_found_count_as_used() -> None:
    """They are offered from the next turn on."""
    found = {"tools": [{"name": wire_name("mail"), "description": ""}], "note": "", "searches_left": 1}
    tools = {**MANY, "nika:find_tools": ToolDeclaration(name="nika:find_tools", source="intrinsic")}
    record = Record(replace(ROUTED, tools=tools)).say("the weather").act("nika:find_tools", found).begin()
    assert ["mail" in names for names in _offered(record)] == [False, True]


def _hunts(*queries: str, refused: int = 0) -> Record:
    """A search a turn for the music, where the last ones were refused; then a song."""
    tools = {**MANY, "nika:find_tools": ToolDeclaration(name="nika:find_tools", source="intrinsic")}
    record = Record(replace(ROUTED, tools=tools)).say("the weather")
    for place, words in enumerate(queries):
        last = place >= len(queries) - refused
        shown = {"tools": [{"name": wire_name("music"), "description": ""}], "note": "", "searches_left": 1}
        record.act("nika:find_tools", "No more searches" if last else shown, error=last)
        reply = record.entries[-2]
        calls = (reply.calls[0].model_copy(update={"arguments": {"query": words}}),)
        record.entries[-2] = reply.model_copy(update={"calls": calls})
    return record.begin()


def test_search_beyond_its_bound_would_have_been_refused() -> None:
    """What it found is then not offered; with the recorded bound, and in another exchange, it is."""
    hunts = _hunts("play a song", "play a song")
    assert [item.refused for item in recomputed(hunts.recorded)] == [0, 0, 0]
    assert ["music" in names for names in _offered(hunts)] == [False, True, True]
    none = recomputed(hunts.recorded, Change(routing={"searches": 0}))
    assert [item.refused for item in none] == [1, 1, 0]
    assert ["music" in item.offer.names for item in none] == [False, False, False]
    again = _hunts("play a song").end().say("the weather")
    again.act("nika:find_tools", again.entries[2].content).end()
    assert [item.refused for item in recomputed(again.recorded, Change(routing={"searches": 1}))] == [0, 0, 0]


def test_refused_search_is_a_failed_call_to_the_guard() -> None:
    """Two turns of nothing else are an error streak, which the recorded searches were not."""
    record = _hunts("play a song", "sing a song")
    assert _marks(compared(record.recorded)) == "..-"
    assert _marks(compared(record.recorded, Change(routing={"searches": 0}))) == ".N-"


def test_search_that_was_refused_would_have_found() -> None:
    """With a greater bound it is made: what it finds is offered from the next turn on."""
    record = _hunts("play a song", refused=1)
    assert [item.refused for item in told(record.recorded)] == [1, 0]
    tight, loose = ({"searches": bound} for bound in (0, 1))
    assert ["music" in names for names in _offered(record, **tight)] == [False, False]
    assert ["music" in names for names in _offered(record, **loose)] == [False, True]
    assert [item.refused for item in recomputed(record.recorded, Change(routing=loose))] == [0, 0]


def test_sticky_offer_grows_when_a_reply_is_sent_back() -> None:
    """Within an exchange it keeps what it had, and ranks anew only after a gate's redo."""
    record = Record(ROUTED).say("the weather").reply("A song", OK).hold("A song").begin().reply("x").end()
    record.say("music").begin()
    assert _offered(record, sticky=True, top=2) == [
        ("weather",),
        ("weather",),
        ("weather", "music"),
        ("weather", "music"),
        ("music",),
    ]


def test_missed_are_calls_outside_the_offer() -> None:
    """Tools that were called, exist and would not have been offered; nothing where all were."""
    record = (
        Record(ROUTED)
        .say("the weather")
        .reply("", ("mail", "ok", "", False), ("weather", "ok", "", False), ("mail", "ok", "", False), OK)
    )
    (item,) = compared(record.recorded)
    assert item.called == ("mail", "weather", "mail")
    assert item.missed == ("mail",)
    (item,) = compared(record.recorded, Change(routing={"threshold": 9}))
    assert item.missed == ()
