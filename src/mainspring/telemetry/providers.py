"""The OpenTelemetry providers that a process has, behind what telemetry asks of them.

Nothing here imports the SDK: what only it has is looked for by name, and done without where it is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from opentelemetry import _logs, metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from mainspring.telemetry.ids import honours
from mainspring.workflows.trace import SAMPLED, SpanRef

__all__ = ["SCHEMA_URL", "SCOPE", "Providers", "context_of", "ref_of", "scope_version"]

SCOPE = "mainspring"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
"""The semantic conventions that names are taken from; those of GenAI are in development there."""

RANDOM_TRACE_ID = 2
"""A flag of W3C Trace Context, level 2: whoever samples by the trace id may."""
_EMPTY = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


@cache
def scope_version() -> str | None:
    """The version of this package; None where it is not installed."""
    try:
        return version(SCOPE)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Providers:
    """Where telemetry goes: the process's global providers, where nothing else is said.

    Args:
        tracer: A `TracerProvider`.
        meter: A `MeterProvider`.
        logger: A `LoggerProvider`.
    """

    tracer: trace.TracerProvider | None = None
    meter: metrics.MeterProvider | None = None
    logger: _logs.LoggerProvider | None = None

    def tracing(self) -> trace.TracerProvider | None:
        """The tracer provider; None where the process has only the API's stand-in."""
        found = self.tracer or trace.get_tracer_provider()
        return None if isinstance(found, _EMPTY) else found

    def metering(self) -> metrics.MeterProvider:
        """The meter provider; the API's own does nothing until there is a real one."""
        return self.meter or metrics.get_meter_provider()

    def logging(self) -> _logs.LoggerProvider:
        """The logger provider; the API's own does nothing until there is a real one."""
        return self.logger or _logs.get_logger_provider()

    def exact(self) -> bool:
        """Whether spans get the ids that are asked for."""
        return honours(self.tracing())

    def flags(self, name: str, trace_id: int, parent: SpanRef | None, attributes: dict[str, Any]) -> int:
        """The trace flags of a span that will be made: what the provider's sampler says of it now."""
        random = _random_flag(self.tracing()) if parent is None else parent.flags & ~SAMPLED
        sampler = _sampler(self.tracing())
        if sampler is None:
            return random | (SAMPLED if parent is None else parent.flags & SAMPLED)
        context, kind = context_of(parent), trace.SpanKind.INTERNAL
        result = sampler.should_sample(context, trace_id, name, kind, attributes, ())
        return random | (SAMPLED if result.decision.is_sampled() else 0)

    def flush(self, seconds: float) -> None:
        """Have the providers send what they hold; after `seconds` nobody waits for it any longer."""
        providers: Sequence[Any] = (self.tracing(), self.metering(), self.logging())

        def send() -> None:
            for provider in providers:
                force = getattr(provider, "force_flush", None)
                if force is not None:
                    with suppress(Exception):  # whatever an exporter raises: what it lost is lost
                        force(int(seconds * 1_000))

        thread = threading.Thread(target=send, name="mainspring-telemetry-flush", daemon=True)
        thread.start()
        thread.join(seconds)


def _sampler(provider: Any) -> Any:
    """A provider's sampler, or that of the one it wraps, as Temporal's replay-safe provider does."""
    for holder in (provider, getattr(provider, "_tracer_provider", None)):
        found = getattr(holder, "sampler", None)
        if found is not None:
            return found
    return None


def _random_flag(provider: Any) -> int:
    generator = getattr(provider, "id_generator", None)
    known = getattr(generator, "is_trace_id_random", None)
    return RANDOM_TRACE_ID if known is not None and known() else 0


def context_of(ref: SpanRef | None) -> Context:
    """A context in which that span is current, or none; nothing else is in it."""
    if ref is None:
        return Context()
    flags = TraceFlags(ref.flags)
    span = NonRecordingSpan(SpanContext(ref.trace_id, ref.span_id, is_remote=True, trace_flags=flags))
    return trace.set_span_in_context(span, Context())


def ref_of(span: trace.Span) -> SpanRef | None:
    """A span as we name it; None when it is no real one."""
    found = span.get_span_context()
    return SpanRef(found.trace_id, found.span_id, int(found.trace_flags)) if found.is_valid else None
