"""Span ids that can be asked for: the OpenTelemetry SDK's `IdGenerator`, without needing the SDK.

    TracerProvider(id_generator=RunIds())

A run's span `invoke_agent` is made when the run has ended, maybe by another process than the one that began
it, while its children and the user's own spans name it as their parent all along. So its id is decided first,
and asked for when the span is made. Spans of others get random ids, as from the SDK.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mainspring.workflows.trace import SpanRef

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.id_generator import IdGenerator as _Base
else:
    _Base = object

__all__ = ["RunIds", "asking_for", "honours"]

_ASKED: ContextVar[SpanRef | None] = ContextVar("mainspring_span", default=None)


class RunIds(_Base):
    """Ids for an OpenTelemetry tracer provider that runs are traced with.

    Args:
        wrapped: The generator that all other spans get their ids from; random ones without it.
    """

    def __init__(self, wrapped: Any = None) -> None:
        self._wrapped = wrapped

    def generate_span_id(self) -> int:
        """A span id: the one asked for, or a new one."""
        asked = _ASKED.get()
        if asked is not None:
            return asked.span_id
        return int(self._wrapped.generate_span_id()) if self._wrapped else secrets.randbits(64) or 1

    def generate_trace_id(self) -> int:
        """A trace id: the one asked for, or a new one."""
        asked = _ASKED.get()
        if asked is not None:
            return asked.trace_id
        return int(self._wrapped.generate_trace_id()) if self._wrapped else secrets.randbits(128) or 1

    def is_trace_id_random(self) -> bool:
        """Whether samplers may rely on the trace ids being random: ours are, also those asked for."""
        known = getattr(self._wrapped, "is_trace_id_random", None) if self._wrapped else None
        return True if known is None and not self._wrapped else bool(known and known())


@contextmanager
def asking_for(ref: SpanRef | None) -> Generator[None]:
    """Spans that are started in the block, on this thread, get the ids of `ref`; of None, new ones."""
    token = _ASKED.set(ref)
    try:
        yield
    finally:
        _ASKED.reset(token)


def honours(provider: Any) -> bool:
    """Whether a tracer provider gives a span the id that is asked for: its generator is, or wraps, ours."""
    generator = getattr(provider, "id_generator", None)
    generate = getattr(generator, "generate_span_id", None)
    if generate is None and callable(generator):  # Temporal's replay-safe provider has a method of that name
        generate = getattr(generator(), "generate_span_id", None)
    if generate is None:
        return False
    probe = SpanRef(secrets.randbits(128) or 1, secrets.randbits(64) or 1)
    with asking_for(probe):
        return bool(generate() == probe.span_id)
