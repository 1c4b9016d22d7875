"""A worker process whose spans go to a file, one line each: what is in it outlives the process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from temporalio.client import Client
from temporalio.worker import Worker

from mainspring.plugin import MainspringPlugin
from mainspring.telemetry import RunIds

__all__ = ["spans_in", "start_worker"]

TESTS = Path(__file__).resolve().parents[1]


class ToFile(SpanExporter):
    """Appends each span to a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write them, whole lines at once."""
        lines = "".join(json.dumps(json.loads(span.to_json(indent=None))) + "\n" for span in spans)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(lines)
        return SpanExportResult.SUCCESS


def spans_in(path: Path) -> list[dict[str, Any]]:
    """Every span of the file, in the order of their start."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return sorted((json.loads(line) for line in lines), key=lambda span: str(span["start_time"]))


def start_worker(config: Path, address: str, task_queue: str, spans: Path) -> subprocess.Popen[bytes]:
    """Start a worker process; whoever starts it ends it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, str(Path(__file__).resolve()), str(config), address, task_queue, str(spans)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


async def _serve(config: str, address: str, task_queue: str, spans: str) -> None:
    from support.tools import observe

    provider = TracerProvider(id_generator=RunIds())
    provider.add_span_processor(SimpleSpanProcessor(ToFile(spans)))
    trace.set_tracer_provider(provider)
    client = await Client.connect(address, plugins=[MainspringPlugin.from_file(config, tools=[observe])])
    parent = os.getppid()
    sticky = timedelta(seconds=0.2)
    async with Worker(client, task_queue=task_queue, sticky_queue_schedule_to_start_timeout=sticky):
        while os.getppid() == parent:
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(*sys.argv[1:]))
    os._exit(0)
