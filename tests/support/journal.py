"""Tools whose effects outlive their process: each appends a line to the file that the environment names."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

from mainspring.tools import ToolContext, tool

__all__ = ["JOURNAL", "effects_of", "look", "note"]

JOURNAL = "MAINSPRING_TEST_JOURNAL"
"""The variable that names the file."""
SECONDS = 0.06


def _append(context: ToolContext, n: int, name: str) -> None:
    line = f"{context.idempotency_key} {context.attempt} {n} {name}\n"
    with open(os.environ[JOURNAL], "a", encoding="utf-8") as file:  # one write, so that no line is torn
        file.write(line)


@tool(effects="write", timeout=20, heartbeat=1)
async def note(n: int, context: ToolContext) -> str:
    """Write something that must not be written twice.

    Args:
        n: Which.
        context: Given by the engine.
    """
    _append(context, n, "note")
    await asyncio.sleep(SECONDS)
    return f"noted {n}"


@tool(effects="read", timeout=20, heartbeat=1, attempts=20)
async def look(n: int, context: ToolContext) -> str:
    """Look at something; it may be repeated.

    Args:
        n: Which.
        context: Given by the engine.
    """
    _append(context, n, "look")
    await asyncio.sleep(SECONDS)
    return f"seen {n}"


def effects_of(journal: Path) -> Counter[str]:
    """How many times each call took effect, by its idempotency key."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    return Counter(line.split(" ")[0] for line in lines)
