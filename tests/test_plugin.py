"""The plugin on clients and workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker

from mainspring.embedded import Server
from mainspring.errors import MainspringError
from mainspring.plugin import PASSED_THROUGH, MainspringPlugin


async def test_worker_is_refused_whose_client_has_no_plugin(server: Server) -> None:
    """Without the plugin's bounds on payloads the first bad one would park a run for ever."""
    for converter in ({}, {"data_converter": pydantic_data_converter}):
        client = await Client.connect(server.address, **converter)
        with pytest.raises(MainspringError, match="client"):
            Worker(client, task_queue="unbounded", plugins=[MainspringPlugin()])


async def test_plugin_serves_one_worker_after_the_other(server: Server) -> None:
    """What a worker's activities shared ends with it; the next one has its own."""
    plugin = MainspringPlugin()
    client = await Client.connect(server.address, plugins=[plugin])
    shared = []
    for _ in range(2):
        async with Worker(client, task_queue="one-by-one"):
            shared.append(plugin.services)
    assert shared[0] is not shared[1]


class _Later(SimplePlugin):
    """A plugin that brings a dynamic activity of its own."""

    def __init__(self) -> None:
        super().__init__("later", activities=[anything])


@activity.defn(dynamic=True)
async def anything(_: Sequence[RawValue]) -> str:
    """Serve every name."""
    return "theirs"


async def test_dynamic_activity_of_a_later_plugin_is_refused_when_the_worker_is_built(server: Server) -> None:
    """A worker has one dynamic activity; that is said at once, and with ours last both are served."""
    ours = MainspringPlugin()
    client = await Client.connect(server.address, plugins=[ours, _Later()])
    with pytest.raises(TypeError, match="dynamic"):
        Worker(client, task_queue="later")
    last = await Client.connect(server.address, plugins=[_Later(), MainspringPlugin()])
    async with Worker(last, task_queue="last"):
        pass


def test_sandbox_shares_every_pure_module() -> None:
    """What a pure module keeps, such as the router's index, is made once a process and not once a run."""
    folder = Path(__file__).parents[1] / "workflows"
    modules = {
        path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    pure = {f"mainspring.workflows.{name}" for name in modules - {"__init__", "agent_run", "shell"}}
    assert pure == {name for name in PASSED_THROUGH if name.startswith("mainspring.workflows.")}
