"""Cancellation at any moment ends a run Cancelled; what a tool did by then is recorded."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from mainspring.client import RunCancelled
from mainspring.embedded import Server
from mainspring.testing import activities_of, events_named, serving
from mainspring.tools import ToolContext, tool
from support.history import assert_sound, task_failures
from support.tools import nap

PATIENCE = 60
RUNS = 60


@tool(effects="write")
async def stubborn(seconds: float) -> str:
    """Take some time, whatever anybody says.

    Args:
        seconds: How much.
    """
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return "done anyway"


@tool(effects="read", heartbeat=1.0)
def sleeps_in_a_thread(seconds: float, context: ToolContext) -> str:
    """Take some time in a thread.

    Args:
        seconds: How much.
        context: Given by the engine.
    """
    return "cancelled" if context.wait_cancelled(seconds) else "slept"


async def test_run_that_is_cancelled_at_any_moment_ends_cancelled(server: Server) -> None:
    """60 runs of short calls, each cancelled once at a random moment: all end so, every call answered."""
    chance = random.Random(620)
    calls = [{"tool": "nap", "arguments": {"seconds": 0.05}}, {"tool": "nap", "arguments": {"seconds": 0.1}}]
    script = {"replies": [{"text": "on", "calls": calls}], "then": "repeat_last"}
    agent = {"budgets": {"turns": 1_000}}
    async with serving(server.address, replies=script, tools=[nap], agent=agent) as case:

        async def one(moment: float) -> None:
            run = await case.start()
            await asyncio.sleep(moment)
            await run.cancel()
            with pytest.raises(RunCancelled):
                await asyncio.wait_for(run.result(), PATIENCE)
            assert task_failures(await case.history(run)) == []
            events = await case.events(run)
            assert [event["event"] for event in events].count("Finished") == bool(events)
            entries = await case.handle(run).query("transcript", {"from": 0, "limit": 10_000})
            asked = [call["id"] for entry in entries for call in entry.get("calls", [])]
            assert asked == [entry["call_id"] for entry in entries if entry["kind"] == "observation"]

        for _ in range(3):
            await asyncio.gather(*(one(chance.uniform(0, 1.0)) for _ in range(RUNS // 3)))


async def test_cancelled_while_it_is_armed(server: Server) -> None:
    """A run that never got to its first turn has a first and a last event too."""
    config = {"mcp": {"mute": {"command": ["sleep", "30"], "start_timeout": 3}}}
    async with serving(
        server.address, replies=[{"text": "ok"}], agent={"tools": ["mcp:*/*"]}, config=config
    ) as case:
        run = await case.start()
        await asyncio.sleep(0.7)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await asyncio.wait_for(run.result(), PATIENCE)
        events = await case.events(run)
    assert [event["event"] for event in events] == ["RunStarted", "Finished"]
    assert events[-1]["outcome"] == "cancelled"


async def test_result_of_a_tool_that_ignores_the_cancellation_is_recorded(server: Server) -> None:
    """It returns within the grace: its result is in the transcript, and then the run ends Cancelled."""
    replies = [{"calls": [{"tool": "stubborn", "arguments": {"seconds": 2.5}}]}]
    async with serving(server.address, replies=replies, tools=[stubborn]) as case:
        run = await case.start()
        while (await run.state())["status"] != "acting":
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await asyncio.wait_for(run.result(), PATIENCE)
        entries = await run.transcript()
        assert_sound(await case.history(run))
        assert activities_of(await case.history(run))[-1] == ("stubborn", "completed")
    assert entries[-1].content == "done anyway"


async def test_tool_that_outlasts_the_grace_does_not_hold_the_run(server: Server) -> None:
    """The run ends Cancelled after the grace, and says that the outcome is unknown."""
    agent = {"limits": {"cancel_grace": 0.5}}
    replies = [{"calls": [{"tool": "stubborn", "arguments": {"seconds": 3.5}}]}]
    async with serving(server.address, replies=replies, tools=[stubborn], agent=agent) as case:
        run = await case.start()
        while (await run.state())["status"] != "acting":
            await asyncio.sleep(0.05)
        began = time.monotonic()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await asyncio.wait_for(run.result(), PATIENCE)
        took = time.monotonic() - began
        entries = await run.transcript()
    assert took < 3
    assert "unknown" in str(entries[-1].content).lower()


async def test_call_in_a_thread_outlives_its_heartbeat_time_out_and_hears_of_a_cancellation(
    server: Server,
) -> None:
    """A tool of 3 s with a heartbeat time-out of 1 s completes; a second one is cancelled soon."""
    calls: list[dict[str, Any]] = [
        {"calls": [{"tool": "sleeps_in_a_thread", "arguments": {"seconds": seconds}}]} for seconds in (3, 60)
    ]
    async with serving(server.address, replies=calls, tools=[sleeps_in_a_thread]) as case:
        run = await case.start()
        async with asyncio.timeout(PATIENCE):
            while (await run.state())["turn"] < 2 or (await run.state())["status"] != "acting":
                await asyncio.sleep(0.05)
        began = time.monotonic()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await asyncio.wait_for(run.result(), PATIENCE)
        took = time.monotonic() - began
        done = events_named(await case.events(run), "ToolCompleted")
        ran = activities_of(await case.history(run))
    assert took < 6
    assert done[0]["status"] == "ok"
    assert ran.count(("sleeps_in_a_thread", "completed")) >= 1
