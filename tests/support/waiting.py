"""Waiting for what a run will be in a moment."""

from __future__ import annotations

import asyncio
from typing import Any

from mainspring.client import Run

__all__ = ["until"]

PATIENCE_SECONDS = 20.0
EVERY_SECONDS = 0.025


async def until(run: Run[Any], **wanted: Any) -> dict[str, Any]:
    """The run's state once it is as wanted.

    Raises: AssertionError, with the last state, after 20 s.
    """
    state: dict[str, Any] = {}
    for _ in range(int(PATIENCE_SECONDS / EVERY_SECONDS)):
        state = await run.state()
        if all(state[key] == value for key, value in wanted.items()):
            return state
        await asyncio.sleep(EVERY_SECONDS)
    raise AssertionError(f"never {wanted}: {state}")
