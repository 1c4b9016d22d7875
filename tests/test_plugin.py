"""The plugin on clients and workers."""

from __future__ import annotations

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from mainspring.embedded import Server
from mainspring.errors import MainspringError
from mainspring.plugin import MainspringPlugin


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
