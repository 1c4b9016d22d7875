"""An MCP server over stdio, built with the official SDK, whose tools are named on its command line.

    python tools.py NAME=DESCRIPTION …

Each answers `<server's process> <name>`; nothing else is done.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = dict(argument.split("=", 1) for argument in sys.argv[1:])


async def listed(context: Any, params: Any) -> types.ListToolsResult:
    """All tools."""
    tools = [types.Tool(name=name, description=text, input_schema=EMPTY) for name, text in TOOLS.items()]
    return types.ListToolsResult(tools=tools)


async def called(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Say which was called."""
    return types.CallToolResult(content=[types.TextContent(text=f"server: {params.name}")])


async def main() -> None:
    """Serve until the client has gone."""
    server: Any = Server("tools", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


asyncio.run(main())
