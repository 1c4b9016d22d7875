"""A run to be read: an open one from its worker, a closed one also without."""

from __future__ import annotations

from typing import Any

from mainspring.channel import Channel
from mainspring.cli.app import connected
from mainspring.client import Run
from mainspring.feed import is_served, unserved

__all__ = ["reading"]

PATIENCE_SECONDS = 15.0
UNSERVED_PATIENCE_SECONDS = 5.0


async def reading(run_id: str) -> Run[Any]:
    """The run of that id.

    Raises: UnknownRun, Unreachable, ConfigError.
    """
    client = await connected()
    channel = Channel(client, run_id, patience_seconds=PATIENCE_SECONDS)
    described = await channel.describe()
    if await channel.closed():
        from mainspring.replayed import ClosedChannel  # it brings the workflows, which only this needs

        served = await is_served(client, described.task_queue)
        channel = ClosedChannel(client, described, served=served)
    elif await unserved(channel, described) is not None:
        channel.patience_seconds = UNSERVED_PATIENCE_SECONDS
    return Run(client, run_id, None, channel.patience_seconds, channel)
