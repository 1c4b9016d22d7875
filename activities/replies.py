"""From what a provider sent to what enters the ledger: parsed, checked, made safe, bounded.

One path for every provider, the scripted one included.

Source: shared design, loop.md "Whole-batch checks", "Text fallback"; temporal-facts.md 4 and 10.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mainspring.activities.arguments import RawCall, parse_calls, size_of
from mainspring.activities.setup import Offer, Setup
from mainspring.schemas.activities import FinishReason, ModelReply, Usage
from mainspring.schemas.base import JsonValue
from mainspring.schemas.ledger import Thinking
from mainspring.schemas.tools import BlobRef
from mainspring.workflows.envelope import calls_in_text, split_thinking
from mainspring.workflows.values import Malformed, clip, parse_json, preview, safe_text, safe_value

__all__ = ["RawReply", "WritesBlobs", "read_reply"]

TEXT_BYTES = 512 * 1024
THINKING_BYTES = 256 * 1024
ARGUMENTS_BYTES = 1_500_000
REPLY_BYTES = 1_750_000
"""Of the 1.9 MB that a payload may have; the rest is for names, problems and braces."""
OUTPUT_BYTES = 900_000
_FENCED = re.compile(r"```[A-Za-z0-9_-]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)


class WritesBlobs(Protocol):
    """The part of the blob store that writes."""

    async def put(self, data: bytes, media_type: str) -> BlobRef:
        """Store content under its digest."""
        ...


@dataclass(frozen=True, slots=True)
class RawReply:
    """A reply as a provider sent it, in our words but unchecked."""

    text: str = ""
    calls: tuple[RawCall, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage | None = None
    model: str | None = None


async def read_reply(
    raw: RawReply, setup: Setup, offer: Offer, blobs: WritesBlobs | None, first_token_ms: int | None = None
) -> ModelReply:
    """Read a provider's reply. Nothing that a model can write makes this raise."""
    raw = _opened(raw, setup)
    text, text_blob = await _bounded_text(raw.text, blobs)
    thinking = _bounded_thinking(raw.thinking)
    room = REPLY_BYTES - size_of(text) - sum(_thinking_size(block) for block in thinking)
    calls = parse_calls(
        raw.calls,
        setup.catalog,
        offer,
        setup.armed.spec.limits,
        bytes_max=min(ARGUMENTS_BYTES, room),
        cut_short=raw.finish_reason == "length",
    )
    output: JsonValue = None
    problem = None
    if setup.output is not None and not calls:
        output, problem = _output(raw.text, setup)
    return ModelReply(
        text=text,
        calls=calls,
        thinking=thinking,
        finish_reason=raw.finish_reason,
        usage=raw.usage,
        output=output,
        output_problem=problem,
        text_blob=text_blob,
        first_token_ms=first_token_ms,
        model=None if raw.model is None else clip(safe_text(raw.model), 200),
    )


def _opened(raw: RawReply, setup: Setup) -> RawReply:
    """The reply with the calls that stand in its text, when it has no others, and without tagged thinking."""
    if not raw.text:
        return raw
    safe = safe_text(raw.text)
    calls, text = raw.calls, safe
    if not calls and setup.catalog.definitions:
        text, enveloped = calls_in_text(safe, lambda name: setup.catalog.find(name) is not None)
        calls = tuple(RawCall(call.name, call.arguments) for call in enveloped)
    thought = split_thinking(text)
    if thought.thinking is None:
        return replace(raw, text=text, calls=calls)
    block = Thinking(text=thought.thinking)
    return replace(raw, text=thought.text, calls=calls, thinking=(*raw.thinking, block))


async def _bounded_text(text: str, blobs: WritesBlobs | None) -> tuple[str, BlobRef | None]:
    """The text, or its head and tail with the whole in the blob store."""
    if len(text) * 12 <= TEXT_BYTES or size_of(text) <= TEXT_BYTES:
        return text, None
    ref = None
    if blobs is not None:
        try:
            ref = await blobs.put(text.encode(), "text/plain; charset=utf-8")
        except Exception:  # the reply is paid for: better its head and tail than a second call
            ref = None
    # A character takes at most 4 bytes of UTF-8 and 12 of a payload: a third of the room always fits.
    return preview(text, limit=TEXT_BYTES // 3), ref


def _bounded_thinking(blocks: Sequence[Thinking]) -> tuple[Thinking, ...]:
    """The newest blocks that fit: whole or not at all, since providers sign them."""
    kept: list[Thinking] = []
    left = THINKING_BYTES
    for block in reversed(blocks):
        left -= _thinking_size(block)
        if left < 0:
            break
        kept.append(block)
    return tuple(reversed(kept))


def _thinking_size(block: Thinking) -> int:
    return size_of(block.text) + len(block.signature or "") + 200 + size_of(block.details or {})


def _output(text: str, setup: Setup) -> tuple[JsonValue, str | None]:
    """The text as the answer that the output schema asks for, or why it is not."""
    assert setup.output is not None
    stripped = text.strip()
    fenced = _FENCED.fullmatch(stripped)
    parsed = parse_json(fenced[1] if fenced else stripped)
    if isinstance(parsed, Malformed):
        return None, f"the answer is not one JSON value: {parsed.why}"
    value = safe_value(parsed.value)
    if problem := setup.output.problem(value):
        return None, f"the answer does not meet the output schema: {problem}"
    size = len(json.dumps(value))
    if size > OUTPUT_BYTES:
        return None, f"the answer takes {size} bytes; at most {OUTPUT_BYTES} are allowed"
    return value, None
