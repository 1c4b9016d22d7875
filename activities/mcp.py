"""The MCP servers of a worker process: one session each, opened when first needed and again when it is lost.

Source: shared design, tools.md "MCP"; field-faults.md group J.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from temporalio.exceptions import ApplicationError

from mainspring.activities.functions import ToolUnavailable
from mainspring.activities.mcp_catalog import call_seconds, declared, define_tools
from mainspring.activities.mcp_content import returned
from mainspring.activities.mcp_http import HttpLink
from mainspring.activities.mcp_session import Connection, Link, SessionLost
from mainspring.activities.mcp_stdio import StdioLink
from mainspring.activities.outcomes import Returned
from mainspring.schemas.mcp import McpServerSpec
from mainspring.schemas.tools import ToolDefinition
from mainspring.workflows.values import clip, safe_value

__all__ = ["Listed", "McpServer", "McpServers"]

UNSENT_PAUSES = (0.2, 0.8, 2.0)
"""Seconds between tries to reach a server that surely received nothing."""

HTTP_PATIENCE_SECONDS = 30.0
SECRET_MIN = 6
_REFERENCE = re.compile(r"((?:\w+ )?)((?:env|file):.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Listed:
    """What all servers offer.

    Args:
        failures: Server → why its tools could not be had.
    """

    tools: tuple[ToolDefinition, ...] = ()
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


class McpServers:
    """Every configured server, by name.

    Args:
        secrets: Resolves `env:NAME` and `file:PATH`; may raise.
        activity: Activity type of their tools, where it is not the tool's own name.
    """

    def __init__(
        self,
        specs: Mapping[str, McpServerSpec],
        *,
        secrets: Callable[[str], str],
        activity: str | None = None,
    ) -> None:
        self.specs = dict(specs)
        self._activity = activity
        self._servers = {name: McpServer(name, spec, secrets) for name, spec in self.specs.items()}

    async def listed(self) -> Listed:
        """What all servers offer, asked at the same time; one that fails costs its own tools only."""
        answers = await asyncio.gather(*(self._listed(name) for name in self._servers))
        tools = [tool for answer in answers for tool in answer.tools]
        notes = [note for answer in answers for note in answer.notes]
        failures = {name: why for answer in answers for name, why in answer.failures.items()}
        return Listed(tuple(tools), tuple(notes), failures)

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> Returned:
        """Call a tool of a server.

        Raises: ToolError, what the server answered; ToolUnavailable, when it cannot be reached or was lost.
        """
        return returned(await self._servers[server].call(tool, arguments))

    def spill_bytes(self, server: str, tool: str) -> int | None:
        """What the configuration declares of that tool."""
        said: int | None = declared(self.specs[server], tool).get("spill_bytes")
        return said

    async def close(self) -> None:
        """Close all sessions at the same time, in bounded time."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _listed(self, name: str) -> Listed:
        try:
            tools, notes = await self._servers[name].tools()
        except Exception as error:  # whatever one server does, the others are listed
            return Listed(failures={name: self._servers[name].scrubbed(_reason(error))})
        definitions, dropped = define_tools(name, self.specs[name], tools, self._activity)
        return Listed(tuple(definitions), tuple([*(f"{name}: {note}" for note in notes), *dropped]))


class McpServer:
    """One server and the session with it."""

    def __init__(self, name: str, spec: McpServerSpec, secrets: Callable[[str], str]) -> None:
        self.name = name
        self.spec = spec
        self._secrets = secrets
        self._known: set[str] = set()
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._retiring: dict[Connection, asyncio.Task[None]] = {}

    async def tools(self) -> tuple[list[types.Tool], list[str]]:
        """All its tools, and notes.

        Raises: ToolUnavailable, MCPError, TimeoutError …: whatever keeps it from listing them.
        """
        for last in (False, True):
            connection = await self._connected()
            try:
                async with asyncio.timeout(self.spec.start_timeout):
                    return await connection.tools()
            except MCPError:
                # The session may have expired since; a new one is tried once.
                if last:
                    raise
                self._leave(connection)
        raise AssertionError("unreachable")

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool; what surely was not executed is tried again.

        Raises: ToolError, ToolUnavailable; no secret of the configuration is in their texts.
        """
        safe = safe_value(dict(arguments))
        assert isinstance(safe, dict)
        pauses = iter(UNSENT_PAUSES)
        renewed = False
        while True:
            try:
                connection = await self._connected()
                return await connection.call(tool, safe, call_seconds(self.spec, tool))
            except SessionLost as error:
                if renewed:
                    raise self._told(error) from None
                renewed = True
            except ToolUnavailable as error:
                pause = next(pauses, None)
                if not error.not_applied or pause is None:
                    raise self._told(error) from None
                await asyncio.sleep(pause)

    async def close(self) -> None:
        """End the session, and every one that is still being opened or closed."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._connection is not None:
            self._leave(self._connection)
        retiring = dict(self._retiring)
        await asyncio.gather(*(connection.close() for connection in retiring), *retiring.values())

    def scrubbed(self, text: str) -> str:
        """The text without any secret of this server's configuration."""
        for secret in self._known:
            text = text.replace(secret, "[secret]")
        return text

    def _told(self, error: ToolUnavailable) -> ToolUnavailable:
        return ToolUnavailable(
            self.scrubbed(str(error)), retry_after=error.retry_after, not_applied=error.not_applied
        )

    async def _connected(self) -> Connection:
        """The session; opened once for all who ask at the same time."""
        if self._connection is not None and not self._connection.lost:
            return self._connection
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name=f"opening MCP server {self.name}")
            self._opening.add_done_callback(self._opened)
        # One caller's cancellation must not take the session from the others.
        return await asyncio.shield(self._opening)

    async def _open(self) -> Connection:
        if self._connection is not None:
            self._leave(self._connection)
        connection = await Connection.open(f"MCP server {self.name}", self._link(), self.spec.start_timeout)
        self._connection = connection
        return connection

    def _opened(self, opening: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # known, also when nobody waits any more

    def _leave(self, connection: Connection) -> None:
        """Use a session no more; it is closed when its calls have ended, and nobody waits for that."""
        if self._connection is connection:
            self._connection = None
        if connection not in self._retiring:
            task = asyncio.create_task(connection.retire())
            self._retiring[connection] = task
            task.add_done_callback(lambda _: self._retiring.pop(connection, None))

    def _link(self) -> Link:
        spec = self.spec
        if spec.url is not None:
            longest = max([spec.timeout, *(patch.timeout or 0.0 for patch in spec.declare.values())])
            return HttpLink(spec.url, self._resolved(spec.headers), longest + HTTP_PATIENCE_SECONDS)
        return StdioLink((*spec.command, *spec.args), self._resolved(spec.env), spec.cwd)

    def _resolved(self, named: Mapping[str, str]) -> dict[str, str]:
        return {name: self._resolve(value) for name, value in named.items()}

    def _resolve(self, value: str) -> str:
        """The value with its secret in place: `env:TOKEN`, or `Bearer env:TOKEN`."""
        matched = _REFERENCE.fullmatch(value)
        if matched is None:
            return value
        secret = self._secrets(matched[2])
        if len(secret) >= SECRET_MIN:
            self._known.add(secret)
        return matched[1] + secret


def _reason(error: Exception) -> str:
    if isinstance(error, ToolUnavailable | ApplicationError):
        return clip(str(error), 1_000)
    if isinstance(error, TimeoutError):
        return "its tools were not listed in time"
    if isinstance(error, ValidationError):
        return "its answer is not one that MCP knows"
    return clip(f"{type(error).__name__}: {error}", 1_000)
