"""Answers of an MCP server, mended before the SDK judges them.

The SDK refuses a whole page of tools for one malformed tool, and a whole result for one odd block, after the
call has run. Here one bad tool costs that tool, with a note; an odd block becomes text.

Source: shared design, tools.md "MCP"; field-faults.md J15.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import methods
from pydantic import TypeAdapter, ValidationError

from mainspring.workflows.values import clip, render, safe_value

__all__ = ["Screen", "mend_result", "mend_tools"]

VERSION = "2025-11-25"
_BLOCK: TypeAdapter[Any] = TypeAdapter(types.ContentBlock)


class Screen(JSONRPCDispatcher[TransportContext]):
    """A dispatcher whose listings and results are mended; `notes` says what was dropped, and why."""

    def __init__(self, read_stream: Any, write_stream: Any) -> None:
        super().__init__(read_stream, write_stream)
        self.version: str = VERSION
        self.notes: list[str] = []

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **inner: Any
    ) -> dict[str, Any]:
        """Send a request, and mend its result."""
        raw = await super().send_raw_request(method, params, opts, **inner)
        if method == "tools/list":
            mended, notes = mend_tools(raw, self.version)
            self.notes.extend(notes)
            return mended
        return mend_result(raw, self.version) if method == "tools/call" else raw


def mend_tools(raw: Mapping[str, Any], version: str) -> tuple[dict[str, Any], list[str]]:
    """A page of tools without the malformed ones, and a note on each of those."""
    tools: list[Any] = []
    notes: list[str] = []
    listed = raw.get("tools")
    for tool in listed if isinstance(listed, list) else ():
        mended = _mended_tool(tool)
        passing = (item for item in mended if _passes("tools/list", version, {**raw, "tools": [item]}))
        found = next(passing, None)
        if found is not None:
            tools.append(found)
        else:
            name = tool.get("name") if isinstance(tool, Mapping) else tool
            notes.append(f"tool {clip(repr(name), 80)} dropped: its definition or schema is malformed")
    cursor = raw.get("nextCursor")
    kept = {key: value for key, value in raw.items() if key != "nextCursor"}
    return {**kept, **({"nextCursor": cursor} if isinstance(cursor, str) else {}), "tools": tools}, notes


def _mended_tool(tool: Any) -> list[dict[str, Any]]:
    """Only what we read of a tool, at most with its claims, at least without: the better first."""
    if not isinstance(tool, Mapping):
        return []
    schema = tool.get("inputSchema")
    if schema is None or (isinstance(schema, Mapping) and "type" not in schema):
        schema = {"type": "object", **(schema or {})}
    bare: dict[str, Any] = {"name": tool.get("name"), "inputSchema": schema}
    if isinstance(tool.get("description"), str):
        bare["description"] = tool["description"]
    return [{**bare, "annotations": tool["annotations"]}, bare] if tool.get("annotations") else [bare]


def mend_result(raw: dict[str, Any], version: str) -> dict[str, Any]:
    """A call's result with what is malformed in it as text: the call has run, nothing may be lost."""
    if "inputRequests" in raw or _passes("tools/call", version, raw):
        return raw
    content = raw.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    mended = [block if _is_block(block) else _as_text(block) for block in blocks]
    structured = raw.get("structuredContent")
    kept: dict[str, Any] = {"isError": raw.get("isError") is True}
    kept |= {key: raw[key] for key in ("resultType", "_meta") if key in raw}
    if isinstance(structured, dict):
        kept["structuredContent"] = structured
    elif structured is not None:
        mended.append(_as_text(structured))
    return {**kept, "content": mended}


def _passes(method: str, version: str, raw: Mapping[str, Any]) -> bool:
    try:
        methods.validate_server_result(method, version, raw)
    except (ValidationError, RecursionError):
        return False
    except KeyError:
        return True
    return True


def _is_block(block: Any) -> bool:
    try:
        _BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        return False
    return True


def _as_text(block: Any) -> dict[str, str]:
    return {"type": "text", "text": render(safe_value(block))}
