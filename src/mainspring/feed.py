"""The events of a run as one stream, through all of its Temporal runs.

Events are read by query, which writes nothing to history. A run that continued as new may hold only its
newest events; the older ones are asked of the executions before it, which answer also when they are closed.

Source: shared design, loop.md "Events"; temporal-facts.md 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from mainspring.channel import Channel, server_errors
from mainspring.run_errors import NoWorker

__all__ = ["Flight", "follow", "in_flight", "is_served"]

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 1.0
CHAIN_MAX = 10_000
TERMINAL = "Finished"
MODEL_ACTIVITY = "mainspring.call_model"
POLL_SECONDS = 75.0
"""An idle worker asks again every minute or so; the server remembers those that are gone for longer."""


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
class Flight:
    """What is in flight, as the server knows it.

    Args:
        text: The newest of what the model call under way has written.
        calls: Name and attempt, from 1, of each tool call.
    """

    text: str = ""
    calls: tuple[tuple[str, int], ...] = ()


async def in_flight(channel: Channel) -> Flight:
    """The calls under way and the live text, from heartbeats; it costs no history and needs no worker.

    Raises: UnknownRun, Unreachable.
    """
    pending = (await channel.describe()).raw_description.pending_activities
    text = ""
    calls: list[tuple[str, int]] = []
    for item in pending:
        name = item.activity_type.name
        if name == MODEL_ACTIVITY:
            text = await _live_text(channel.client, item)
        elif not name.startswith("mainspring."):
            calls.append((name, max(1, item.attempt)))
    return Flight(text, tuple(calls))


async def is_served(client: Client, task_queue: str) -> bool:
    """Whether a worker has asked that task queue for work lately.

    Raises: Unreachable.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    with server_errors(client):
        answer = await client.workflow_service.describe_task_queue(request)
    since = datetime.now(UTC) - timedelta(seconds=POLL_SECONDS)
    return any(poller.last_access_time.ToDatetime(UTC) > since for poller in answer.pollers)


async def _live_text(client: Client, pending: PendingActivityInfo) -> str:
    payloads = pending.heartbeat_details.payloads
    if not payloads:
        return ""
    details: Any = (await client.data_converter.decode(payloads))[0]
    return str(cast(dict[str, Any], details).get("text", "")) if isinstance(details, dict) else ""
