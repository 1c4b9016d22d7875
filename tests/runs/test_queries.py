"""Queries: whatever is asked, the run answers or says why not, and is not changed by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue

from mainspring.client import Run
from mainspring.embedded import Server
from mainspring.testing import Case, serving
from support.history import assert_sound
from support.tools import observe

PATIENCE = 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ended(server: Server) -> AsyncIterator[tuple[Case, Run[Any]]]:
    """A run of two turns that has ended, and its case."""
    replies = [{"calls": [{"tool": "observe", "arguments": {"i": 1}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[observe]) as case:
        run = await case.start()
        await run.result()
        yield case, run


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    """A payload as another SDK might send it."""
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("no_such_query", []),
        ("events", [0, 1]),
        ("transcript", [{"form": 0}]),
        ("transcript", [{"from": 0, "limit": 1, "more": 2}]),
        ("explain", [99]),
        ("explain", [{"turn": 1}]),
        ("explain", ["x" * 100_000]),
        ("catalog", ["0" * 16]),
        ("events", [raw(b"{")]),
        ("events", [raw(b"[" * 300 + b"]" * 300)]),
        ("events", [raw(b"9" * 5_000)]),
        ("events", [raw(rb'"\ud800"')]),
    ],
)
async def test_query_that_makes_no_sense_is_an_error_to_the_caller_alone(
    ended: tuple[Case, Run[Any]], name: str, args: list[Any]
) -> None:
    """The caller is told, briefly, and the run still answers."""
    case, run = ended
    with pytest.raises(WorkflowQueryFailedError) as failed:
        await asyncio.wait_for(case.handle(run).query(name, args=args), PATIENCE)
    assert 0 < len(failed.value.message) < 5_000
    assert (await run.state())["outcome"] == "completed"


@pytest.mark.parametrize(
    "start",
    [-1, -(10**30), 10**30, 1e308, 0.5, None, True, "3", [], {}, raw(b"NaN"), raw(b"-Infinity")],
    ids=str,
)
async def test_odd_start_of_events_is_one_in_range(ended: tuple[Case, Run[Any]], start: Any) -> None:
    """A start beyond the end gives nothing; what is no number gives all."""
    case, run = ended
    every = await case.handle(run).query("events")
    found = await case.handle(run).query("events", start)
    assert found == ([] if isinstance(start, int | float) and start > 1_000 else every)


@pytest.mark.parametrize(
    ("window", "count"),
    [
        (None, 4),
        (0, 4),
        (3, 1),
        ({}, 4),
        ({"from": 1, "limit": 2}, 2),
        ({"from": -5, "limit": -5}, 0),
        ({"from": 10**30}, 0),
        ({"limit": 10**30}, 4),
        ({"limit": None}, 0),
    ],
    ids=str,
)
async def test_odd_window_of_the_transcript_is_one_in_range(
    ended: tuple[Case, Run[Any]], window: Any, count: int
) -> None:
    """A window is clamped to what there is."""
    case, run = ended
    assert len(await case.handle(run).query("transcript", window)) == count


async def test_queries_write_nothing(ended: tuple[Case, Run[Any]]) -> None:
    """Asking every query leaves the history as it was."""
    case, run = ended
    before = len((await case.history(run)).events)
    for name in ("state", "events", "transcript", "explain", "catalog", "armed"):
        assert await case.handle(run).query(name)
    history = await case.history(run)
    assert len(history.events) == before
    assert_sound(history)


async def test_run_that_has_not_begun_answers_every_query_but_one(server: Server) -> None:
    """Before it is armed a run says so; it has no turn to explain."""
    command = ["sleep", "30"]
    config = {"mcp": {"mute": {"command": command, "start_timeout": 3}}}
    agent = {"tools": ["mcp:*/*"]}
    async with serving(server.address, replies=[{"text": "ok"}], agent=agent, config=config) as case:
        run = await case.start()
        for name in ("state", "events", "transcript", "catalog", "armed"):
            await asyncio.wait_for(case.handle(run).query(name), PATIENCE)
        with pytest.raises(WorkflowQueryFailedError, match="no turn"):
            await case.handle(run).query("explain")
        assert (await run.result()).answer == "ok"
