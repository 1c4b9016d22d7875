"""What the model is shown of an MCP result: everything that it can use, once, and no base64.

Source: shared design, tools.md "MCP"; field-faults.md D3, J12, J13.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types

from mainspring.activities.outcomes import Binary, Returned
from mainspring.schemas.base import JsonValue
from mainspring.workflows.values import Parsed, clip, parse_json, render, safe_value

__all__ = ["returned"]


def returned(result: types.CallToolResult) -> Returned:
    """The result as content and binary parts."""
    binaries: list[Binary] = []
    parts = [_part(block, binaries) for block in result.content]
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    structured = safe_value(result.structured_content)
    content: JsonValue = "\n".join(parts)
    if structured is not None:
        content = _joined(parts, texts, structured)
    if result.is_error and content in ("", None):
        content = "the tool failed, and said nothing about it"
    return Returned(content, is_error=result.is_error, binaries=binaries)


def _joined(parts: Sequence[str], texts: Sequence[str], structured: JsonValue) -> JsonValue:
    """Text and structure; servers often say the same in both, and then it is kept once."""
    if not parts:
        return structured
    if len(texts) == len(parts) and _says_the_same(texts, structured):
        inner = structured.get("result") if isinstance(structured, dict) else None
        wrapped = isinstance(structured, dict) and list(structured) == ["result"]
        # A wrapped plain text is the text; anything else is more compact as structure.
        return inner if wrapped and isinstance(inner, str) else structured
    return "\n".join([*parts, f"[structured content] {render(structured)}"])


def _says_the_same(texts: Sequence[str], structured: JsonValue) -> bool:
    whole = "\n".join(texts)
    candidates: list[Any] = [structured]
    if isinstance(structured, dict) and list(structured) == ["result"]:
        candidates.append(structured["result"])
    if whole in candidates:
        return True
    values = [_read(text) for text in texts]
    return (len(values) == 1 and values[0] in candidates) or values in candidates or texts in candidates


def _read(text: str) -> Any:
    if text[:1] not in '{["-0123456789tfn':
        return text
    parsed = parse_json(text)
    return parsed.value if isinstance(parsed, Parsed) else text


def _part(block: types.ContentBlock, binaries: list[Binary]) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return _binary(block.data, block.mime_type, None, binaries)
        case types.ResourceLink():
            return _link(block)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            kind = f" ({clip(resource.mime_type, 100)})" if resource.mime_type else ""
            return f"[resource {clip(str(resource.uri), 500)}{kind}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            name = posixpath.basename(urlsplit(str(resource.uri)).path) or None
            shown = _binary(resource.blob, resource.mime_type, name, binaries)
            return f"[resource {clip(str(resource.uri), 500)}] {shown}"
    return render(safe_value(block))


def _link(link: types.ResourceLink) -> str:
    about = [clip(link.mime_type, 100)] if link.mime_type else []
    about += [f"{link.size:,} bytes"] if link.size is not None else []
    shown = f"[link to resource {clip(str(link.uri), 500)}: {clip(link.title or link.name, 200)}"
    shown += f" ({', '.join(about)})]" if about else "]"
    return f"{shown} {clip(link.description, 1_000)}" if link.description else shown


def _binary(data: str, media_type: str | None, name: str | None, binaries: list[Binary]) -> str:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{clip(media_type or 'file', 100)} that is not valid base64, {len(data):,} characters]"
    binary = Binary(raw, media_type, name)
    binaries.append(binary)
    return binary.placeholder()
