"""The parent's side of a contestant's process."""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPLY_SECONDS = 600.0
REPLY_BYTES = 1 << 24


class ContestantFailed(Exception):
    """A contestant could not do what it was told; says why, on one line."""


class Remote:
    """A contestant in a process of its own. One command at a time."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and return its reply.

        Raises:
            ContestantFailed: The command failed, the process ended, or no reply came in time.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        return await self.reply()

    async def reply(self) -> dict[str, Any]:
        """The next reply; raises as `ask` does."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), REPLY_SECONDS)
        except TimeoutError:
            raise ContestantFailed(f"no reply within {REPLY_SECONDS:.0f} s") from None
        if not line:
            raise ContestantFailed(f"its process ended with status {await self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContestantFailed(answer["error"])
        return answer


@contextlib.asynccontextmanager
async def started(name: str, address: str, *, python: Path | None = None) -> AsyncIterator[Remote]:
    """Run contestant `name` in its own process, under `python` (default: this interpreter).

    Its temporary files are its own too, and end with it.

    Raises:
        ContestantFailed: What it needs cannot be imported.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        process = await asyncio.create_subprocess_exec(
            str(python or sys.executable), "-m", "bench.process", name, address,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=REPLY_BYTES,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": scratch},
        )  # fmt: skip
        try:
            remote = Remote(name, process)
            await remote.reply()
            yield remote
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
