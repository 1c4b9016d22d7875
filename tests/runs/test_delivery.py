"""What people send whenever: delivered once and in order, or reported; nothing is lost, or half obeyed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, events_named, serving
from support.history import assert_sound
from support.tools import nap
from support.waiting import until

PATIENCE = 40
SLOW_TO_ARM: dict[str, Any] = {
    "agent": {"tools": ["mcp:*/*"], "budgets": {"turns": 3}},
    "config": {"mcp": {"mute": {"command": ["sleep", "30"], "start_timeout": 1.5}}},
}
"""A run that is still being armed for a second and a half."""

WFT_FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
THE_SERVERS_OWN = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
"""The server gives a task up and makes another when much arrives while it runs."""


async def words(case: Case, run: Any) -> list[str]:
    """What people said, as the transcript has it, without the prompt."""
    entries = await case.handle(run).query("transcript", {"from": 0, "limit": 1_000})
    return [entry["content"] for entry in entries if entry["kind"] == "user"][1:]


async def test_interruption_while_a_run_is_armed_ends_its_first_exchange(server: Server) -> None:
    """Nothing is paid for after a person said stop, however early."""
    async with serving(server.address, replies=[{"text": "never"}], **SLOW_TO_ARM) as case:
        run = await case.start()
        await run.interrupt()
        with pytest.raises(RunFailed) as failed:
            await asyncio.wait_for(run.result(), PATIENCE)
        assert_sound(await case.history(run))
    assert failed.value.result is not None
    assert (failed.value.result.outcome, failed.value.result.spend.model_calls) == ("interrupted", 0)


async def test_words_while_a_run_is_armed_are_delivered(server: Server) -> None:
    """Steering and a follow-up that come before the first turn reach the model, each in its place."""
    replies = [{"expect": {"contains": "s1"}, "text": "one"}, {"expect": {"contains": "f1"}, "text": "two"}]
    async with serving(server.address, replies=replies, **SLOW_TO_ARM) as case:
        run = await case.start()
        await case.handle(run).signal("follow_up", "f1")
        await run.steer("s1")
        result = await asyncio.wait_for(run.result(), PATIENCE)
        assert await words(case, run) == ["s1", "f1"]
    assert (result.answer, result.exchanges) == ("two", 2)


async def test_budget_is_not_extended_before_there_is_one(server: Server) -> None:
    """What would be forgotten at arming is refused; after it the same request is taken."""
    async with serving(server.address, replies=[{"text": "ok", "delay": 1}], **SLOW_TO_ARM) as case:
        run = await case.start()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await case.handle(run).execute_update("extend_budget", {"turns": 5})
        assert "armed" in str(refused.value.cause)
        await until(run, turn=1)
        assert (await run.extend_budget(turns=5))["turns"] == 8
        await asyncio.wait_for(run.result(), PATIENCE)


async def test_steering_with_interrupt_does_not_end_a_pause(server: Server) -> None:
    """A paused run takes the words and starts no call before it is resumed."""
    replies = [{"calls": [{"tool": "nap", "arguments": {"seconds": 0.3}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start()
        await until(run, status="acting")
        await run.pause()
        await until(run, status="waiting", awaiting="resume")
        await run.steer("also this", interrupt=True)
        await asyncio.sleep(0.8)
        state = await run.state()
        assert (state["turn"], state["status"], state["awaiting"]) == (1, "waiting", "resume")
        await run.resume()
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
        assert await words(case, run) == ["also this"]


async def test_interruption_ends_a_pause(server: Server) -> None:
    """A person who stops a paused exchange need not resume it first."""
    async with serving(server.address, replies=[{"text": "never", "delay": 5}]) as case:
        run = await case.start()
        await run.pause()
        await until(run, paused=True)
        await run.interrupt()
        with pytest.raises(RunFailed) as failed:
            await asyncio.wait_for(run.result(), PATIENCE)
    assert failed.value.result is not None
    assert failed.value.result.outcome == "interrupted"


@pytest.mark.parametrize("kind", ["steer", "follow_up"])
async def test_bursts_at_every_phase_are_delivered_once_and_in_order(server: Server, kind: str) -> None:
    """Five messages at a time, at random moments of many runs: each accepted one is read or reported."""
    chance = random.Random(20261130)
    nap_briefly = {"calls": [{"tool": "nap", "arguments": {"seconds": 0.05}}]}
    script = {"replies": [nap_briefly, {"text": "so far"}], "then": "repeat_last"}
    async with serving(server.address, replies=script, tools=[nap]) as case:

        async def one(moments: list[float]) -> None:
            run = await case.start()
            taken: list[str] = []
            for moment in moments:
                await asyncio.sleep(moment)
                for _ in range(5):
                    text = f"message {len(taken)}"
                    try:
                        await case.handle(run).signal(kind, text)
                    except RPCError:
                        break
                    taken.append(text)
            result = await asyncio.wait_for(run.result(), PATIENCE)
            assert [*await words(case, run), *result.unanswered] == taken
            assert_sound(await case.history(run))

        await asyncio.gather(*(one([chance.uniform(0, 0.25) for _ in range(4)]) for _ in range(12)))


async def test_rejected_and_accepted_messages_together_keep_their_order(server: Server) -> None:
    """What is not understood in the middle of a burst takes nothing else with it."""
    script = {"replies": [{"text": "ok", "delay": 0.4}], "then": "repeat_last"}
    async with serving(server.address, replies=script) as case:
        run = await case.start()
        for text in ("a", 7, "b", None, "c"):
            await case.handle(run).signal("steer", text)
        await asyncio.wait_for(run.result(), PATIENCE)
        assert await words(case, run) == ["a", "b", "c"]
        rejected = events_named(await case.events(run), "SignalRejected")
    assert len(rejected) == 2


async def test_flood_of_costly_words_is_bounded_and_delivered(server: Server) -> None:
    """Megabytes of Chinese in the queue: what is taken fits a workflow task, the rest is refused in words."""
    replies = [{"text": "hm", "delay": 2.0}, {"text": "ok"}]
    async with serving(server.address, replies=replies) as case:
        run = await case.start()
        await until(run, turn=1)
        for _ in range(8):
            await case.handle(run).signal("steer", "漢" * 320_000)
        result = await run.result()
        events = await case.events(run)
        failed = [
            event
            for event in (await case.history(run)).events
            if event.event_type == WFT_FAILED
            and event.workflow_task_failed_event_attributes.cause != THE_SERVERS_OWN
        ]
    taken = [event for event in events if event["event"] == "Steered"]
    refused = [event for event in events if event["event"] == "SignalRejected"]
    assert (len(taken), len(refused), result.outcome) == (4, 4, "completed")
    assert "queued" in str(refused[0]["reason"])
    assert not failed
