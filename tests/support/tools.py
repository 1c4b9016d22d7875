"""Tools of the run tests: real functions, with effects that can be counted."""

from __future__ import annotations

import asyncio
from collections import Counter

from mainspring.tools import ToolContext, ToolForbidden, tool

EFFECTS: Counter[str] = Counter()
"""What `write` and `slow` did, by their argument."""


@tool(effects="read", observes=True)
async def observe(i: int = 0) -> str:
    """Observe something.

    Args:
        i: Which.
    """
    return f"observation {i}"


@tool(effects="write")
async def write(key: str) -> str:
    """Write something, once.

    Args:
        key: What.
    """
    EFFECTS[key] += 1
    return f"wrote {key}"


@tool(effects="write")
async def slow(key: str, seconds: float = 30.0) -> str:
    """Write something slowly.

    Args:
        key: What.
        seconds: How slowly.
    """
    EFFECTS[f"began {key}"] += 1
    await asyncio.sleep(seconds)
    EFFECTS[f"ended {key}"] += 1
    return f"slowly wrote {key}"


@tool(effects="read")
async def nap(seconds: float, context: ToolContext) -> str:
    """Take some time.

    Args:
        seconds: How much.
        context: Given by the engine.
    """
    await asyncio.sleep(seconds)
    return context.idempotency_key


@tool(effects="read")
async def broken(why: str = "") -> str:
    """Fail.

    Args:
        why: With what words.
    """
    raise RuntimeError(why)


@tool(effects="write")
async def vault() -> str:
    """Refuse for good."""
    raise ToolForbidden("the vault stays shut")
