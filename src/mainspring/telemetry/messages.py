"""Content as attributes: messages, arguments and results, in the JSON of the GenAI conventions. Bounded.

Only called where `telemetry.content` is on.

Source: OpenTelemetry semantic conventions, "Recording content on attributes".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mainspring.schemas.ledger import Entry
from mainspring.telemetry.told import Content
from mainspring.workflows.values import render

__all__ = ["of_chat", "of_run", "of_tool"]

PART_CHARACTERS = 8_192
"""Of one text, argument or result; more of it is cut off, and says so."""


def of_chat(content: Content) -> dict[str, Any]:
    """What a model was asked with and what it replied."""
    shown: dict[str, Any] = {"gen_ai.input.messages": _json([_message(entry) for entry in content.entries])}
    if content.instructions:
        shown["gen_ai.system_instructions"] = _json([_text(content.instructions)])
    reply = content.reply
    if reply is not None:
        calls = [_call(None, call.tool, call.arguments) for call in reply.calls]
        parts = [*([_text(reply.text)] if reply.text else []), *calls]
        message = {"role": "assistant", "parts": parts, "finish_reason": reply.finish_reason}
        shown["gen_ai.output.messages"] = _json([message])
    return shown


def of_tool(content: Content, call_id: str) -> dict[str, Any]:
    """The arguments of a call and what was observed of it."""
    shown: dict[str, Any] = {}
    for entry in content.entries:
        for call in entry.calls:
            if call.id == call_id:
                shown["gen_ai.tool.call.arguments"] = _cut(render(call.arguments))
        if entry.call_id == call_id:
            shown["gen_ai.tool.call.result"] = _cut(render(entry.content))
    return shown


def of_run(content: Content) -> dict[str, Any]:
    """The first message of a run and its last reply."""
    shown: dict[str, Any] = {}
    if content.instructions:
        shown["gen_ai.system_instructions"] = _json([_text(content.instructions)])
    if content.entries:
        shown["gen_ai.input.messages"] = _json([_message(content.entries[0])])
    if len(content.entries) > 1:
        shown["gen_ai.output.messages"] = _json([_message(content.entries[-1])])
    return shown


def _message(entry: Entry) -> dict[str, Any]:
    if entry.kind == "observation":
        part = {"type": "tool_call_response", "id": entry.call_id, "response": _cut(render(entry.content))}
        return {"role": "tool", "parts": [part]}
    calls = [_call(call.id, call.tool, call.arguments) for call in entry.calls]
    text = render(entry.content)
    return {"role": entry.role, "parts": [*([_text(text)] if text else []), *calls]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": _cut(text)}


def _call(call_id: str | None, tool: str, arguments: Any) -> dict[str, Any]:
    shown = {"type": "tool_call", "name": tool, "arguments": _cut(render(arguments))}
    return shown if call_id is None else {**shown, "id": call_id}


def _cut(text: str) -> str:
    return text if len(text) <= PART_CHARACTERS else text[: PART_CHARACTERS - 1] + "…"


def _json(value: Sequence[Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
