"""See a run as an OpenTelemetry trace: `python examples/tracing.py`; it needs no key and no collector.

It starts an embedded Temporal and a worker, and asks a scripted agent about the weather. OpenTelemetry's own
console exporter prints each span when it ends; then the whole trace is printed as a tree, and some figures.

What is particular to Mainspring is one line: `TracerProvider(id_generator=RunIds())`. Everything else is the
OpenTelemetry SDK as any program sets it up; to send the same to a collector, put an OTLP exporter where the
console's is (docs/telemetry.md).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client
from temporalio.worker import Worker

from mainspring.client import start_run
from mainspring.embedded import embedded
from mainspring.plugin import MainspringPlugin
from mainspring.process import end_process
from mainspring.telemetry import RunIds
from mainspring.tools import tool

QUESTION = "Do I need an umbrella in Lisbon or in Bergen?"
SCRIPT = {
    "replies": [
        {
            "calls": [{"tool": "weather", "arguments": {"city": city}} for city in ("Lisbon", "Bergen")],
            "usage": {"input_tokens": 420, "output_tokens": 30},
            "delay": 0.2,
        },
        {
            "text": "In Bergen you do.",
            "usage": {"input_tokens": 480, "output_tokens": 12},
            "delay": 0.1,
        },
    ]
}
CONFIG = {
    "models": {"scripted": {"script": "script.yaml"}},
    "agents": {"weatherman": {"model": "scripted", "instructions": "Answer briefly.", "tools": ["weather"]}},
}
SHOWN = {
    "mainspring.outcome": "outcome",
    "gen_ai.usage.input_tokens": "in",
    "gen_ai.usage.output_tokens": "out",
    "gen_ai.response.finish_reasons": "finish",
    "mainspring.status": "status",
}


@tool(effects="read", observes=True)
async def weather(city: str) -> str:
    """Tell the weather in a city.

    Args:
        city: Its name.
    """
    # A span of the tool's own, as an instrumented HTTP client makes one: it hangs from this very call.
    with trace.get_tracer("weather").start_as_current_span("GET /forecast"):
        await asyncio.sleep(0.05)
    return "rain" if city == "Bergen" else "sun"


async def main() -> None:
    """Run once and show what was told."""
    spans, figures = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider(id_generator=RunIds())
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stdout, formatter=line_of)))
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider(metric_readers=[figures]))

    print("as they end:")
    with tempfile.TemporaryDirectory(prefix="mainspring-tracing-") as name:
        Path(name, "script.yaml").write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
        Path(name, "mainspring.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        plugin = MainspringPlugin.from_file(Path(name, "mainspring.yaml"), tools=[weather])
        async with embedded() as server:
            client = await Client.connect(server.address, plugins=[plugin])
            async with Worker(client, task_queue="mainspring"):
                with trace.get_tracer("caller").start_as_current_span("handle request"):
                    run = await start_run(client, agent="weatherman", prompt=QUESTION)
                    result = await run.result()

    print(f"\nthe answer: {result.answer}\n\nthe trace:")
    for line in tree(spans.get_finished_spans()):
        print(line)
    print("\nfigures:")
    for line in sorted(figure_lines(figures)):
        print(line)


def line_of(span: ReadableSpan) -> str:
    """One span on one line."""
    seconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e9
    attributes = span.attributes or {}
    found = {short: attributes[name] for name, short in SHOWN.items() if name in attributes}
    shown = [f"{short}={value[0] if isinstance(value, tuple) else value}" for short, value in found.items()]
    return f"{span.name:<24} {seconds:6.3f} s  {' '.join(shown)}".rstrip() + "\n"


def tree(spans: Sequence[ReadableSpan]) -> Iterator[str]:
    """The spans of a trace, each under its parent, in the order of their start."""
    ordered = sorted(spans, key=lambda span: span.start_time or 0)

    def under(parent: int | None, depth: int) -> Iterator[str]:
        for span in ordered:
            if (span.parent.span_id if span.parent else None) == parent:
                yield "  " * depth + line_of(span).rstrip()
                yield from under(span.context.span_id, depth + 1)

    yield from under(None, 1)


def figure_lines(reader: InMemoryMetricReader) -> Iterator[str]:
    """Sums of the metrics that were recorded."""
    found = reader.get_metrics_data()
    for resource in found.resource_metrics if found else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = metric.data.data_points
                total = sum(getattr(point, "value", None) or getattr(point, "sum", 0) for point in points)
                yield f"  {metric.name:<44} {total:g} {metric.unit}"


if __name__ == "__main__":
    asyncio.run(main())
    end_process(0)
