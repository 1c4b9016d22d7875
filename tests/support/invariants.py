"""What holds of every run, whatever happened to it: the laws of its events and of its transcript.

    check_run(await case.events(run), await transcript_of(case, run), await run.state())

`serving` here is `mainspring.testing.serving` that asks this of every run of the block before it leaves it.

Source: shared design, loop.md "Events", "Dispatch"; context.md "Ledger".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from mainspring import testing
from mainspring.backtest import recorded_of
from mainspring.client import Run
from mainspring.schemas.base import unwire
from mainspring.schemas.ledger import Entry
from mainspring.testing import Case
from mainspring.workflows.backtest import recomputed, told
from mainspring.workflows.ledger import Ledger

__all__ = [
    "check_case",
    "check_decisions",
    "check_events",
    "check_run",
    "check_transcript",
    "serving",
    "transcript_of",
]

BRACKET = ("TurnStarted", "ToolsSelected", "ContextPlanned", "BudgetCheckpoint")
"""Each once in every turn, in this order."""
OF_A_TURN = {*BRACKET, "ToolCompleted", "GateHeld", "ModelFailed"}
SPENT = ("tokens", "input_tokens", "output_tokens", "cached_tokens", "wall_ms", "calls")
ROLES = {"user": "user", "control": "user", "reply": "assistant", "observation": "tool"}

Event = Mapping[str, Any]


@asynccontextmanager
async def serving(address: str, **options: Any) -> AsyncGenerator[Case]:
    """As `mainspring.testing.serving`; on leaving, every run of the block must keep the laws."""
    async with testing.serving(address, **options) as case:
        yield case
        await check_case(case)


async def check_case(case: Case) -> None:
    """Check every run that was started."""
    for run_id in case.started:
        run = case.again(run_id)
        check_run(await case.events(run), await transcript_of(case, run), await run.state())
        await check_decisions(case, run_id)


async def check_decisions(case: Case, run_id: str) -> None:
    """What guard and router decided is made again, to the letter, from what the run has recorded."""
    recorded, _ = await recorded_of(await case.history(run_id))
    if recorded is not None:  # whether it replays is asked elsewhere
        assert recomputed(recorded) == told(recorded)


async def transcript_of(case: Case, run: Run[Any]) -> list[dict[str, Any]]:
    """Every entry of a run's ledger, as it is on the wire."""
    entries: list[dict[str, Any]] = []
    while True:
        page = await case.handle(run).query("transcript", {"from": len(entries), "limit": 200})
        if not page:
            return entries
        entries += page


def check_run(
    events: Sequence[Event], entries: Sequence[Mapping[str, Any]], state: Mapping[str, Any]
) -> None:
    """The laws of events and of the transcript, and that both and the state tell the same."""
    check_events(events)
    digest = check_transcript(entries, ended=state["outcome"] is not None)
    assert state["ledger"] == {"length": len(entries), "digest": digest}
    told = [event["call_id"] for event in events if event["event"] == "ToolCompleted"]
    assert told == [entry["call_id"] for entry in entries if entry["kind"] == "observation"]


def check_events(events: Sequence[Event]) -> None:
    """Assert the laws of a run's events, from its first on: of one under way, or that has ended."""
    if not events:
        return  # cancelled before its first workflow task: it never began
    names = [event["event"] for event in events]
    assert [event["seq"] for event in events] == list(range(len(events))), "seq has a gap"
    assert names[0] == "RunStarted"
    assert names.count("RunStarted") == 1
    assert "Finished" not in names[:-1], "Finished is not last"
    assert all(earlier["at"] <= later["at"] for earlier, later in pairwise(events)), "time ran back"
    _check_turns(events)
    _check_exchanges(events)
    _check_spend(events)
    for event in events:
        if event["event"] == "ToolsSelected":
            assert sum(event["by_source"].values()) == event["offered"] <= event["universe"], event
    calls = [event["call_id"] for event in events if event["event"] == "ToolCompleted"]
    assert len(set(calls)) == len(calls), "a call was completed twice"


def _check_turns(events: Sequence[Event]) -> None:
    """Turns count from 1 without a gap; each has its bracket once, and its calls complete after it."""
    turns: dict[int, list[str]] = {}
    for event in events:
        if event["event"] in OF_A_TURN:
            turns.setdefault(event["turn"], []).append(event["event"])
    assert list(turns) == list(range(1, len(turns) + 1)), f"turns {list(turns)}"
    ended = events[-1]["event"] == "Finished"
    for turn, names in turns.items():
        bracket = [name for name in names if name in BRACKET]
        whole = tuple(bracket) == BRACKET
        under_way = not ended and turn == len(turns) and tuple(bracket) == BRACKET[: len(bracket)]
        assert whole or under_way, f"turn {turn}: {names}"
        assert names[0] == "TurnStarted", f"turn {turn}: {names}"
        done = [index for index, name in enumerate(names) if name in ("ToolCompleted", "GateHeld")]
        assert not done or whole, f"turn {turn}: {names}"
        assert all(index > names.index("BudgetCheckpoint") for index in done), f"turn {turn}: {names}"


def _check_exchanges(events: Sequence[Event]) -> None:
    """Exchanges count from 1, one at a time; only a cancelled run leaves its last one open."""
    open_one = 0
    closed = 0
    for event in events:
        if event["event"] == "ExchangeStarted":
            assert (open_one, event["exchange"]) == (0, closed + 1), event
            open_one = event["exchange"]
        elif event["event"] == "ExchangeEnded":
            assert event["exchange"] == open_one, event
            open_one, closed = 0, open_one
        elif event["event"] == "TurnStarted":
            assert event["exchange"] == open_one, event
        elif event["event"] == "Finished":
            assert not open_one or event["outcome"] == "cancelled", event
            assert event["exchanges"] == max(open_one, closed), event


def _check_spend(events: Sequence[Event]) -> None:
    """What is spent never becomes less."""
    points = [event for event in events if event["event"] == "BudgetCheckpoint"]
    for earlier, later in pairwise(points):
        assert all(earlier[name] <= later[name] for name in SPENT), (earlier, later)


def check_transcript(entries: Sequence[Mapping[str, Any]], *, ended: bool = True) -> str:
    """Assert the laws of a ledger, whole, as it is on the wire; the digest of it.

    Args:
        entries: From the first on.
        ended: Whether the run has: until then the calls of the newest reply may be without observations.
    """
    ledger = Ledger()
    for entry in entries:
        assert ROLES[entry["kind"]] == entry["role"], entry
        ledger.append(unwire(Entry, dict(entry)))  # asserts that there is no gap
    for earlier, later in pairwise(ledger.entries):
        assert (earlier.exchange, earlier.turn) <= (later.exchange, later.turn), (earlier, later)
    if entries:
        first = ledger.entries[0]
        assert (first.kind, first.meta.get("source")) == ("user", "prompt"), first
    ids = [call.id for entry in ledger.entries for call in entry.calls]
    assert len(set(ids)) == len(ids), "two calls have one id"
    _check_observations(iter(ledger.entries), ended)
    return ledger.ref.digest


def _check_observations(entries: Iterator[Entry], ended: bool) -> None:
    """Every call has exactly one observation, directly after its reply, in the order of the calls."""
    for entry in entries:
        assert entry.kind != "observation", f"observation {entry.call_id} answers no call of the reply before"
        for call in entry.calls:
            answer = next(entries, None)
            if answer is None:
                assert not ended, f"call {call.id} has no observation"
                return
            assert answer.kind == "observation", f"call {call.id} is followed by {answer.kind}"
            assert (answer.call_id, answer.tool) == (call.id, call.tool)
            assert answer.turn == entry.turn
