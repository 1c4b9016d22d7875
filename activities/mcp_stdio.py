"""An MCP server as a child process: a transport for the SDK that owns the whole process group.

The SDK's own stdio transport leaves grandchildren alive when the server ends by itself, and says neither how
it ended nor what it wrote to stderr. Here the server leads a group of its own, which is ended as a group,
within a bound, however the session ends; lines on stdout that are not JSON-RPC are passed over.

Source: shared design, tools.md "MCP"; field-faults.md F8, J1, J7, J8.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mainspring.workflows.values import safe_value

__all__ = ["StdioLink"]

logger = logging.getLogger(__name__)

CHUNK_BYTES = 65_536
LINE_BYTES_MAX = 64 * 1024 * 1024
STDERR_KEPT = 4_096
POLL_SECONDS = 0.05
WATCH_SECONDS = 0.2
STDIN_GRACE_SECONDS = 1.0
TERM_GRACE_SECONDS = 1.0
DRAIN_SECONDS = 0.5

_START = b'{"jsonrpc"'
_ANSWER = re.compile(rb'\s*\{"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')

Incoming = SessionMessage | Exception


class StdioLink:
    """One server process. Entered, it yields the streams that the SDK's session reads and writes."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self._command = tuple(command)
        self._env = _inherited() | dict(env)
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stderr = b""
        self.dead = asyncio.Event()
        """Set when the server has ended, or nothing more can be exchanged with it."""

    async def __aenter__(
        self,
    ) -> tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]:
        """Start the server.

        Raises: OSError, when it cannot be started.
        """
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        self._to_us, from_server = anyio.create_memory_object_stream[Incoming](0)
        to_server, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        streams = (self._read(), self._write(outgoing), self._keep_stderr(), self._watch())
        self._tasks = [asyncio.create_task(stream) for stream in streams]
        return from_server, to_server

    async def __aexit__(self, *exc: object) -> None:
        """End the server and everything that it started; at most about 3 seconds."""
        try:
            await self._stop()
        finally:
            # Whatever interrupted the orderly end, nobody of the group stays.
            self._signal(signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
            self._to_us.close()
            if self._process is not None:
                # The pipes stay open as long as a process that left the group holds them.
                self._process._transport.close()  # type: ignore[attr-defined]

    def why(self) -> str:
        """How the server ended, as far as it is known, and the end of what it wrote to stderr."""
        if self._process is None:
            return "it did not start"
        code = self._process.returncode
        ended = "it runs" if code is None else f"it exited with status {code}"
        said = " ".join(self._stderr.decode("utf-8", "replace").split())[-500:]
        return f"{ended}; stderr: {said}" if said else ended

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        held = bytearray()
        try:
            while chunk := await self._process.stdout.read(CHUNK_BYTES):
                searched = len(held)
                held += chunk
                if held.find(b"\n", searched) < 0:
                    if len(held) > LINE_BYTES_MAX:
                        logger.warning("MCP server %s wrote a line without end", self._command[0])
                        return
                    continue
                *lines, rest = held.split(b"\n")
                held = rest
                for line in lines:
                    message = _parsed(bytes(line))
                    if message is not None:
                        await self._to_us.send(message)
            # Its end follows that of its output; `why` should know the status.
            await self._until_gone(DRAIN_SECONDS, group=False)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the session is gone
        finally:
            self._end()

    async def _write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            async with outgoing:
                async for item in outgoing:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._process.stdin.write(text.encode() + b"\n")
                    await self._process.stdin.drain()
        except (OSError, ValueError):
            logger.debug("writing to MCP server %s failed", self._command[0], exc_info=True)
            self._end()

    async def _keep_stderr(self) -> None:
        """Read stderr, so that the server never blocks on it, and keep its end."""
        assert self._process is not None
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(CHUNK_BYTES):
            self._stderr = (self._stderr + chunk)[-STDERR_KEPT:]

    async def _watch(self) -> None:
        """Notice the end of a server whose pipes a grandchild holds open."""
        assert self._process is not None
        while self._process.returncode is None:
            await asyncio.sleep(WATCH_SECONDS)
        await asyncio.sleep(DRAIN_SECONDS)
        self._end()

    def _end(self) -> None:
        """Let the session see the end: whoever waits for an answer is told at once."""
        self.dead.set()
        self._to_us.close()

    async def _stop(self) -> None:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._until_gone(STDIN_GRACE_SECONDS, group=False)
        self._signal(signal.SIGTERM)
        await self._until_gone(TERM_GRACE_SECONDS, group=True)
        self._signal(signal.SIGKILL)
        await self._until_gone(TERM_GRACE_SECONDS, group=False)

    async def _until_gone(self, seconds: float, *, group: bool) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while self._alive(group=group) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_SECONDS)

    def _alive(self, *, group: bool) -> bool:
        assert self._process is not None
        if self._process.returncode is None:
            return True
        return group and self._signal(0)

    def _signal(self, number: int) -> bool:
        """Signal the group; whether there is one. Its number is the server's own, since it leads it."""
        if self._process is None:
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
            return True
        return False


def _inherited() -> dict[str, str]:
    """The few variables that a server inherits; programs beside our own interpreter are found last."""
    inherited = get_default_environment()
    beside = os.path.dirname(sys.executable)
    return {**inherited, "PATH": os.pathsep.join(filter(None, (inherited.get("PATH"), beside)))}


def _parsed(line: bytes) -> SessionMessage | None:
    """The message on a line; None for a banner, a blank or a broken line.

    Text without a line end may stand before a message: what begins like a message is tried once more.
    """
    if not line.strip():
        return None
    for start in (0, line.find(_START, 1)):
        if start >= 0:
            with suppress(ValueError, RecursionError):
                return SessionMessage(_message(line[start:]))
    logger.debug("passed over a line of %d bytes that is not JSON-RPC", len(line))
    return _unreadable(line)


def _message(line: bytes) -> types.JSONRPCMessage:
    """The message, also one that is not quite JSON: half a character, NaN, or bytes that are no UTF-8.

    Raises: ValueError, RecursionError.
    """
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        if not line.lstrip().startswith(b"{"):
            raise
    value = safe_value(json.loads(line.decode("utf-8", "replace")))
    return types.jsonrpc_message_adapter.validate_python(value, by_name=False)


def _unreadable(line: bytes) -> SessionMessage | None:
    """An error in place of an answer that cannot be read, so that nobody waits for it."""
    answered = _ANSWER.match(line)
    if answered is None:
        return None
    error = types.ErrorData(
        code=types.PARSE_ERROR, message="the server's answer is not JSON that can be read"
    )
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=int(answered[1]), error=error))
