"""Runs whose worker is told to stop, as in every rolling deployment."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio.worker import Worker

from mainspring.embedded import Server
from mainspring.testing import events_named, serving
from support.tools import EFFECTS, slow


async def test_write_whose_worker_is_told_to_stop_has_an_unknown_outcome(server: Server) -> None:
    """A worker that shuts down under a write cuts it off: it is not retried, and not called an error."""
    replies = [{"calls": [{"tool": "slow", "arguments": {"key": "shutdown"}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[slow]) as case:
        stopping = Worker(
            case.client, task_queue="stopping", graceful_shutdown_timeout=timedelta(seconds=0.2)
        )
        async with stopping:
            run = await case.start(task_queue="stopping")
            while not EFFECTS["began shutdown"]:
                await asyncio.sleep(0.02)
        async with Worker(case.client, task_queue="stopping"):
            assert (await run.result()).answer == "ok"
            done = events_named(await case.events(run), "ToolCompleted")
    assert [event["status"] for event in done] == ["unknown"]
    assert EFFECTS["began shutdown"] == 1
