"""One session with an MCP server, opened, kept and closed in one task; calls come from any.

What became of a call is told apart, because it decides who acts: the server answered (with a result or with
an error: an observation), nothing can have happened (repeated at once, by us), or nobody knows (Temporal
retries as far as the tool's attempts allow).

Source: shared design, tools.md "MCP"; field-faults.md J1, J3, J4, J9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Protocol

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mainspring.activities.functions import ToolError, ToolUnavailable
from mainspring.activities.mcp_http import FAULT
from mainspring.activities.mcp_screen import VERSION, Screen
from mainspring.workflows.values import clip

__all__ = ["Connection", "Link", "SessionLost"]

logger = logging.getLogger(__name__)

PAGES_MAX = 200
TOOLS_MAX = 20_000
CLOSE_SECONDS = 8.0


class SessionLost(ToolUnavailable):
    """The session is gone and the call surely was not executed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, not_applied=True)


class Link(Protocol):
    """A transport, and what is known of its other end."""

    dead: asyncio.Event

    async def __aenter__(self) -> Any:
        """Connect, and yield the streams."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Disconnect, in bounded time."""
        ...

    def why(self) -> str:
        """How it ended."""
        ...


class Connection:
    """A session that is open, or was. `open` makes one."""

    def __init__(self, name: str, link: Link) -> None:
        self.name = name
        self._link = link
        self._ready: asyncio.Future[tuple[ClientSession, Screen]] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._expired = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._owner = asyncio.create_task(self._own(), name=f"MCP session {name}")

    @classmethod
    async def open(cls, name: str, link: Link, seconds: float) -> Connection:
        """Connect and shake hands.

        Raises: ToolUnavailable, when that fails or takes longer.
        """
        connection = cls(name, link)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(connection._ready)
        except TimeoutError:
            await connection.close()
            raise ToolUnavailable(
                f"{name} was not ready within {seconds:g} s ({link.why()})", not_applied=True
            ) from None
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def lost(self) -> bool:
        """Whether nothing can be asked of it any more."""
        return self._expired or self._owner.done() or self._link.dead.is_set() or self._stop.is_set()

    async def retire(self) -> None:
        """Close it when its calls in flight have ended; at once when it is closed meanwhile."""
        if self._in_flight:
            self._idle.clear()
            await _first(self._idle, self._stop, self._link.dead)
        await self.close()

    async def close(self) -> None:
        """End the session and what it started; bounded, whatever the server does."""
        self._stop.set()
        if not self._ready.done():
            self._owner.cancel()  # it still shakes hands, and does not look at the signal to stop
        done, _ = await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
        if not done:
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)

    async def tools(self) -> tuple[list[types.Tool], list[str]]:
        """Every page of the server's tools, and notes on what was left out.

        Raises: MCPError, ValidationError, when the server cannot list them.
        """
        session, screen = self._ready.result()
        screen.notes = []
        found: dict[str, types.Tool] = {}
        seen: set[str] = set()
        params = None
        for _ in range(PAGES_MAX):
            page = await session.list_tools(params=params)
            for tool in page.tools:
                found.setdefault(tool.name, tool)
            cursor = page.next_cursor
            if not cursor:
                return list(found.values()), screen.notes
            if cursor in seen or len(found) >= TOOLS_MAX:
                break
            seen.add(cursor)
            params = types.PaginatedRequestParams(cursor=cursor)
        note = f"the listing ends after {len(found)} tools: its cursor does not advance, or it is too long"
        return list(found.values())[:TOOLS_MAX], [*screen.notes, note]

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> types.CallToolResult:
        """Call a tool.

        Raises: ToolError, what the server answered; SessionLost; ToolUnavailable, when nobody knows.
        """
        session, _ = self._ready.result()
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        request = types.CallToolRequest(params=params)
        self._in_flight += 1
        try:
            async with asyncio.timeout(seconds):
                return await self._sent(session, request)
        except TimeoutError:
            raise ToolUnavailable(
                f"{self.name} did not answer within {seconds:g} s; the call may or may not have happened"
            ) from None
        except MCPError as error:
            raise self._judged(error) from None
        except ValidationError as error:
            raise ToolError(
                f"the answer of {self.name} is not one that MCP knows ({error.error_count()} problems)"
            ) from None
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def _sent(self, session: ClientSession, request: types.CallToolRequest) -> types.CallToolResult:
        try:
            return await session.send_request(request, types.CallToolResult)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
        # The server wants headers that its listing names, and this session has not listed yet.
        await self.tools()
        return await session.send_request(request, types.CallToolResult)

    def _judged(self, error: MCPError) -> Exception:
        data = error.data
        fault = data.get(FAULT) if isinstance(data, Mapping) else None
        message = clip(error.message, 4_000)
        if fault == "expired":
            self._expired = True
            return SessionLost(f"{self.name}: {message}")
        if fault == "unsent":
            return ToolUnavailable(f"{self.name} cannot be reached: {message}", not_applied=True)
        if fault == "lost" or _is_closed(error):
            return ToolUnavailable(
                f"the connection to {self.name} was lost in the call, which may or may not have happened "
                f"({message}; {self._link.why()})"
            )
        return ToolError(f"{message} (MCP error {error.code})")

    async def _own(self) -> None:
        """The one task that opens the session, keeps it and closes it."""
        try:
            async with self._link as (read, write):
                screen = Screen(read, write)
                async with ClientSession(dispatcher=screen, client_info=_us()) as session:
                    await _greet(session)
                    screen.version = session.protocol_version or VERSION
                    self._ready.set_result((session, screen))
                    await _first(self._stop, self._link.dead)
        except BaseException as error:
            if self._ready.done():
                logger.debug("the session with MCP server %s ended", self.name, exc_info=True)
            else:
                self._ready.set_exception(self._failed(error))
                self._ready.exception()  # known, also when nobody waits any more
        finally:
            self._link.dead.set()

    def _failed(self, error: BaseException) -> ToolUnavailable:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return ToolUnavailable(
            f"{self.name} cannot be used: {clip(text, 500)} ({self._link.why()})", not_applied=True
        )


def _us() -> types.Implementation:
    try:
        version = metadata.version("mainspring")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return types.Implementation(name="mainspring", version=version)


async def _first(*events: asyncio.Event) -> None:
    """Wait for the first of these events."""
    waits = {asyncio.create_task(event.wait()) for event in events}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _greet(session: ClientSession) -> None:
    """Shake hands: every server today knows `initialize`; one that refuses it may know only its successor."""
    try:
        await session.initialize()
    except MCPError as refused:
        if _is_closed(refused) or (isinstance(refused.data, Mapping) and FAULT in refused.data):
            raise
        try:
            await session.discover()
        except (MCPError, ValidationError, RuntimeError):
            raise refused from None


def _is_closed(error: MCPError) -> bool:
    """Whether the SDK made this error because the connection ended; servers use its code for their own."""
    return error.code == types.CONNECTION_CLOSED and error.message.startswith(
        ("Connection closed", "SSE stream")
    )
