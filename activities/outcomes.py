"""From what a tool returned to what goes into history: made safe, bounded, binary parts in the blob store.

Whatever a tool does, its result is at most `RESULT_BYTES_MAX` on the wire, and what was left out lies in the
blob store under its digest.

Source: shared design, loop.md "Whole-batch checks" (spilling); temporal-facts.md 4 and 10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mainspring.activities.blobs import BlobStore
from mainspring.activities.functions import ToolError
from mainspring.schemas.base import JsonValue, wire
from mainspring.schemas.tools import BlobRef, ToolOutcome
from mainspring.workflows.values import clip, preview, render, safe_value

__all__ = ["SPILL_BYTES", "Binary", "Returned", "failure", "settle"]

SPILL_BYTES = 16_384
RESULT_BYTES_MAX = 1_500_000
BINARIES_MAX = 32
BINARY_DEPTH_MAX = 8

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


@dataclass(frozen=True, slots=True)
class Binary:
    """Bytes in a result; a tool may return one, or have some anywhere in its result.

    Args:
        media_type: What they are; recognised for the commonest kinds where it is None.
    """

    data: bytes
    media_type: str | None = None
    name: str | None = None

    @property
    def kind(self) -> str:
        """The media type, at most 100 characters."""
        known = next((kind for mark, kind in _SIGNATURES if self.data.startswith(mark)), None)
        return clip(self.media_type or known or "application/octet-stream", 100)

    def placeholder(self) -> str:
        """What the model reads in their place."""
        called = f" {clip(self.name, 100)}" if self.name else ""
        return f"[file{called}: {self.kind}, {len(self.data):,} bytes]"


@dataclass(frozen=True, slots=True)
class Returned:
    """A result whose binary parts have been taken out of its content."""

    content: Any = ""
    is_error: bool = False
    binaries: Sequence[Binary] = ()
    files: Sequence[BlobRef] = ()
    spilled: BlobRef | None = None
    not_applied: bool = False


def failure(error: BaseException) -> Returned:
    """The error observation of a tool that raised: the type is named even where there is no message."""
    try:
        message = str(error)
    except Exception:
        message = ""
    kind = "" if isinstance(error, ToolError) and message else type(error).__name__
    text = ": ".join(part for part in (kind, message) if part)
    return Returned(text, is_error=True, not_applied=getattr(error, "not_applied", False) is True)


async def settle(value: Any, blobs: BlobStore, spill_bytes: int = SPILL_BYTES) -> ToolOutcome:
    """The outcome of a call, safe and bounded. Never raises for a value.

    A blob store that cannot be written costs the part that it would have held, not the result: the tool may
    have acted, and that must not be forgotten.
    """
    returned = _taken_apart(value)
    content = safe_value(returned.content)
    files = list(returned.files)[:BINARIES_MAX]
    for binary in returned.binaries:
        stored = await _stored(blobs, binary) if len(files) < BINARIES_MAX else "too many files"
        if isinstance(stored, BlobRef):
            files.append(stored)
        else:
            content = f"{render(content)}\n[not kept: {binary.placeholder()}: {stored}]"
    outcome = ToolOutcome(
        content=content,
        is_error=returned.is_error,
        files=tuple(files),
        spilled=returned.spilled,
        not_applied=returned.not_applied,
    )
    return outcome if _fits(outcome, spill_bytes) else await _spill(outcome, blobs)


def _taken_apart(value: Any) -> Returned:
    if isinstance(value, Returned):
        return value
    if isinstance(value, ToolOutcome):
        return Returned(
            value.content, value.is_error, (), value.files, value.spilled, not_applied=value.not_applied
        )
    binaries: list[Binary] = []
    return Returned(_without_binaries(value, binaries, BINARY_DEPTH_MAX), binaries=binaries)


def _without_binaries(value: Any, found: list[Binary], depth: int) -> Any:
    """The value with a placeholder for each binary part, which is added to `found`."""
    if isinstance(value, bytes | bytearray | memoryview):
        value = Binary(bytes(value))
    if isinstance(value, Binary):
        found.append(value)
        return value.placeholder()
    if depth > 0 and type(value) is dict:
        return {key: _without_binaries(item, found, depth - 1) for key, item in value.items()}
    if depth > 0 and type(value) in (list, tuple):
        return [_without_binaries(item, found, depth - 1) for item in value]
    return value


async def _stored(blobs: BlobStore, binary: Binary) -> BlobRef | str:
    """The reference, or why there is none."""
    try:
        return await blobs.put(binary.data, binary.kind, binary.name)
    except Exception as error:
        return f"the blob store failed with {type(error).__name__}"


def _fits(outcome: ToolOutcome, spill_bytes: int) -> bool:
    """Whether the content is within the bound; escaped, a text may be six times its size on the wire."""
    if len(render(outcome.content).encode()) > spill_bytes:
        return False
    return len(json.dumps(wire(outcome))) <= RESULT_BYTES_MAX


async def _spill(outcome: ToolOutcome, blobs: BlobStore) -> ToolOutcome:
    content: JsonValue = outcome.content
    text = render(content)
    kind = "text/plain; charset=utf-8" if isinstance(content, str) else "application/json"
    stored = await _stored(blobs, Binary(text.encode(), kind))
    if isinstance(stored, BlobRef):
        return outcome.model_copy(update={"content": preview(text), "spilled": outcome.spilled or stored})
    return outcome.model_copy(update={"content": preview(text, note=f", and lost: {stored}")})


def limit_of(limits: object, declared: int | None) -> int:
    """The spill bound of one call: what the workflow sent, else what the tool declares, else the default."""
    sent = limits.get("spill_bytes") if isinstance(limits, Mapping) else None
    if isinstance(sent, int) and not isinstance(sent, bool) and sent > 0:
        return sent
    return declared or SPILL_BYTES
