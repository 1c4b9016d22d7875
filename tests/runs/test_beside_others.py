"""The plugin beside a user's own workflows, activities, plugins, converters and codecs: all keep theirs."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadCodec
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from mainspring.client import start_run
from mainspring.embedded import Server
from mainspring.plugin import MainspringPlugin
from mainspring.testing import configuration, replay, serving
from mainspring.tools import tool
from support.history import assert_sound, payloads_of
from support.tools import observe

PATIENCE = 40
LOOK = [{"calls": [{"tool": "observe", "arguments": {"i": 5}}]}, {"text": "saw ${last_observation}"}]


@dataclasses.dataclass
class Order:
    """A value of the user's."""

    item: str
    count: int = 1


@activity.defn(name="Pack")
async def pack(order: Order) -> Order:
    """An activity of the user's, with their own types."""
    return dataclasses.replace(order, count=order.count + 1)


@workflow.defn(name="Ship")
class Ship:
    """A workflow of the user's, which asks an agent and calls their activity."""

    @workflow.run
    async def run(self, order: Order) -> dict[str, Any]:
        """Run it."""
        packed: Order = await workflow.execute_activity(
            "Pack", order, result_type=Order, start_to_close_timeout=timedelta(seconds=10)
        )
        told = await workflow.execute_child_workflow("AgentRun", {"agent": "tested", "prompt": "look"})
        return {"count": packed.count, "answer": told["answer"]}


@activity.defn(dynamic=True)
async def first_dynamic(args: Sequence[RawValue]) -> str:
    """A dynamic activity of the user's."""
    return f"first: {activity.info().activity_type}"


@activity.defn(dynamic=True)
def second_dynamic(args: Sequence[RawValue]) -> str:
    """Another one, synchronous."""
    return f"second: {activity.info().activity_type}"


@workflow.defn(name="CallAnything")
class CallAnything:
    """A workflow of the user's that relies on their dynamic activity."""

    @workflow.run
    async def run(self, name: str) -> str:
        """Run it."""
        result: str = await workflow.execute_activity(name, start_to_close_timeout=timedelta(seconds=10))
        return result


class Mirror(PayloadCodec):
    """A codec of the user's: what it encodes, only it can read."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Hide."""
        return [
            Payload(metadata={"encoding": b"binary/mirror"}, data=p.SerializeToString()[::-1])
            for p in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Show."""
        return [
            Payload.FromString(p.data[::-1]) if p.metadata.get("encoding") == b"binary/mirror" else p
            for p in payloads
        ]


class Theirs(DefaultPayloadConverter):
    """A payload converter of the user's."""


@asynccontextmanager
async def plugged(folder: Path, replies: Any = LOOK, **more: Any) -> AsyncIterator[MainspringPlugin]:
    """A plugin of a configuration with one agent that may observe."""
    folder.mkdir(exist_ok=True)
    agent = {"tools": more.pop("patterns", ["observe"])}
    yield MainspringPlugin.from_file(configuration(folder, replies, agent, more), tools=[observe])


CONVERTERS: dict[str, DataConverter | None] = {
    "none": None,
    "pydantic": pydantic_data_converter,
    "default": DataConverter(),
    "codec": dataclasses.replace(DataConverter(), payload_codec=Mirror()),
    "payload converter": DataConverter(payload_converter_class=Theirs),
}


@pytest.mark.filterwarnings("ignore:The `parse_obj` method")  # the SDK's own way with pydantic models
@pytest.mark.parametrize("kind", CONVERTERS)
async def test_users_workflow_activity_plugin_and_converter_stay(
    server: Server, tmp_path: Path, kind: str
) -> None:
    """Their workflow runs with their types, asks our agent as a child; their plugin and codec stay."""
    queue = f"beside-{uuid4().hex[:8]}"
    theirs = SimplePlugin("theirs", activities=[pack], workflows=[Ship])
    converter = CONVERTERS[kind]
    given = {} if converter is None else {"data_converter": converter}
    async with plugged(tmp_path) as plugin:
        client = await Client.connect(server.address, plugins=[theirs, plugin], **given)
        async with Worker(client, task_queue=queue):
            handle = await client.start_workflow(
                "Ship", Order(item="book"), id=f"ship-{uuid4().hex[:8]}", task_queue=queue
            )
            assert await asyncio.wait_for(handle.result(), PATIENCE) == {
                "count": 2,
                "answer": "saw observation 5",
            }
            run = await start_run(client, agent="tested", prompt="look", task_queue=queue)
            assert (await run.result()).answer == "saw observation 5"
            assert (await run.state())["outcome"] == "completed"
            raw = await Client.connect(server.address)
            history = await raw.get_workflow_handle(run.id).fetch_history()
    encodings = {p.metadata["encoding"] for event in history.events for p in payloads_of(event)}
    hidden = converter is not None and converter.payload_codec is not None
    # Search attributes are the server's to read, and are never encoded.
    assert (b"binary/mirror" in encodings) == hidden
    if not hidden:
        assert_sound(history)
        await replay(history, plugin)


async def test_dynamic_activities_of_two_workers_stay_apart(server: Server, tmp_path: Path) -> None:
    """Two workers of one plugin each serve their own dynamic activity for names that are not ours."""
    queues = [f"dynamic-{uuid4().hex[:8]}" for _ in range(3)]
    async with plugged(tmp_path) as plugin:
        client = await Client.connect(server.address, plugins=[plugin])
        workflows = [CallAnything]
        async with (
            Worker(client, task_queue=queues[0], workflows=workflows, activities=[first_dynamic]),
            Worker(client, task_queue=queues[1], workflows=workflows, activities=[second_dynamic]),
            Worker(client, task_queue=queues[2]),
        ):
            told = [
                await asyncio.wait_for(
                    client.execute_workflow("CallAnything", "Odd", id=f"any-{queue}", task_queue=queue),
                    PATIENCE,
                )
                for queue in queues[:2]
            ]
            runs = [await start_run(client, agent="tested", prompt="x", task_queue=queue) for queue in queues]
            answers = {(await asyncio.wait_for(run.result(), PATIENCE)).answer for run in runs}
    assert told == ["first: Odd", "second: Odd"]
    assert answers == {"saw observation 5"}


TIME = {"mcp": {"time": {"command": ["mcp-server-time", "--local-timezone", "UTC"]}}}
ASK_TIME = [
    {"calls": [{"tool": "mcp:time/get_current_time", "arguments": {"timezone": "UTC"}}]},
    {"text": "${last_observation}"},
]


async def test_users_dynamic_activity_may_stand_beside_the_plain_one_for_mcp(
    server: Server, tmp_path: Path
) -> None:
    """With `mcp_activity: mainspring.call_tool` theirs stays alone, and MCP tools still run."""
    queue = f"plain-{uuid4().hex[:8]}"
    more: dict[str, Any] = {"patterns": ["mcp:time/*"], "mcp_activity": "mainspring.call_tool", **TIME}
    async with plugged(tmp_path, ASK_TIME, **more) as plugin:
        client = await Client.connect(server.address, plugins=[plugin])
        worker = Worker(client, task_queue=queue, workflows=[CallAnything], activities=[first_dynamic])
        async with worker:
            run = await start_run(client, agent="tested", prompt="x", task_queue=queue)
            answer = (await asyncio.wait_for(run.result(), PATIENCE)).answer
            told = await client.execute_workflow("CallAnything", "Odd", id=f"any-{queue}", task_queue=queue)
    assert "UTC" in str(answer)
    assert told == "first: Odd"


async def test_worker_that_ends_leaves_the_sessions_of_another_alone(server: Server, tmp_path: Path) -> None:
    """Of two workers of one plugin one ends: the other goes on, and at its own end nothing is left over."""
    queues = [f"two-{uuid4().hex[:8]}" for _ in range(2)]
    async with plugged(tmp_path, ASK_TIME, patterns=["mcp:time/*"], **TIME) as plugin:
        client = await Client.connect(server.address, plugins=[plugin])

        async def asks() -> str:
            run = await start_run(client, agent="tested", prompt="x", task_queue=queues[1])
            return str((await asyncio.wait_for(run.result(), PATIENCE)).answer)

        async with Worker(client, task_queue=queues[1]):
            async with Worker(client, task_queue=queues[0]):
                assert "UTC" in await asks()
            assert "UTC" in await asks()
    assert await _none_left()


async def _none_left() -> bool:
    """Whether no MCP server of this process is left, after a moment."""
    for _ in range(50):
        if not await asyncio.to_thread(_children, "mcp-server-time"):
            return True
        await asyncio.sleep(0.1)
    return False


def _children(word: str) -> list[str]:
    """Command lines of processes below this one that hold a word."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    own = {int(Path("/proc/self").resolve().name)}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return [lines[pid] for pid in own if word in lines.get(pid, "")]


async def test_two_configurations_in_one_process_stay_apart(server: Server, tmp_path: Path) -> None:
    """Each worker serves its own agents, tools and scripts; neither knows the other's."""
    async with (
        plugged(tmp_path / "a", [{"text": "a"}]) as one,
        plugged(tmp_path / "b", [{"text": "b"}]) as other,
    ):
        clients = [await Client.connect(server.address, plugins=[plugin]) for plugin in (one, other)]
        queues = [f"apart-{uuid4().hex[:8]}" for _ in range(2)]
        async with (
            Worker(clients[0], task_queue=queues[0]),
            Worker(clients[1], task_queue=queues[1]),
        ):
            runs = [await start_run(clients[0], agent="tested", prompt="x", task_queue=q) for q in queues]
            assert [(await run.result()).answer for run in runs] == ["a", "b"]


async def test_two_configurations_on_one_worker_are_refused_when_it_is_made(
    server: Server, tmp_path: Path
) -> None:
    """One worker serves one configuration: the second plugin is refused at once, in words."""
    async with plugged(tmp_path / "a") as one, plugged(tmp_path / "b") as other:
        client = await Client.connect(server.address, plugins=[one, other])
        with pytest.raises(ValueError, match=r"(?i)plugin|twice|more than one"):
            Worker(client, task_queue="never")


async def test_plugin_on_a_client_alone_makes_nothing(server: Server, tmp_path: Path) -> None:
    """A client starts and reads runs without tools, blobs or MCP servers being made in its process."""
    async with serving(server.address, replies=[{"text": "ok"}]) as case:
        more: dict[str, Any] = {"mcp": {"absent": {"command": ["no-such-program"]}}, "patterns": ["mcp:*/*"]}
        async with plugged(tmp_path, **more) as plugin:
            client = await Client.connect(server.address, plugins=[plugin])
            run = await start_run(client, agent="tested", prompt="x", task_queue=case.task_queue)
            assert (await run.result()).answer == "ok"
            assert plugin._services is None
    assert not (tmp_path / ".mainspring").exists()


async def test_plain_client_of_another_language_needs_no_plugin(server: Server) -> None:
    """Start, signal, update, query and result are plain JSON for a client without ours."""
    replies = {"replies": [{"text": "ok", "delay": 0.4}], "then": "repeat_last"}
    async with serving(server.address, replies=replies) as case:
        plain = await Client.connect(server.address)
        argument = {"agent": "tested", "prompt": "go", "lifetime": "conversation"}
        handle = await plain.start_workflow(
            "AgentRun", argument, id=f"plain-{uuid4().hex[:8]}", task_queue=case.task_queue
        )
        case.started.append(handle.id)
        assert await handle.execute_update("steer", {"message": "also"}) == {"accepted": 1}
        await handle.signal("finish")
        result = await asyncio.wait_for(handle.result(), PATIENCE)
        assert (await handle.query("state"))["outcome"] == "completed"
    assert result["answer"] == "ok"


@tool(name="Pack", effects="read")
async def packs(item: str = "") -> str:
    """A tool under a name that the user's activity has too.

    Args:
        item: What.
    """
    return f"tool {item}"


@activity.defn(name="Pack")
async def plain_pack(arguments: Any) -> str:
    """An activity of the user's under a tool's name."""
    return f"theirs {arguments['item']}"


async def test_users_activity_under_a_tools_name_stays_and_its_result_is_read(server: Server) -> None:
    """Theirs stays in place of ours; what it returns is an observation, and fails no workflow task."""
    replies = [{"calls": [{"tool": "Pack", "arguments": {"item": "x"}}]}, {"text": "${last_observation}"}]
    async with serving(server.address, replies=replies, tools=[packs], activities=[plain_pack]) as case:
        run = await case.start()
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "theirs x"
        assert_sound(await case.history(run))


async def test_users_runner_without_a_sandbox_is_left_alone(server: Server) -> None:
    """Runs work, and replay, where the user has switched the sandbox off."""
    runner = UnsandboxedWorkflowRunner()
    async with serving(server.address, replies=LOOK, tools=[observe], workflow_runner=runner) as case:
        assert (await case.run()).answer == "saw observation 5"
