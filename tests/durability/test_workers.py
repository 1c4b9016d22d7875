"""Which worker serves a run, and what it still remembers, changes nothing but the number of queries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from mainspring.client import Run, get_run
from mainspring.embedded import Server
from mainspring.plugin import MainspringPlugin
from mainspring.testing import Case, replay
from mainspring.tools import tool
from support.invariants import check_run, serving, transcript_of
from support.tools import broken, observe

LONG = "A line of a long text that is no longer small. " * 100
TURNS = 12
REPLIES: list[dict[str, Any]] = [
    {
        "text": LONG + "${n}",
        "calls": [
            {"tool": "observe", "arguments": {"i": "${n}"}},
            {"tool": "recite", "arguments": {"n": "${n}"}},
            {"tool": "broken", "arguments": {"why": "no luck"}},
            {"tool": "unheard_of"},
        ],
        "repeat": TURNS,
    },
    {"expect": {"messages_min": 2 * TURNS + 1, "contains": LONG + "0"}, "text": "${last_observation}"},
]


@tool(effects="read")
async def recite(n: int) -> str:
    """Say something long.

    Args:
        n: Which.
    """
    return f"{n}: " + LONG


TOOLS = [observe, recite, broken]


@asynccontextmanager
async def another(case: Case, **options: Any) -> AsyncGenerator[MainspringPlugin]:
    """One more worker of the case, with a process cache of its own, which is what another process has."""
    plugin = MainspringPlugin(case.plugin.config, tools=TOOLS)
    client = await Client.connect(case.client.service_client.config.target_host, plugins=[plugin])
    async with Worker(client, task_queue=case.task_queue, **options):
        yield plugin


def queries(plugin: MainspringPlugin) -> int:
    """How often the activities of a worker asked a run."""
    return plugin.services.cache.queries


def unnamed(entries: Sequence[Any]) -> list[Any]:
    """Entries without what is a run's own: the beginning of its ids."""
    calls = [call["id"] for entry in entries for call in entry.get("calls", [])]
    prefix = calls[0].partition("-")[0]
    anonymous: list[Any] = json.loads(json.dumps(entries).replace(f"{prefix}-", "-"))
    return anonymous


async def test_worker_that_did_it_all_asks_nothing(server: Server) -> None:
    """With one worker no model call asks the run for anything, however long its texts are."""
    async with serving(server.address, replies=REPLIES, tools=TOOLS) as case:
        result = await case.run()
        asked = queries(case.plugin)
    assert (result.outcome, asked) == ("completed", 0)


async def test_two_workers_make_the_transcript_that_one_makes(server: Server) -> None:
    """Shared between two process caches, a run assembles the same requests and the same transcript.

    A worker keeps the activities of its own workflow tasks to itself where it can; here it may not.
    """
    apart = {"disable_eager_activity_execution": True}
    async with serving(server.address, replies=REPLIES, tools=TOOLS, **apart) as case:
        alone = await case.start()
        await alone.result()
        async with another(case, **apart) as second:
            runs = [await case.start() for _ in range(4)]
            results = [await run.result() for run in runs]
            asked = queries(case.plugin) + queries(second)
            shared = [unnamed(await transcript_of(case, run)) for run in runs]
        whole = unnamed(await transcript_of(case, alone))
    assert {result.outcome for result in results} == {"completed"}
    assert shared == [whole] * 4
    assert 0 < asked <= 2 * 4 * (TURNS + 1)


async def test_worker_that_takes_over_reads_the_run_once(server: Server) -> None:
    """A process that never saw the run asks for the arming record and the transcript, and nothing more."""
    async with serving(server.address, replies=REPLIES, tools=TOOLS) as case:
        alone = await case.start()
        await alone.result()
        whole = unnamed(await transcript_of(case, alone))
        queue = f"handed-over-{uuid4().hex[:8]}"
        first, second = case, Case(case.client, case.plugin, queue, case.folder)
        async with another(second, max_cached_workflows=0):
            run = await second.start()
            await _turn_reached(run, 5)
            await run.pause()
            await _paused(run)
        async with another(second, max_cached_workflows=0) as plugin:
            await run.resume()
            assert (await run.result()).outcome == "completed"
            asked = queries(plugin)
            entries = await transcript_of(first, run)
            check_run(await second.events(run), entries, await run.state())
        await replay(await second.history(run))
    assert unnamed(entries) == whole
    assert asked == 2


async def _turn_reached(run: Run[Any], turn: int) -> None:
    async with asyncio.timeout(20):
        while (await run.state())["turn"] < turn:
            await asyncio.sleep(0.01)


async def _paused(run: Run[Any]) -> None:
    async with asyncio.timeout(20):
        while (await run.state())["awaiting"] != "resume":
            await asyncio.sleep(0.01)


async def test_run_works_without_a_workflow_cache(server: Server) -> None:
    """Replayed from its start at every workflow task, a run is the same and its model calls ask nothing."""
    async with serving(server.address, replies=REPLIES, tools=TOOLS) as case:
        alone = await case.start()
        await alone.result()
        whole = unnamed(await transcript_of(case, alone))
    async with serving(server.address, replies=REPLIES, tools=TOOLS, max_cached_workflows=0) as case:
        run = await case.start()
        assert (await run.result()).outcome == "completed"
        assert unnamed(await transcript_of(case, run)) == whole
        assert queries(case.plugin) == 0


def fork_point(history: WorkflowHistory, turn: int) -> int:
    """The workflow task that scheduled the model call of a turn: where a run can be forked."""
    found = [
        event.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
        and event.activity_task_scheduled_event_attributes.activity_type.name == "mainspring.call_model"
    ]
    return found[turn - 1]


async def test_forked_run_goes_on_from_its_turn(server: Server) -> None:
    """Reset to turn 3, a run keeps what came before, and the rest is new.

    Its worker still holds the abandoned rest under the same ids: the digest tells them apart.
    """
    numbers = count()

    @tool(effects="read")
    async def ticket() -> str:
        """Draw a number."""
        return f"number {next(numbers)}"

    replies = [{"calls": [{"tool": "ticket"}], "repeat": 6}, {"text": "${last_observation}"}]
    async with serving(server.address, replies=replies, tools=[ticket]) as case:
        run = await case.start()
        assert (await run.result()).answer == "number 5"
        before = await transcript_of(case, run)
        history = await case.history(run)
        assert queries(case.plugin) == 0
        answer = await case.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=case.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run.id, run_id=history.run_id),
                reason="fork",
                request_id=uuid4().hex,
                workflow_task_finish_event_id=fork_point(history, 3),
            )
        )
        forked = get_run(case.client, run.id)
        assert (await forked.result()).answer == "number 9"
        after = await transcript_of(case, forked)
        asked = queries(case.plugin)
    assert answer.run_id != history.run_id
    assert after[:5] == before[:5]
    assert [entry["content"] for entry in after if entry["kind"] == "observation"] == [
        "number 0",
        "number 1",
        "number 6",
        "number 7",
        "number 8",
        "number 9",
    ]
    assert asked == 1
