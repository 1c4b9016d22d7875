"""An OpenTelemetry SDK that keeps everything in memory, to be asked what runs have told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from opentelemetry.metrics import Counter, Histogram, NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mainspring.telemetry import Providers, RunIds

__all__ = ["ActiveSpans", "Noting", "Recorded", "nested", "tree_of"]


class ActiveSpans(SpanProcessor):
    """Counts spans that were started and not ended."""

    def __init__(self) -> None:
        self.active = 0
        self.started = 0
        self._lock = threading.Lock()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """One more."""
        with self._lock:
            self.active += 1
            self.started += 1

    def on_end(self, span: ReadableSpan) -> None:
        """One fewer."""
        with self._lock:
            self.active -= 1


class Recorded:
    """Providers, and what they were given.

    Args:
        options: Of the tracer provider; its ids can be asked for unless `id_generator` says otherwise.
    """

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._logs = InMemoryLogRecordExporter()
        self.active = ActiveSpans()
        self.tracer = TracerProvider(**{"id_generator": RunIds(), **options})
        self.tracer.add_span_processor(self.active)
        self.tracer.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter = MeterProvider(metric_readers=[self._reader])
        self.logger = LoggerProvider()
        self.logger.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self.providers = Providers(self.tracer, self.meter, self.logger)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Spans whose name begins so, in the order of their start."""
        found = [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]
        return sorted(found, key=lambda span: span.start_time or 0)

    def logs(self, name: str = "") -> list[Any]:
        """Log records whose event name begins so."""
        kept = [item.log_record for item in self._logs.get_finished_logs()]
        return [record for record in kept if (record.event_name or "").startswith(name)]

    def points(self, name: str) -> list[Any]:
        """Data points of one metric."""
        return [point for metric, point in self._points() if metric == name]

    def total(self, name: str, **attributes: Any) -> float:
        """The sum of a metric over the points that have these attributes; `_` for `.` in their names."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        chosen = [
            point
            for point in self.points(name)
            if all(point.attributes.get(key) == value for key, value in wanted.items())
        ]
        return sum(getattr(point, "value", None) or getattr(point, "sum", 0) for point in chosen)

    def _points(self) -> Iterator[tuple[str, Any]]:
        read = self._reader.get_metrics_data()
        for resource in read.resource_metrics if read else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        yield metric.name, point

    def everything(self) -> str:
        """All that was exported, as text."""
        spans = [span.to_json() for span in self.spans()]
        logs = [
            item.log_record.to_json() if hasattr(item.log_record, "to_json") else repr(vars(item.log_record))
            for item in self._logs.get_finished_logs()
        ]
        points = [f"{name} {json.dumps(dict(point.attributes))}" for name, point in self._points()]
        return "\n".join([*spans, *logs, *points])


class Noting(NoOpMeterProvider):
    """Notes which instruments are made: their names as Prometheus spells them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.plain: set[str] = set()

    def get_meter(self, *args: Any, **options: Any) -> NoOpMeter:
        """A meter that notes."""
        provider = self

        class Meter(NoOpMeter):
            def create_counter(self, name: str, unit: str = "", description: str = "") -> Counter:
                provider.note(name, unit, ("_total",))
                return super().create_counter(name, unit, description)

            def create_histogram(
                self, name: str, unit: str = "", description: str = "", **options: Any
            ) -> Histogram:
                provider.note(name, unit, ("_bucket", "_sum", "_count"))
                return super().create_histogram(name, unit, description, **options)

        return Meter("noting")

    def note(self, name: str, unit: str, ends: tuple[str, ...]) -> None:
        """A unit in braces is no part of the name; seconds are."""
        assert unit == "s" or unit.startswith("{")
        self.plain.add(name)
        spelt = name.replace(".", "_") + ("_seconds" if unit == "s" else "")
        self.names |= {spelt + end for end in ends}


def nested(inner: ReadableSpan, outer: ReadableSpan) -> bool:
    """Whether one span's time lies within another's."""
    assert inner.start_time is not None
    assert inner.end_time is not None
    assert outer.start_time is not None
    assert outer.end_time is not None
    return outer.start_time <= inner.start_time <= inner.end_time <= outer.end_time


def tree_of(spans: list[ReadableSpan]) -> list[tuple[str, str | None]]:
    """Each span's name and that of its parent, in the order of their start."""
    names = {span.context.span_id: span.name for span in spans}
    return [(span.name, names.get(span.parent.span_id, "?") if span.parent else None) for span in spans]
