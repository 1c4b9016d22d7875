"""Runs whose worker process is killed outright, again and again."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from mainspring.client import Run, RunFailed, get_run
from mainspring.embedded import Server
from mainspring.feed import in_flight
from mainspring.plugin import MainspringPlugin
from mainspring.schemas.run import RunResult
from mainspring.testing import configuration, replay
from mainspring.tools import tool
from support.invariants import check_run, serving
from support.journal import effects_of
from support.tools import write
from support.worker_process import WorkerProcesses

TURNS = 30
KILLS = 20
AGENT = {
    "tools": ["note", "look"],
    "limits": {"model_timeout": "4s", "model_attempts": 20},
    "budgets": {"turns": TURNS + 1},
}
WORK: list[dict[str, Any]] = [
    {
        "calls": [{"tool": name, "arguments": {"n": "${call}"}} for name in ("note", "look")],
        "usage": {"input_tokens": 100, "output_tokens": 10},
        "repeat": TURNS - 1,
    },
    {"calls": [{"tool": "look", "arguments": {"n": 99}}], "usage": {"input_tokens": 100}},
    {"text": "Done: ${last_observation}", "usage": {"input_tokens": 100, "output_tokens": 10}},
]


@dataclass(frozen=True, slots=True)
class Stage:
    """A server, worker processes, and the file in which their tools take effect."""

    client: Client
    workers: WorkerProcesses
    journal: Path
    task_queue: str

    async def start(self, agent: str = "tested") -> Run[Any]:
        """Start a run whose workflow tasks are given up for lost after a second, not ten."""
        handle = await self.client.start_workflow(
            "AgentRun",
            {"agent": agent, "prompt": "go"},
            id=f"run-{uuid4().hex[:12]}",
            task_queue=self.task_queue,
            task_timeout=timedelta(seconds=1),
        )
        return get_run(self.client, handle.id)

    def turns_seen(self) -> int:
        """The newest turn whose effects are in the journal."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return max((int(line.split(" ")[2]) + 1 for line in lines), default=0)

    async def history(self, run: Run[Any]) -> WorkflowHistory:
        """The history of a run."""
        return await self.client.get_workflow_handle(run.id).fetch_history()


@asynccontextmanager
async def stage(
    server: Server, folder: Path, replies: Sequence[Mapping[str, Any]], agent: Mapping[str, Any] = AGENT
) -> AsyncGenerator[Stage]:
    """Everything but a run and a serving worker."""
    config = configuration(folder, replies, agent, {"state_dir": str(folder / "state")})
    journal = folder / "journal"
    task_queue = f"queue-{uuid4().hex[:12]}"
    client = await Client.connect(server.address, plugins=[MainspringPlugin()])
    with WorkerProcesses(config, server.address, task_queue, journal).standing_by() as workers:
        yield Stage(client, workers, journal, task_queue)


async def check(on: Stage, run: Run[Any]) -> tuple[list[dict[str, Any]], WorkflowHistory]:
    """The laws of every run, read from one that has ended; its events and its history, which replays."""
    events = [event async for event in run.events()]
    entries = [entry.model_dump(mode="json") for entry in await run.transcript()]
    check_run(events, entries, await run.state())
    history = await on.history(run)
    await replay(history)
    return events, history


def attempts_of(history: WorkflowHistory) -> dict[str, tuple[str, int]]:
    """Type and attempts of each activity that was started, by its id."""
    scheduled = {}
    found = {}
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes
        elif event.HasField("activity_task_started_event_attributes"):
            started = event.activity_task_started_event_attributes
            of = scheduled[started.scheduled_event_id]
            found[of.activity_id] = (of.activity_type.name, started.attempt)
    return found


async def test_worker_killed_twenty_times_repeats_nothing_that_was_done(
    server: Server, tmp_path: Path
) -> None:
    """A run of 30 turns whose worker is killed 20 times answers as if nothing had been.

    Every call has one observation, no completed call ran again, and a write that was lost says so and ran
    once at most.
    """
    seed = int(os.environ.get("MAINSPRING_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(TURNS), KILLS))
    async with stage(server, tmp_path, WORK, AGENT) as on:
        run = await on.start()
        on.workers.start()
        for moment in moments:
            await _turn_reached(on, run, moment)
            await asyncio.sleep(chance.uniform(0, 0.2))
            on.workers.kill()
            on.workers.start()
        result = await run.result()
        events, history = await check(on, run)

    assert on.workers.killed == KILLS
    assert (result.outcome, result.answer) == ("completed", "Done: seen 99")
    assert result.spend.model_calls == TURNS + 1
    assert result.spend.input_tokens == 100 * (TURNS + 1)
    assert result.spend.tool_calls == 2 * (TURNS - 1) + 1
    _check_effects(run, events, history, effects_of(on.journal))


async def _turn_reached(on: Stage, run: Run[Any], turn: int) -> None:
    deadline = time.monotonic() + 20
    while on.turns_seen() < turn:
        assert time.monotonic() < deadline, f"turn {turn} never came; the worker wrote:\n{on.workers.log}"
        await asyncio.sleep(0.01)


def _check_effects(
    run: Run[Any], events: Sequence[Mapping[str, Any]], history: WorkflowHistory, effects: Mapping[str, int]
) -> None:
    """What the tools did is what the run says they did."""
    attempts = attempts_of(history)
    completed = [event for event in events if event["event"] == "ToolCompleted"]
    for event in completed:
        times = effects.get(f"{run.id}:{event['call_id']}", 0)
        tool, tried = attempts[event["call_id"]]
        assert tool == event["tool"]
        if tool == "note":
            assert tried == 1
            assert event["status"] in ("ok", "unknown")
            assert times == 1 if event["status"] == "ok" else times <= 1
        else:
            assert event["status"] == "ok"
            assert 1 <= times <= tried
    assert sum(effects.values()) == sum(
        effects.get(f"{run.id}:{event['call_id']}", 0) for event in completed
    ), "a call took effect that the run knows nothing of"


async def test_undisturbed_run_answers_the_same(server: Server, tmp_path: Path) -> None:
    """The same script without a kill: the same answer and spend, and each call took effect once."""
    async with stage(server, tmp_path, WORK, AGENT) as on:
        run = await on.start()
        on.workers.start()
        result = await run.result()
        await check(on, run)
    assert (result.outcome, result.answer) == ("completed", "Done: seen 99")
    assert result.spend.model_calls == TURNS + 1
    assert result.spend.input_tokens == 100 * (TURNS + 1)
    assert list(effects_of(on.journal).values()) == [1] * (2 * (TURNS - 1) + 1)


async def test_worker_killed_during_a_model_call_costs_one_attempt(server: Server, tmp_path: Path) -> None:
    """The call is made again, once, and billed once; what an earlier attempt was billed is not forgotten."""
    billed = {"status": 500, "usage": {"input_tokens": 7, "output_tokens": 1}}
    replies = [
        {
            "fails": [billed],
            "text": "a slow answer",
            "delay": 1.5,
            "usage": {"input_tokens": 50, "output_tokens": 5},
        }
    ]
    async with stage(server, tmp_path, replies) as on:
        run = await on.start()
        on.workers.start()
        await _writing(run)
        on.workers.kill()
        on.workers.start()
        result = await run.result()
        _, history = await check(on, run)
    tried = [item for item in attempts_of(history).values() if item[0] == "mainspring.call_model"]
    assert tried == [("mainspring.call_model", 3)]
    assert result.answer == "a slow answer"
    assert _spend(result) == (1, 57, 6)


def _spend(result: RunResult) -> tuple[int, int, int]:
    return result.spend.model_calls, result.spend.input_tokens, result.spend.output_tokens


async def _writing(run: Run[Any]) -> None:
    """Wait until a model call under way has shown what it has written so far."""
    for _ in range(400):
        if (await in_flight(run.channel)).text:
            return
        await asyncio.sleep(0.025)
    raise AssertionError("no model call ever showed text")


async def test_run_goes_on_when_a_worker_is_back(server: Server, tmp_path: Path) -> None:
    """With nobody to serve it for longer than any time-out of its calls, a run waits, and then goes on."""
    agent = {**AGENT, "limits": {"model_timeout": "1s"}}
    replies = [{"calls": [{"tool": "look", "arguments": {"n": "${n}"}}], "repeat": 3}, {"text": "ok"}]
    async with stage(server, tmp_path, replies, agent) as on:
        run = await on.start()
        on.workers.start()
        await _turn_reached(on, run, 1)
        on.workers.kill()
        await asyncio.sleep(4)
        on.workers.start()
        result = await run.result()
        events, _ = await check(on, run)
    assert (result.outcome, result.answer) == ("completed", "ok")
    assert [event["status"] for event in events if event["event"] == "ToolCompleted"] == ["ok"] * 3


async def test_call_that_no_worker_takes_waits_for_one(server: Server) -> None:
    """A model call and a tool call that wait for a worker longer than they may run are run when one comes."""
    agent = {"limits": {"model_timeout": "2s"}}
    brief = tool(effects="write", timeout=2, name="write")(write.function)
    replies = [{"calls": [{"tool": "write", "arguments": {"key": "late"}}]}, {"text": "${last_observation}"}]
    uncached = {"max_cached_workflows": 0}
    options = {"replies": replies, "tools": [brief], "agent": agent, "no_remote_activities": True}
    async with serving(server.address, **options, **uncached) as case:

        @asynccontextmanager
        async def activities() -> AsyncGenerator[None]:
            plugin = MainspringPlugin.from_file(case.folder / "mainspring.yaml", tools=[brief])
            client = await Client.connect(server.address, plugins=[plugin])
            async with Worker(client, task_queue=case.task_queue, **uncached):
                yield

        run = await case.start()
        await run.pause()
        async with activities():  # arming
            await _paused(run)
        await run.resume()
        await asyncio.sleep(2.5)
        await run.pause()
        async with activities():  # the model call
            await _paused(run)
        await run.resume()
        await asyncio.sleep(2.5)
        async with activities():  # the tool call
            result = await run.result()
    assert (result.answer, result.spend.turns) == ("wrote late", 2)


async def _paused(run: Run[Any]) -> None:
    async with asyncio.timeout(20):
        while (await run.state())["awaiting"] != "resume":
            await asyncio.sleep(0.02)


async def test_model_that_hangs_is_asked_once(server: Server) -> None:
    """A call that is alive to its time-out is not made again: the run is told within one time-out."""
    agent = {"limits": {"model_timeout": "1s"}}
    async with serving(server.address, replies=[{"text": "never", "delay": 60}], agent=agent) as case:
        run = await case.start()
        began = time.monotonic()
        with pytest.raises(RunFailed) as failed:
            await run.result()
        took = time.monotonic() - began
        history = await case.history(run)
    assert failed.value.result.outcome == "refused"
    assert [attempt for kind, attempt in attempts_of(history).values() if kind != "mainspring.arm"] == [1]
    assert took < 10
