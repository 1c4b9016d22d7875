"""Telemetry of a run whose worker process is killed outright."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from temporalio.client import Client

from mainspring.client import get_run
from mainspring.embedded import Server
from mainspring.testing import configuration
from support.traced_worker import spans_in, start_worker

SECONDS_MAX = 40.0
SLOWLY = {"calls": [{"tool": "observe"}], "delay": 1.5}
LIMITS = {"model_timeout": "4s", "model_attempts": 20}
"""A model call that is lost is missed after two seconds, not fifteen."""


async def comes(what: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(SECONDS_MAX):
        while not what():
            await asyncio.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and wait until it is gone."""
    process.send_signal(signal.SIGKILL)
    process.wait()


async def test_run_that_outlives_its_worker_is_one_whole_trace(server: Server, tmp_path: Path) -> None:
    """Killed in mid-run, ended by another process: the run's span appears once, whole, with all its children.

    Decisions that only the first process saw are on it, and nothing hangs from a span that there is not.
    """
    replies = [{"calls": [{"tool": "observe"}]}, SLOWLY, {"text": "Done."}]
    config = configuration(tmp_path, replies, {"tools": ["observe"], "limits": LIMITS})
    spans, queue = tmp_path / "spans", f"queue-{uuid4().hex[:12]}"
    client = await Client.connect(server.address)
    started = await client.start_workflow(
        "AgentRun",
        {"agent": "tested", "prompt": "go"},
        id=f"run-{uuid4().hex[:12]}",
        task_queue=queue,
        task_timeout=timedelta(seconds=1),
    )
    run = get_run(client, started.id)
    first = start_worker(config, server.address, queue, spans)
    try:
        await comes(lambda: len(spans_in(spans)) == 2)
        await run.pause()
        await run.resume()
        await asyncio.sleep(0.2)
        before = [span["name"] for span in spans_in(spans)]
    finally:
        end(first)
    second = start_worker(config, server.address, queue, spans)
    try:
        await started.result()
        second.send_signal(signal.SIGINT)  # stopped, it tells of what has ended
        await asyncio.to_thread(second.wait)
    finally:
        end(second)
    found = spans_in(spans)
    [root] = [span for span in found if span["name"] == "invoke_agent tested"]
    children = [span for span in found if span is not root]
    assert before == ["chat default", "execute_tool observe"]
    assert root["parent_id"] is None
    assert {span["parent_id"] for span in children} == {root["context"]["span_id"]}
    assert {span["context"]["trace_id"] for span in children} == {root["context"]["trace_id"]}
    assert sorted(span["name"] for span in children) == [
        *["chat default"] * 3,
        *["execute_tool observe"] * 2,
    ]
    assert [event["name"] for event in root["events"]] == [
        f"mainspring.{name}" for name in ("exchange_started", "paused", "resumed", "exchange_ended")
    ]
    assert root["start_time"] <= min(span["start_time"] for span in children)
    assert root["end_time"] >= max(span["end_time"] for span in children)
