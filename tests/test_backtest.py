"""Histories replayed, and decisions made again from what they recorded.

`support.invariants.serving` asks of every run of the run tests that its decisions, made again, are its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from mainspring import testing
from mainspring.backtest import AT_ONCE, Backtested, Source, backtest, histories, read_settings, recorded_of
from mainspring.embedded import Server
from mainspring.run_errors import Refused, UnknownRun
from mainspring.schemas.agent import GuardSpec, RoutingSpec
from mainspring.testing import Case
from mainspring.tools import tool
from mainspring.workflows.backtest import Change, recomputed, told
from support.invariants import serving
from support.tools import nap, observe

GOLDEN = sorted((Path(__file__).parent / "histories").glob("*.json"))
LOOKS = {"calls": [{"tool": "observe", "arguments": {"i": 1}}]}
COUNTS = {"calls": [{"tool": "observe", "arguments": {"i": "${n}"}}]}
OK = {"text": "ok"}


PAGES = count()


@tool(effects="read")
async def album() -> str:
    """Find an album."""
    return "found"


@activity.defn(name="Pages")
async def pages(arguments: dict[str, Any]) -> str:
    """Return a long text that is another one each time, far from both of its ends."""
    return f"{'x' * 20_000}{next(PAGES):09}{'x' * 20_000}"


def history_of(file: Path) -> WorkflowHistory:
    """The history in a file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return WorkflowHistory.from_json(document.pop("workflowId"), document)


def broken(history: WorkflowHistory) -> WorkflowHistory:
    """A history that this code would not have written."""
    text = history.to_json().replace("mainspring.arm", "mainspring.leg")
    return WorkflowHistory.from_json(history.workflow_id, text)


async def nobody() -> Client:
    """For histories that need no server."""
    raise AssertionError("a server is asked")


def source(label: str, history: WorkflowHistory) -> Source:
    """A history that is at hand."""

    async def fetch() -> WorkflowHistory:
        return history

    return Source(label, fetch)


async def given(*sources: Source) -> AsyncIterator[Source]:
    """These, one after the other."""
    for item in sources:
        yield item


async def ran(case: Case, **options: Any) -> WorkflowHistory:
    """The history of a run that answers."""
    run = await case.start(**options)
    await run.result()
    return await case.history(run)


# -- what a run recorded -------------------------------------------------------------------------------


@pytest.mark.parametrize("file", GOLDEN, ids=lambda path: path.stem)
async def test_golden_decisions_are_made_again(file: Path) -> None:
    """With the recorded settings, what every recorded run decided comes out; 0.1 decided nothing."""
    recorded, failure = await recorded_of(history_of(file))
    assert failure is None
    assert recorded is not None
    decided = told(recorded)
    assert recomputed(recorded) == decided
    assert len(decided) == sum(event["event"] == "TurnStarted" for event in recorded.events)
    if file.stem.startswith("0.1.0"):
        assert all(item.verdict.kind == "none" and item.offer.names == "all" for item in decided)


async def test_recorded_is_what_the_run_itself_tells(server: Server) -> None:
    """Ledger and events as its queries have them, of a run that has nudged itself out of a loop."""
    async with serving(server.address, replies=[{**LOOKS, "repeat": 3}, OK], tools=[observe]) as case:
        run = await case.start()
        await run.result()
        recorded, _ = await recorded_of(await case.history(run))
        assert recorded is not None
        assert list(recorded.events) == await case.events(run)
        assert list(recorded.entries) == await run.transcript()
    assert [item.verdict.kind for item in told(recorded)] == ["proceed", "proceed", "nudge", "none"]


async def test_run_under_way_is_read_as_far_as_it_went(server: Server) -> None:
    """What its code does when it is torn down after the last event of the history never happened."""
    nap_long = {"calls": [{"tool": "nap", "arguments": {"seconds": 20}}]}
    async with serving(server.address, replies=[COUNTS, nap_long], tools=[observe, nap]) as case:
        run = await case.start()
        async with asyncio.timeout(20):
            while "nap" not in [call["tool"] for call in (await run.state())["in_flight"]]:
                await asyncio.sleep(0.02)
        recorded, failure = await recorded_of(await case.history(run))
        await run.cancel()
    assert failure is None
    assert recorded is not None
    assert recorded.events[-1]["event"] == "BudgetCheckpoint"
    assert [entry.kind for entry in recorded.entries] == ["user", "reply", "observation", "reply"]


async def test_recorded_holds_events_that_the_run_has_dropped(server: Server) -> None:
    """A run keeps its newest events only; its history has made all of them."""
    limits = {"events_kept": 100}
    options: dict[str, Any] = {"agent": {"limits": limits}, "tools": [observe]}
    replies = [{**COUNTS, "repeat": 30}, OK]
    async with testing.serving(server.address, replies=replies, **options) as case:
        recorded, _ = await recorded_of(await ran(case))
    assert recorded is not None
    assert [event["seq"] for event in recorded.events] == list(range(len(recorded.events)))
    assert len(recorded.events) > 100
    assert len(told(recorded)) == 31


async def test_history_that_does_not_replay_says_why() -> None:
    """In the words of the replay, without what stands around them."""
    recorded, failure = await recorded_of(broken(history_of(GOLDEN[0])))
    assert recorded is None
    assert failure is not None
    assert "mainspring.leg" in failure
    assert "Failure {" not in failure


# -- many of them --------------------------------------------------------------------------------------


async def test_backtest_keeps_order_and_goes_on_after_a_failure() -> None:
    """One that does not replay and one that cannot be had are told of, each in its place."""
    good = history_of(GOLDEN[0])

    async def gone() -> WorkflowHistory:
        raise Refused("no such execution")

    sources = given(
        source("bad", broken(good)), source("good", good), Source("gone", gone), source("again", good)
    )
    found = [tested async for tested in backtest(sources)]
    assert [(item.label, item.failure is None) for item in found] == [
        ("bad", False),
        ("good", True),
        ("gone", False),
        ("again", True),
    ]
    assert found[1].turns == found[3].turns
    assert len(found[1].turns) == 1
    assert found[2].failure == "no such execution"


async def test_backtest_holds_few_histories_at_once() -> None:
    """However many there are: no more are fetched than can be replayed meanwhile."""
    at_once = most = 0
    good = history_of(GOLDEN[0])

    async def fetch() -> WorkflowHistory:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        return good

    found: list[Backtested] = []
    async for tested in backtest(given(*(Source(str(number), fetch) for number in range(12)))):
        at_once -= 1
        found.append(tested)
    assert [item.label for item in found] == [str(number) for number in range(12)]
    assert 1 < most <= AT_ONCE


async def test_backtest_of_a_real_run_says_where_it_would_have_stalled(server: Server) -> None:
    """A loop of seven turns that a looser guard let pass, under the usual one."""
    replies = [COUNTS, {**LOOKS, "repeat": 7}, OK]
    agent = {"guard": {"nudge_after": 50, "stall_after": 50}}
    async with serving(server.address, replies=replies, tools=[observe], agent=agent) as case:
        history = await ran(case)
    change = Change({"nudge_after": 3, "stall_after": 5})
    (tested,) = [item async for item in backtest(given(source("run", history)), change)]
    assert tested.exact
    assert {item.then.verdict.kind for item in tested.turns} == {"proceed", "none"}
    assert [item.now and item.now.verdict.kind for item in tested.turns] == [
        "proceed",
        *["proceed", "proceed", "nudge", "proceed", "stall"],
        *[None] * 3,
    ]
    assert tested.turns[5].did == ("observe(i=1)",)


async def test_settings_are_those_of_each_exchange(server: Server) -> None:
    """A conversation that takes up a changed configuration is judged by what each exchange went by."""
    replies = [{**LOOKS, "repeat": 2}, OK, {**LOOKS, "repeat": 2}, OK]
    agent: dict[str, Any] = {"refresh": "exchange", "guard": {"nudge_after": 2}}
    async with serving(server.address, replies=replies, tools=[observe], agent=agent) as case:
        run = await case.start(lifetime="conversation")
        async with asyncio.timeout(20):
            while (await run.state())["awaiting"] != "follow_up":
                await asyncio.sleep(0.02)
        spec = case.plugin.config.agents["tested"]
        guard = GuardSpec(nudge_after=9)
        case.plugin.config.agents["tested"] = spec.model_copy(update={"guard": guard})
        await run.ask("again")
        await run.finish()
        await run.result()
        recorded, _ = await recorded_of(await case.history(run))
    assert recorded is not None
    assert {number: setup.guard.nudge_after for number, setup in recorded.setups.items() if number} == {
        1: 2,
        2: 9,
    }
    kinds = [item.verdict.kind for item in recomputed(recorded)]
    assert kinds == ["proceed", "nudge", "none", "proceed", "proceed", "none"]


async def test_text_that_is_blank_is_no_text(server: Server) -> None:
    """A model that says only a line break beside its calls has said nothing: its last words still count."""
    replies = [{"text": "an album, then", **LOOKS}, {"text": "\n", **LOOKS}, {"text": " ", **LOOKS}, OK]
    agent = {"routing": {"threshold": 0, "top": 1}}
    async with serving(server.address, replies=replies, tools=[observe, album, nap], agent=agent) as case:
        recorded, _ = await recorded_of(await ran(case))
    assert recorded is not None
    offers = [item.offer.names for item in told(recorded)]
    assert offers == ["all", *[("album", "observe")] * 3] or offers == ["all", *[("observe", "album")] * 3]


async def test_results_that_are_shown_cut_are_told_apart(server: Server) -> None:
    """A foreign activity's long results that differ amid what is left out are no loop, then and now."""
    queue = f"theirs-{uuid4().hex[:8]}"
    entry = {"name": "pages", "description": "Pages.", "activity": "Pages", "task_queue": queue}
    options: dict[str, Any] = {
        "agent": {"tools": ["pages"], "guard": {"nudge_after": 2}},
        "config": {"tools": {"activities": [{**entry, "effects": "read"}]}},
    }
    calls = [{"calls": [{"tool": "pages"}], "repeat": 4}, OK]
    theirs = await Client.connect(server.address)
    async with (
        serving(server.address, replies=calls, **options) as case,
        Worker(theirs, task_queue=queue, activities=[pages]),
    ):
        recorded, _ = await recorded_of(await ran(case))
    assert recorded is not None
    assert [item.verdict.kind for item in recomputed(recorded)] == [*["proceed"] * 4, "none"]


# -- where histories come from --------------------------------------------------------------------------


async def test_histories_of_files_need_no_server(tmp_path: Path) -> None:
    """A file is read; what is no history, and a name that cannot be one, are told of in their places."""
    (tmp_path / "none.json").write_text("{}")
    named = [str(tmp_path / "none.json"), "it's", str(GOLDEN[0])]
    none, name, good = [item async for item in backtest(histories(named, None, 9, nobody))]
    assert [item.label for item in (none, name, good)] == named
    assert "not a history" in str(none.failure)
    assert "neither a file" in str(name.failure)
    assert good.failure is None
    assert good.events


async def test_histories_of_runs_and_queries_come_from_the_server(server: Server) -> None:
    """By id, and by a query that finds agent runs and passes over other workflows."""
    async with serving(server.address, replies=[OK, OK], tools=[observe]) as case:
        first, second = await case.start(), await case.start()
        await first.result()
        await second.result()

        async def connect() -> Client:
            return case.client

        connecting: Callable[[], Awaitable[Client]] = connect
        found = [item async for item in histories([first.id], None, 9, connecting)]
        assert [item.label.partition("/")[0] for item in found] == [first.id]
        assert (await found[0].fetch()).events
        query = f"WorkflowId IN ('{first.id}', '{second.id}')"
        async with asyncio.timeout(20):
            while len(found := [item async for item in histories([], query, 9, connecting)]) < 2:
                await asyncio.sleep(0.1)  # visibility comes later
        assert len([item async for item in histories([], query, 1, connecting)]) == 1
        (unknown,) = [item async for item in histories(["no-such-run"], None, 9, connecting)]
        with pytest.raises(UnknownRun, match="neither a file nor a run"):
            await unknown.fetch()


# -- settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (GuardSpec, [], {}),
        (GuardSpec, ["nudge_after=2", " stall_after = 4 "], {"nudge_after": 2, "stall_after": 4}),
        (GuardSpec, ["window=8", "window=9"], {"window": 9}),
        (RoutingSpec, ["top=6", "sticky=true"], {"top": 6, "sticky": True}),
        (RoutingSpec, ["pin=files/*, mcp:git/**"], {"pin": ["files/*", "mcp:git/**"]}),
        (RoutingSpec, ["pin="], {"pin": []}),
        (RoutingSpec, ['pin=["crm/tool_1", a,]'], {"pin": ["crm/tool_1", "a"]}),
        (RoutingSpec, ["pin=a,b", "top=6", "pin=[c]"], {"pin": ["a", "b", "c"], "top": 6}),
    ],
)
def test_settings_are_read_as_in_a_configuration(kind: Any, given: list[str], read: dict[str, Any]) -> None:
    """Numbers, switches and lists; the last one of a name counts, and of a list all."""
    assert read_settings("--x", given, kind) == read


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (
            GuardSpec,
            "nudge_afte=2",
            "no setting 'nudge_afte'; did you mean 'nudge_after'? (nudge_after takes a whole",
        ),
        (GuardSpec, "zzz=2", "known: max_reflections, nudge_after, stall_after, window"),
        (GuardSpec, "nudge_after=1", "a whole number, 2 to 100, as in nudge_after=3"),
        (GuardSpec, "window=1001", "a whole number, 8 to 1,000, as in window=40"),
        (GuardSpec, "nudge_after=2.5", "a whole number, 2 to 100"),
        (GuardSpec, "nudge_after", "a whole number, 2 to 100"),
        (RoutingSpec, "top=0", "a whole number, 1 to 128, as in top=12"),
        (RoutingSpec, "sticky=perhaps", "true or false, as in sticky=true"),
        (RoutingSpec, "pin", "names or globs of tools, separated by commas or as a YAML list"),
        (RoutingSpec, "pin=[a", "names or globs of tools"),
        (RoutingSpec, "pin=[1]", "names or globs of tools"),
    ],
)
def test_wrong_settings_are_refused_with_what_is_allowed(kind: Any, given: str, told: str) -> None:
    """The option and what was given, the name that is near, or the values that are taken."""
    with pytest.raises(Refused) as refused:
        read_settings("--x", [given], kind)
    assert str(refused.value).startswith(f"--x {given}: ")
    assert told in str(refused.value)
