"""Large calls and large observations: the server ends a run that sends too much in one task."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from mainspring.embedded import Server
from mainspring.testing import activities_of, events_named
from mainspring.tools import tool
from support.chat_server import calling, chat_server, saying
from support.history import task_failures
from support.invariants import serving, transcript_of

ARGUMENT_BYTES = 250_000
RESULT_BYTES = 900_000
WHOLE_BYTES = 450_000


def assert_sound(history: WorkflowHistory) -> None:
    """No workflow task failed for a reason of ours.

    A server that holds back more than 2 MB of results during a task fails the task itself, without a word,
    and schedules it again.
    """
    assert not any(task_failures(history))


@tool(effects="write")
async def store(text: str) -> int:
    """Store a text.

    Args:
        text: It.
    """
    return len(text)


@tool(effects="read")
async def fetch(n: int, size: int) -> str:
    """Fetch a long text.

    Args:
        n: Which.
        size: How long, in characters.
    """
    return f"{n} " + "x" * size


async def test_five_calls_with_large_arguments_all_run(server: Server) -> None:
    """Five parallel calls of 250 KB each run, in waves, and the run answers."""
    calls = [("store", json.dumps({"text": f"{i}" * ARGUMENT_BYTES})) for i in range(5)]
    async with chat_server([calling(*calls), saying("stored")]) as provider:
        config = {"models": {"default": {"model": "openai-chat:m", "base_url": provider.base_url}}}
        async with serving(server.address, tools=[store], config=config) as case:
            run = await case.start()
            result = await run.result()
            entries = await transcript_of(case, run)
            history = await case.history(run)
    assert result.answer == "stored"
    seen = [entry["content"] for entry in entries if entry["kind"] == "observation"]
    assert seen == [ARGUMENT_BYTES] * 5
    assert activities_of(history).count(("store", "completed")) == 5
    assert_sound(history)


async def test_arguments_beyond_what_a_reply_may_hold_are_answered(server: Server) -> None:
    """Calls whose arguments do not fit in one reply have an error observation each, and do not run."""
    calls = [{"tool": "store", "arguments": {"text": "${last_observation}"}} for _ in range(9)]
    first = {"calls": [{"tool": "fetch", "arguments": {"n": 1, "size": WHOLE_BYTES}}]}
    agent = {"limits": {"spill_bytes": 500_000}}
    async with serving(
        server.address, replies=[first, {"calls": calls}, {"text": "ok"}], tools=[store, fetch], agent=agent
    ) as case:
        run = await case.start()
        assert (await run.result()).answer == "ok"
        done = events_named(await case.events(run), "ToolCompleted")
        assert_sound(await case.history(run))
    assert [event["tool"] for event in done] == ["fetch", *["store"] * 9]
    assert {event["status"] for event in done[1:]} == {"refused"}


@pytest.mark.parametrize("spill_bytes", [None, 500_000])
async def test_five_large_observations_do_not_end_the_run(server: Server, spill_bytes: int | None) -> None:
    """Five parallel observations of 900 KB are spilled; of 450 KB, kept whole where the agent wants that."""
    size = RESULT_BYTES if spill_bytes is None else WHOLE_BYTES
    calls = [{"tool": "fetch", "arguments": {"n": i, "size": size}} for i in range(5)]
    agent: dict[str, Any] = {"limits": {} if spill_bytes is None else {"spill_bytes": spill_bytes}}
    replies = [{"calls": calls}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[fetch], agent=agent) as case:
        run = await case.start()
        assert (await run.result()).answer == "ok"
        entries = await transcript_of(case, run)
        history = await case.history(run)
    seen = [entry for entry in entries if entry["kind"] == "observation"]
    assert [entry["content"].split(" ")[0] for entry in seen] == ["0", "1", "2", "3", "4"]
    if spill_bytes is None:
        assert all(entry["spilled"]["size"] > RESULT_BYTES for entry in seen)
        assert all(len(entry["content"]) < 4_096 for entry in seen)
    else:
        assert all(len(entry["content"]) > WHOLE_BYTES for entry in seen)
    assert_sound(history)


async def test_five_large_results_of_foreign_activities_do_not_end_the_run(server: Server) -> None:
    """Five parallel results of 900 KB of activities that are not ours are observations of a bounded size."""

    @activity.defn(name="Dump")
    async def dump(arguments: dict[str, Any]) -> str:
        return f"{arguments['n']} " + "y" * RESULT_BYTES

    declared = {
        "name": "other/dump",
        "description": "Dump.",
        "activity": "Dump",
        "task_queue": "dumps",
        "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "effects": "read",
    }
    calls = [{"tool": "other/dump", "arguments": {"n": i}} for i in range(5)]
    options = {
        "replies": [{"calls": calls}, {"text": "ok"}],
        "agent": {"tools": ["other/dump"]},
        "config": {"tools": {"activities": [declared]}},
    }
    plain = await Client.connect(server.address)
    async with (
        Worker(plain, task_queue="dumps", activities=[dump]),
        serving(server.address, **options) as case,
    ):
        run = await case.start()
        assert (await run.result()).answer == "ok"
        entries = await transcript_of(case, run)
        history = await case.history(run)
    seen = [entry for entry in entries if entry["kind"] == "observation"]
    assert [entry["content"].split(" ")[0] for entry in seen] == ["0", "1", "2", "3", "4"]
    assert all(len(entry["content"]) <= 16_384 for entry in seen)
    assert_sound(history)
