"""The events of a run as one stream, through all of its Temporal runs.

Events are read by query, which writes nothing to history. A run that continued as new may hold only its
newest events; the older ones are asked of the executions before it, which answer also when they are closed.

Source: shared design, loop.md "Events"; temporal-facts.md 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionDescription

from mainspring.channel import Channel, server_errors
from mainspring.run_errors import NoWorker

__all__ = [
    "POLL_SECONDS",
    "CallInFlight",
    "Flight",
    "follow",
    "in_flight",
    "is_served",
    "polled_before",
    "unserved",
]

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 1.0
CHAIN_MAX = 10_000
TERMINAL = "Finished"
MODEL_ACTIVITY = "mainspring.call_model"
POLL_SECONDS = 70.0
"""An idle worker asks again every minute; the server remembers one that is gone for five."""
UNTAKEN_SECONDS = 4.0
"""A task that nobody has taken for this long has no worker, whatever the server remembers of pollers."""


async def follow(channel: Channel, start: int = 0) -> AsyncGenerator[dict[str, Any], None]:
    """Events from seq `start` in their order, each once, until the run has ended.

    Raises: UnknownRun, Unreachable, Wedged; NoWorker, when the run is closed.
    """
    wanted = max(0, start)
    pause = PAUSE_SECONDS
    while True:
        closed = await channel.closed()  # asked before the events, so that the last ones cannot be missed
        page = await _page(channel, wanted, closed)
        if closed or (page and page[0]["seq"] > wanted):
            page = await _older(channel, wanted, page[0]["seq"] if page else None) + page
        for event in page:
            yield event
            wanted = event["seq"] + 1
            if event["event"] == TERMINAL:
                return
        if page:
            pause = PAUSE_SECONDS
        elif closed:
            return  # ended by the server: terminated, or timed out
        else:
            await asyncio.sleep(pause)
            pause = min(PAUSE_SECONDS_MAX, pause * 1.5)


async def _page(channel: Channel, wanted: int, closed: bool) -> list[dict[str, Any]]:
    try:
        page: list[dict[str, Any]] = await channel.query("events", wanted)
    except NoWorker:
        if closed:
            raise
        return []  # the run is open and loses nothing: following it is waiting with it
    return page


async def _older(channel: Channel, wanted: int, before: int | None) -> list[dict[str, Any]]:
    """Events from `wanted` up to `before`, exclusive (None: all), that earlier executions still hold."""
    found: list[dict[str, Any]] = []
    execution: str | None = None
    for _ in range(CHAIN_MAX):
        if before is not None and before <= wanted:
            break
        execution = await channel.execution_before(execution)
        if execution is None:
            break
        part = await _all_of(channel, execution, wanted, before)
        found = part + found
        before = part[0]["seq"] if part else before
    return found


async def _all_of(channel: Channel, execution: str, wanted: int, before: int | None) -> list[dict[str, Any]]:
    """What one execution holds of that range; pages are followed."""
    held: list[dict[str, Any]] = []
    while before is None or wanted < before:
        page = await channel.query("events", wanted, execution=execution)
        held += [event for event in page if before is None or event["seq"] < before]
        if not page:
            break
        wanted = page[-1]["seq"] + 1
    return held


@dataclass(frozen=True, slots=True)
class CallInFlight:
    """A tool call that has not ended.

    Args:
        id: As in the ledger.
        tool: Its activity's name.
        attempt: From 1.
        seconds: Since it was scheduled.
        task_queue: Where it waits; None once a worker has taken it.
    """

    id: str
    tool: str
    attempt: int = 1
    seconds: float = 0.0
    task_queue: str | None = None


@dataclass(frozen=True, slots=True)
class Flight:
    """What is in flight, as the server knows it.

    Args:
        text: The newest of what the model call under way has written.
        calls: The tool calls.
    """

    text: str = ""
    calls: tuple[CallInFlight, ...] = ()


async def in_flight(channel: Channel) -> Flight:
    """The calls under way and the live text, from heartbeats; it costs no history and needs no worker.

    Raises: UnknownRun, Unreachable.
    """
    described = await channel.describe()
    text = ""
    calls: list[CallInFlight] = []
    for item in described.raw_description.pending_activities:
        name = item.activity_type.name
        if name == MODEL_ACTIVITY:
            text = await _live_text(channel.client, item)
        elif not name.startswith("mainspring."):
            calls.append(_call(item, described.task_queue))
    return Flight(text, tuple(calls))


def _call(item: PendingActivityInfo, usual: str) -> CallInFlight:
    waits = item.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    queue = item.activity_options.task_queue.name or usual
    return CallInFlight(
        item.activity_id,
        item.activity_type.name,
        max(1, item.attempt),
        _age(item.scheduled_time),
        queue if waits and not item.last_started_time.seconds else None,
    )


async def unserved(channel: Channel, described: WorkflowExecutionDescription | None = None) -> str | None:
    """The task queue that keeps the run waiting since nobody serves it; None when somebody does.

    Raises: UnknownRun, Unreachable.
    """
    described = described or await channel.describe()
    task = described.raw_description.pending_workflow_task
    scheduled = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
    untaken = task.state == scheduled and _age(task.scheduled_time) > UNTAKEN_SECONDS
    if untaken or not await is_served(channel.client, described.task_queue):
        return described.task_queue
    return None


async def is_served(client: Client, task_queue: str, *, activities: bool = False) -> bool:
    """Whether a worker has asked that task queue for work lately.

    Raises: Unreachable.
    """
    before = await polled_before(client, task_queue, activities=activities)
    return before is not None and before <= POLL_SECONDS


async def polled_before(client: Client, task_queue: str, *, activities: bool = False) -> float | None:
    """Seconds since a worker last asked that task queue for work; None when none is remembered.

    A worker that is gone cannot be told from an idle one before `POLL_SECONDS` have passed.

    Raises: Unreachable.
    """
    kinds = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kinds[activities]
    )
    with server_errors(client):
        answer = await client.workflow_service.describe_task_queue(request)
    return min((_age(poller.last_access_time) for poller in answer.pollers), default=None)


def _age(since: Timestamp) -> float:
    return max(0.0, (datetime.now(UTC) - since.ToDatetime(UTC)).total_seconds())


async def _live_text(client: Client, pending: PendingActivityInfo) -> str:
    payloads = pending.heartbeat_details.payloads
    if not payloads:
        return ""
    details: Any = (await client.data_converter.decode(payloads))[0]
    return str(cast(dict[str, Any], details).get("text", "")) if isinstance(details, dict) else ""
