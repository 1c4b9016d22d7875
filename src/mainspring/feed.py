"""The events of a run as one stream, through all of its Temporal runs.

Events are read by query, which writes nothing to history. A run that continued as new may hold only its
newest events; the older ones are asked of the executions before it, which answer also when they are closed.

Source: shared design, loop.md "Events"; temporal-facts.md 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from mainspring.channel import Channel
from mainspring.run_errors import NoWorker

__all__ = ["follow"]

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 1.0
CHAIN_MAX = 10_000
TERMINAL = "Finished"


async def follow(channel: Channel, start: int = 0) -> AsyncGenerator[dict[str, Any], None]:
    """Events from seq `start` in their order, each once, until the run has ended.

    Raises: UnknownRun, Unreachable, Wedged; NoWorker, when the run is closed.
    """
    wanted = max(0, start)
    pause = PAUSE_SECONDS
    while True:
        closed = await channel.closed()  # asked before the events, so that the last ones cannot be missed
        page = await _page(channel, wanted, closed)
        if page and page[0]["seq"] > wanted:
            page = await _older(channel, wanted, page[0]["seq"]) + page
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


async def _older(channel: Channel, wanted: int, before: int) -> list[dict[str, Any]]:
    """Events `wanted` to `before`, exclusive, from earlier executions; those that are left of them."""
    found: list[dict[str, Any]] = []
    execution = await channel.execution_before(None)
    for _ in range(CHAIN_MAX):
        if execution is None or before <= wanted:
            break
        part = await _all_of(channel, execution, wanted, before)
        found = part + found
        before = part[0]["seq"] if part else before
        execution = await channel.execution_before(execution)
    return found


async def _all_of(channel: Channel, execution: str, wanted: int, before: int) -> list[dict[str, Any]]:
    """What one execution holds of that range; pages are followed."""
    held: list[dict[str, Any]] = []
    while wanted < before:
        page = await channel.query("events", wanted, execution=execution)
        held += [event for event in page if event["seq"] < before]
        if not page:
            break
        wanted = page[-1]["seq"] + 1
    return held
