"""An MCP server over streamable HTTP, built with the official SDK.

    python web.py PORT [--json] [--status CODE] [--after FILE] [--journal FILE]

`--after` begins to listen only when that file is there.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

EMPTY: dict[str, Any] = {"type": "object", "properties": {}}


class Tools:
    """The server's tools, and what was asked of them."""

    def __init__(self, journal: str | None) -> None:
        self._journal = journal

    def journal(self, line: str) -> None:
        """Leave a line for the test."""
        if self._journal:
            with open(self._journal, "a") as opened:
                opened.write(f"{line}\n")

    async def listed(self, context: Any, params: Any) -> types.ListToolsResult:
        """All tools."""
        names = ("count", "header", "exiting", "waiting", "image")
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=EMPTY) for name in names])

    async def called(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run one."""
        self.journal(f"call {params.name}")
        run: Callable[..., Awaitable[Any]] = getattr(self, params.name)
        return types.CallToolResult(content=[await run(context, **(params.arguments or {}))])

    async def count(self, context: Any) -> types.ContentBlock:
        """Nothing but the line in the journal."""
        return types.TextContent(text="count")

    async def header(self, context: Any) -> types.ContentBlock:
        """What came in a header."""
        return types.TextContent(text=context.request.headers.get("x-token", "none"))

    async def exiting(self, context: Any) -> types.ContentBlock:
        """End in the middle of the call."""
        os._exit(5)

    async def image(self, context: Any, size: int) -> types.ContentBlock:
        """That many bytes."""
        return types.ImageContent(data=base64.b64encode(b"0" * size).decode(), mime_type="image/png")

    async def waiting(self, context: Any, seconds: float) -> types.ContentBlock:
        """Wait, or be cancelled."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.journal("cancelled")
            raise
        return types.TextContent(text="waited")


def refusing(status: int) -> Starlette:
    """A server that talks to nobody."""

    async def refuse(request: Request) -> Response:
        return PlainTextResponse("go away", status_code=status)

    return Starlette(routes=[Route("/mcp", refuse, methods=["GET", "POST", "DELETE"])])


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--status", type=int)
    parser.add_argument("--after")
    parser.add_argument("--journal")
    options = parser.parse_args()
    tools = Tools(options.journal)
    server: Server[Any] = Server("web", on_list_tools=tools.listed, on_call_tool=tools.called)
    app = (
        refusing(options.status) if options.status else server.streamable_http_app(json_response=options.json)
    )
    tools.journal("ready")
    while options.after and not Path(options.after).exists():
        time.sleep(0.02)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
