"""The trace of a run: which span hangs from which, and under which id. Pure.

A span's id is made from the run's root and from what the span is about, so that an activity can name the span
that it works for before that span exists, and so that a task that is done twice makes the same span again.

Source: W3C Trace Context, "traceparent Header"; shared design, loop.md "Events".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import blake2b

from mainspring.schemas.activities import Trace

__all__ = ["SpanRef", "for_child", "of_call", "of_turn", "read", "root", "root_of", "write"]

SAMPLED = 1
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A span by its ids, 128 and 64 bits, and the flags of W3C Trace Context; neither id is 0."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED

    @property
    def sampled(self) -> bool:
        """Whether its trace is recorded."""
        return bool(self.flags & SAMPLED)


def read(traceparent: str | None) -> SpanRef | None:
    """The span that a traceparent names; None where it names none or is malformed."""
    text = traceparent or ""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or (text.startswith("00") and found[4]):  # only later versions may say more
        return None
    ref = SpanRef(int(found[1], 16), int(found[2], 16), int(found[3], 16))
    return ref if ref.trace_id and ref.span_id else None


def write(ref: SpanRef) -> str:
    """The traceparent of a span."""
    return f"00-{ref.trace_id:032x}-{ref.span_id:016x}-{ref.flags:02x}"


def root(run_id: str, parent: SpanRef | None, flags: int = SAMPLED) -> SpanRef:
    """The span of a run that was started as `run_id`: in its parent's trace, or in a trace of its own."""
    trace_id = parent.trace_id if parent else _digest(run_id, "trace", 16)
    return SpanRef(trace_id, _digest(run_id, "root", 8), flags)


def root_of(trace: Trace) -> SpanRef:
    """The span `invoke_agent` of a run."""
    found = read(trace.traceparent)
    assert found is not None, "an arming record holds a traceparent that we wrote"
    return found


def of_turn(trace: Trace, turn: int) -> SpanRef:
    """The span `chat` of a turn, fallbacks included; the root where ids are not ours to choose."""
    return _below(trace, f"turn {turn}")


def of_call(trace: Trace, call_id: str) -> SpanRef:
    """The span `execute_tool` of a call; the root where ids are not ours to choose."""
    return _below(trace, f"call {call_id}")


def for_child(trace: Trace | None, call_id: str) -> str | None:
    """What a run that is started for a call takes as its `traceparent`; None where nothing is traced."""
    return None if trace is None else write(of_call(trace, call_id))


def _below(trace: Trace, what: str) -> SpanRef:
    ref = root_of(trace)
    if not trace.exact:
        return ref
    return replace(ref, span_id=_digest(f"{ref.trace_id:032x}{ref.span_id:016x}", what, 8))


def _digest(of: str, what: str, size: int) -> int:
    """A number of `size` bytes, never 0, which no id may be."""
    text = f"{len(of)}:{of}{what}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, digest_size=size).digest()) or 1
