"""An MCP server behind an address: the SDK's streamable HTTP, with failures as answers.

The SDK ends a whole session, with every call in flight, when one request cannot be sent. Here such a request
is answered with a JSON-RPC error that says whether it can have been received, so that only what surely was
not executed is repeated.

Source: shared design, tools.md "MCP"; field-faults.md J1, J4.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Literal

import httpx2
import mcp_types as types
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

__all__ = ["FAULT", "Fault", "HttpLink"]

Fault = Literal["unsent", "lost", "expired", "status"]
"""`unsent`: it never left. `lost`: it may have been received. `expired`: the server knows no such session.
`status`: refused with an HTTP status."""

FAULT = "mainspring.fault"
"""Key in an error's data under which a fault is told from an error of the server's own."""

CONNECT_SECONDS = 10.0
EVENT_BYTES_MAX = 64 * 1024 * 1024
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_PASSING = frozenset({429, 502, 503, 504})


class HttpLink:
    """One connection to a server. Entered, it yields the streams that the SDK's session reads and writes.

    Args:
        patience_seconds: Most seconds without a byte from the server; more than any call may take.
    """

    def __init__(self, url: str, headers: Mapping[str, str], patience_seconds: float) -> None:
        self._url = url
        self._headers = dict(headers)
        self._patience = patience_seconds
        self._stack = AsyncExitStack()
        self.dead = asyncio.Event()
        """Set when the session has ended."""

    async def __aenter__(self) -> Any:
        """Make the streams; nothing is sent yet."""
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=self._patience)
        client = _Client(headers=self._headers, timeout=timeout)
        async with AsyncExitStack() as entering:
            await entering.enter_async_context(client)
            transport = streamable_http_client(
                self._url, http_client=client, max_sse_event_size=EVENT_BYTES_MAX
            )
            streams = await entering.enter_async_context(transport)
            self._stack = entering.pop_all()
        return streams

    async def __aexit__(self, *exc: Any) -> None:
        """Close the connection, and tell the server that the session is over."""
        await self._stack.__aexit__(*exc)

    def why(self) -> str:
        """Nothing is known of a server behind an address."""
        return "the connection was lost"


class _Client(httpx2.AsyncClient):
    """Answers a request of the SDK's in the server's place when it fails."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; of a POST that fails, the answer says how."""
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            fault: Fault = "unsent" if isinstance(error, _NEVER_SENT) else "lost"
            return _answer(request, fault, f"{type(error).__name__}: {error}")
        if response.status_code < 400:
            return response
        return await self._refused(request, response)

    async def _refused(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """An error of the server's own is left as it is; any other refusal is told by its status."""
        status = response.status_code
        error = await _error_of(response)
        told = str(error.get("message", "")) if error else ""
        if request.headers.get(MCP_SESSION_ID) and (
            status == 404 or (status == 400 and "session" in told.lower())
        ):
            return _answer(request, "expired", "the server knows no such session")
        if error:
            return response
        fault: Fault = "lost" if status in _PASSING else "status"
        return _answer(request, fault, f"the server answered HTTP {status}")


async def _error_of(response: httpx2.Response) -> Mapping[str, Any] | None:
    """The JSON-RPC error in the body."""
    try:
        body = json.loads(await response.aread())
    except (ValueError, RecursionError, httpx2.TransportError):
        return None
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) and isinstance(error.get("code"), int) else None


def _answer(request: httpx2.Request, fault: Fault, message: str) -> httpx2.Response:
    error = {"code": types.INTERNAL_ERROR, "message": message, "data": {FAULT: fault}}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(503, json=body, request=request)
