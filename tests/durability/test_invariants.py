"""The laws of a run can be broken: each planted violation is seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from mainspring.embedded import Server
from mainspring.schemas.base import wire
from mainspring.schemas.ledger import Entry, EntryCall
from support.invariants import check_events, check_run, check_transcript, serving, transcript_of
from support.tools import observe

Events = list[dict[str, Any]]
REPLIES: list[dict[str, Any]] = [
    {"calls": [{"tool": "observe", "arguments": {"i": i}} for i in range(2)]},
    {"text": "ok"},
]


def entry(seq: int, kind: str, role: str, **more: Any) -> dict[str, Any]:
    """One entry of a ledger, as it is on the wire."""
    return wire(Entry.model_validate({"seq": seq, "kind": kind, "role": role, "turn": 1, **more}))


def ledger() -> list[dict[str, Any]]:
    """A prompt, a reply with two calls, their observations, the answer."""
    calls = tuple(EntryCall(id=f"ab12cd34-{n}", tool="observe") for n in (1, 2))
    return [
        entry(0, "user", "user", turn=0, meta={"source": "prompt"}),
        entry(1, "reply", "assistant", calls=calls),
        entry(2, "observation", "tool", call_id="ab12cd34-1", tool="observe"),
        entry(3, "observation", "tool", call_id="ab12cd34-2", tool="observe"),
        entry(4, "reply", "assistant", turn=2, content="ok"),
    ]


def renumbered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without gaps, so that only what was planted is wrong."""
    return [{**item, "seq": seq} for seq, item in enumerate(items)]


BROKEN_LEDGERS: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "a gap": lambda x: [*x[:2], *x[3:]],
    "a call without observation": lambda x: renumbered([*x[:3], x[4]]),
    "observations out of order": lambda x: renumbered([x[0], x[1], x[3], x[2], x[4]]),
    "an observation too many": lambda x: renumbered([*x[:4], x[3], x[4]]),
    "a message between call and observation": lambda x: renumbered([x[0], x[1], {**x[0], "turn": 1}, *x[2:]]),
    "an answer to another call": lambda x: [*x[:3], {**x[3], "call_id": "ab12cd34-9"}, x[4]],
    "a turn that runs back": lambda x: [*x[:4], {**x[4], "turn": 0}],
    "no prompt": lambda x: renumbered(x[1:]),
    "another role": lambda x: [{**x[0], "role": "assistant"}, *x[1:]],
}


def test_sound_ledger_passes() -> None:
    """What the broken ones are made of is not broken."""
    assert check_transcript(ledger())


@pytest.mark.parametrize("plant", BROKEN_LEDGERS.values(), ids=BROKEN_LEDGERS.keys())
def test_broken_ledger_is_seen(plant: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """One violation is enough."""
    with pytest.raises(AssertionError):
        check_transcript(plant(ledger()))


def without(name: str) -> Callable[[Events], Events]:
    """The events but the first of a name."""

    def drop(events: Events) -> Events:
        at = next(index for index, event in enumerate(events) if event["event"] == name)
        return renumbered([*events[:at], *events[at + 1 :]])

    return drop


def twice(name: str) -> Callable[[Events], Events]:
    """The events with the first of a name doubled."""

    def double(events: Events) -> Events:
        at = next(index for index, event in enumerate(events) if event["event"] == name)
        return renumbered([*events[: at + 1], *copy.deepcopy(events[at:])])

    return double


def offering(**changes: Any) -> Callable[[Events], Events]:
    """The events with other numbers of tools."""
    return lambda events: [{**e, **changes} if e["event"] == "ToolsSelected" else e for e in events]


BROKEN_EVENTS: dict[str, Callable[[Events], Events]] = {
    "a gap": lambda x: x[:3] + x[4:],
    "no start": lambda x: renumbered(x[1:]),
    "something after the end": lambda x: renumbered([*x, x[3]]),
    **{
        f"no {name}": without(name)
        for name in ("TurnStarted", "ToolsSelected", "ContextPlanned", "BudgetCheckpoint", "ExchangeEnded")
    },
    **{
        f"{name} twice": twice(name)
        for name in ("RunStarted", "TurnStarted", "ToolsSelected", "BudgetCheckpoint", "ToolCompleted")
    },
    "offered is not the sum": offering(offered=3, universe=9),
    "more offered than there are": offering(universe=0),
    "spend runs back": lambda x: [{**e, "tokens": -e["turn"]} if "tokens" in e else e for e in x],
    "time runs back": lambda x: [*x[:-1], {**x[-1], "at": "2000-01-01T00:00:00.000+00:00"}],
}


def passes(events: Events) -> bool:
    """Whether nothing is seen."""
    try:
        check_events(events)
    except AssertionError:
        return False
    return True


async def test_broken_events_are_seen(server: Server) -> None:
    """Each violation, planted in the events of a real run; and a transcript that its digest does not cover.

    The events themselves pass: leaving the block checks them.
    """
    async with serving(server.address, replies=REPLIES, tools=[observe]) as case:
        run = await case.start()
        await run.result()
        events, state = await case.events(run), await run.state()
        entries = await transcript_of(case, run)
    assert [name for name, plant in BROKEN_EVENTS.items() if passes(plant(copy.deepcopy(events)))] == []
    entries[-1]["content"] = "something else"
    with pytest.raises(AssertionError):
        check_run(events, entries, state)
