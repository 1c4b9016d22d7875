"""Live deltas: every piece of a streaming reply, as it comes.

    deltas = InProcessDeltas()                          # or RedisDeltas(url), in another process
    plugin = MainspringPlugin.from_file("mainspring.yaml", deltas=deltas)
    …
    live = LiveText()
    async for delta in during(deltas.of(run.id), run.result()):
        if live.feed(delta):
            show(live.text)

They are outside history, off unless configured, and never the truth: the run's result is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from mainspring.activities.deltas import Delta, DeltaSink, LiveText, Stamp
from mainspring.activities.in_process_deltas import InProcessDeltas
from mainspring.activities.redis_deltas import Entry, RedisDeltas

__all__ = [
    "Delta",
    "DeltaSink",
    "Entry",
    "InProcessDeltas",
    "LiveText",
    "RedisDeltas",
    "Stamp",
    "during",
]

T = TypeVar("T")
LAST_SECONDS = 0.2
"""How long what was sent before the end may be under way."""


async def during(deltas: AsyncGenerator[T], ended: Awaitable[Any]) -> AsyncGenerator[T]:
    """The deltas until something has ended: a run's result, most often.

    How it ended, with an error too, is for who waits for it elsewhere. The deltas are closed at the end.

    Args:
        deltas: From `InProcessDeltas.of`, `RedisDeltas.of` or `RedisDeltas.entries`.
        ended: Anything that is awaited, `run.result()` for one. A task or a future of yours goes on when
            reading stops.
    """
    end = asyncio.ensure_future(ended)
    end.add_done_callback(_seen)
    following: asyncio.Task[list[T]] | None = None
    try:
        while True:
            following = asyncio.create_task(_following(deltas))
            await asyncio.wait({following, end}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                await asyncio.wait({following}, timeout=LAST_SECONDS)
            if not following.done() or not (found := following.result()):
                return
            yield found[0]
    finally:
        if end is not ended:
            end.cancel()
        if following is not None and not following.done():
            following.cancel()
            await asyncio.wait({following})
        await deltas.aclose()


async def _following(deltas: AsyncGenerator[T]) -> list[T]:
    """The next one, or nothing after the last."""
    async for delta in deltas:
        return [delta]
    return []


def _seen(end: asyncio.Future[Any]) -> None:
    """Look at how it ended, so that asyncio does not complain that nobody did."""
    if not end.cancelled():
        end.exception()
