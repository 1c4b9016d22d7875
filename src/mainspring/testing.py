"""Test agents as they run: a real Temporal server, a worker, a scripted model, and the history replayed.

    async with serving(server.address, replies=[{"text": "Hello."}]) as case:
        result = await case.run("Say hello")
    assert result.answer == "Hello."

On leaving the block every run that was started is replayed from its history with no cache: a run that does
not replay fails the test.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, Worker

from mainspring.activities.deltas import DeltaSink
from mainspring.activities.functions import ToolFunction
from mainspring.client import Run, get_run, start_run
from mainspring.plugin import MainspringPlugin
from mainspring.schemas.base import JsonValue
from mainspring.schemas.run import RunResult
from mainspring.telemetry import Providers

__all__ = ["Case", "activities_of", "configuration", "events_named", "replay", "serving"]

AGENT = "tested"


@dataclass(slots=True)
class Case:
    """A worker that serves one agent, and the runs that were started on it."""

    client: Client
    plugin: MainspringPlugin
    task_queue: str
    folder: Path
    started: list[str] = field(default_factory=list[str])

    async def start(self, prompt: str = "go", **options: Any) -> Run[Any]:
        """Start a run of the agent; `options` are those of `start_run`."""
        given: dict[str, Any] = {
            "agent": AGENT,
            "id": f"run-{uuid4().hex[:12]}",
            "task_queue": self.task_queue,
            **options,
        }
        run: Run[Any] = await start_run(self.client, prompt=prompt, **given)
        self.started.append(run.id)
        return run

    async def run(self, prompt: str = "go", **options: Any) -> RunResult:
        """Start a run and wait for its result.

        Raises: RunFailed, RunCancelled.
        """
        return await (await self.start(prompt, **options)).result()

    def handle(self, run: Run[Any] | str) -> WorkflowHandle[Any, Any]:
        """The plain Temporal handle of a run."""
        return self.client.get_workflow_handle(run if isinstance(run, str) else run.id)

    async def events(self, run: Run[Any]) -> list[dict[str, Any]]:
        """Every event of a run so far."""
        found: list[dict[str, Any]] = []
        while True:
            start = found[-1]["seq"] + 1 if found else 0
            page: list[dict[str, Any]] = await self.handle(run).query("events", start)
            if not page:
                return found
            found += page

    async def history(self, run: Run[Any] | str) -> WorkflowHistory:
        """The history of a run."""
        return await self.handle(run).fetch_history()

    def again(self, run_id: str) -> Run[Any]:
        """A run by its id."""
        return get_run(self.client, run_id)


def configuration(
    folder: Path,
    replies: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    agent: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a configuration with one agent, `tested`, on a scripted model; the file's path.

    Args:
        folder: Where it is written.
        replies: The script's replies, or a whole script.
        agent: Keys of the agent.
        config: Other keys of the configuration.
    """
    script = dict(replies) if isinstance(replies, Mapping) else {"replies": list(replies)}
    (folder / "script.yaml").write_text(yaml.safe_dump(script, allow_unicode=True), encoding="utf-8")
    whole: dict[str, Any] = {"files": None, **(config or {})}
    whole["models"] = {"default": {"script": "script.yaml"}, **whole.get("models", {})}
    whole["agents"] = {AGENT: {"instructions": "Do it.", **(agent or {})}, **whole.get("agents", {})}
    path = folder / "mainspring.yaml"
    path.write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8")
    return path


@asynccontextmanager
async def serving(
    address: str,
    *,
    replies: Sequence[Mapping[str, Any]] | Mapping[str, Any] = (),
    tools: Sequence[ToolFunction] = (),
    agent: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    replays: bool = True,
    sandbox: bool = True,
    deltas: DeltaSink | None = None,
    telemetry: Providers | None = None,
    **worker: Any,
) -> AsyncGenerator[Case]:
    """Serve one agent on a queue of its own; on leaving, replay every run that was started.

    Args:
        address: Of a Temporal server.
        replies: What the scripted model says.
        tools: `@tool` functions; the agent may use all of them unless `agent` names others.
        agent: Keys of the agent, as in the configuration.
        config: Other keys of the configuration.
        files: Text of other files beside it, by name.
        replays: Whether to replay.
        sandbox: Run and replay in Temporal's sandbox, which catches clocks, chance and files.
        deltas: A sink for every piece of a reply.
        telemetry: Where telemetry goes.
        worker: Options of the Temporal worker.
    """
    with tempfile.TemporaryDirectory(prefix="mainspring-") as name:
        folder = Path(name)
        for beside, text in (files or {}).items():
            (folder / beside).write_text(text, encoding="utf-8")
        chosen = {"tools": [tool.name for tool in tools], **(agent or {})}
        path = configuration(folder, replies, chosen, config)
        plugin = MainspringPlugin.from_file(
            path, tools=tools, sandbox=sandbox, deltas=deltas, telemetry=telemetry
        )
        client = await Client.connect(address, plugins=[plugin])
        case = Case(client, plugin, f"queue-{uuid4().hex[:12]}", folder)
        async with Worker(client, task_queue=case.task_queue, **worker):
            yield case
            histories = [await case.history(run) for run in case.started] if replays else []
        for history in histories:
            await replay(history, plugin)


async def replay(history: WorkflowHistory, plugin: MainspringPlugin | None = None) -> None:
    """Replay one history in a fresh state.

    Raises: what the replay found: a non-determinism error, most often.
    """
    replayer = Replayer(workflows=[], plugins=[plugin or MainspringPlugin()])
    await replayer.replay_workflow(history)


def activities_of(history: WorkflowHistory) -> list[tuple[str, str]]:
    """Every activity of a history in the order of scheduling: its type, and how it ended.

    How: `completed`, `failed`, `timed_out`, `cancelled`, or `open`.
    """
    scheduled: dict[int, str] = {}
    ended: dict[int, str] = {}
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            attributes = event.activity_task_scheduled_event_attributes
            scheduled[event.event_id] = attributes.activity_type.name
        for kind, name in _ENDS.items():
            if event.event_type == kind:
                ended[getattr(event, f"activity_task_{name}_event_attributes").scheduled_event_id] = name
    spelt = {"canceled": "cancelled"}
    return [(kind, spelt.get(ended.get(at, "open"), ended.get(at, "open"))) for at, kind in scheduled.items()]


_ENDS = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: "completed",
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "failed",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "timed_out",
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: "canceled",
}


def events_named(events: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, JsonValue]]:
    """The events of these names, without sequence number and time."""
    return [
        {key: value for key, value in event.items() if key not in ("seq", "at")}
        for event in events
        if event["event"] in names
    ]
