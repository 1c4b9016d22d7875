"""Runs that are looked for: by search attributes where the server has them, and without harm where not."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from mainspring.client import RunFailed
from mainspring.embedded import Server, binary, free_port
from support.history import task_failures
from support.invariants import serving
from support.tools import observe


async def found(client: Client, query: str) -> set[str]:
    """Ids of the runs that the server finds; asked until it finds any, since it lists with a delay."""
    for _ in range(100):
        ids = {item.id async for item in client.list_workflows(query)}
        if ids:
            return ids
        await asyncio.sleep(0.1)
    return set()


async def test_run_is_found_by_status_awaiting_and_outcome(server: Server) -> None:
    """A conversation that waits is found by what it waits for, and an ended one by its outcome."""
    replies = [{"calls": [{"tool": "observe"}]}, {"text": "One."}]
    async with serving(server.address, replies=replies, tools=[observe]) as case:
        run = await case.start(lifetime="conversation")
        mine = f"AND WorkflowId = '{run.id}'"
        waiting = "MainspringStatus = 'waiting' AND MainspringAwaiting = 'follow_up'"
        assert await found(case.client, f"{waiting} AND MainspringAgent = 'tested' {mine}") == {run.id}
        await run.finish()
        await run.result()
        ended = "MainspringStatus = 'closed' AND MainspringAwaiting = 'none'"
        counted = "MainspringOutcome = 'completed' AND MainspringTurns = 2 AND MainspringTokens > 0"
        assert await found(case.client, f"{ended} AND {counted} {mine}") == {run.id}


@asynccontextmanager
async def plain_server() -> AsyncGenerator[str]:
    """A development server without our search attributes; its address."""
    port = free_port()
    command = [binary(), "server", "start-dev", "--headless", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"127.0.0.1:{port}"
    try:
        await _answers(address)
        yield address
    finally:
        process.kill()
        process.wait()


async def _answers(address: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                client = await Client.connect(address)
                await client.count_workflows()
            except (RPCError, RuntimeError):
                await asyncio.sleep(0.1)
            else:
                return


async def test_run_works_on_a_server_without_our_search_attributes() -> None:
    """Nothing of it fails, it tells the server nothing that it would not take, and it says so once."""
    replies = [{"calls": [{"tool": "observe"}]}, {"text": "One."}]
    async with plain_server() as address, serving(address, replies=replies, tools=[observe]) as case:
        run = await case.start(lifetime="conversation", idle_timeout=0.5)
        result = await run.result()
        history = await case.history(run)
        notes = (await case.events(run))[0]["notes"]
    assert (result.outcome, result.answer) == ("completed", "One.")
    assert task_failures(history) == []
    assert sum("search attribute" in note for note in notes) == 1
    upserted = "upsert_workflow_search_attributes_event_attributes"
    assert not any(event.HasField(upserted) for event in history.events)


async def test_run_that_is_refused_is_found_by_its_outcome(server: Server) -> None:
    """Also a run that never began is found: those are the ones that one looks for."""
    async with serving(server.address, replies=[{"text": "never"}]) as case:
        run = await case.start(agent="nobody")
        with pytest.raises(RunFailed):
            await run.result()
        looked_for = "MainspringAgent = 'nobody' AND MainspringOutcome = 'invalid_input'"
        assert await found(case.client, f"{looked_for} AND WorkflowId = '{run.id}'") == {run.id}
