"""The worker process sets the SDK up as the standard variables say."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from temporalio.client import Client

from mainspring.embedded import Server
from mainspring.telemetry.sdk import asked_for, sdk_from_environment
from mainspring.testing import configuration

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, {}),
        ({ENDPOINT: "http://collector:4317"}, {"traces": "otlp", "metrics": "otlp", "logs": "otlp"}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, {"traces": "otlp"}),
        ({"OTEL_TRACES_EXPORTER": "console"}, {"traces": "console"}),
        (
            {ENDPOINT: "http://collector:4317", "OTEL_LOGS_EXPORTER": "none"},
            {"traces": "otlp", "metrics": "otlp"},
        ),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, {"metrics": "otlp"}),
        ({ENDPOINT: "http://collector:4317", "OTEL_SDK_DISABLED": "true"}, {}),
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, {}),
        ({ENDPOINT: ""}, {}),
    ],
)
def test_exporters_are_chosen_by_the_standard_variables(
    environ: Mapping[str, str], asked: Mapping[str, str]
) -> None:
    """An endpoint means all signals, `…_EXPORTER` one of them; nothing is asked for where nothing is said."""
    assert asked_for(environ) == asked


def test_unknown_exporter_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """An exporter that is not known is named, with those that are."""
    asked_for({"OTEL_TRACES_EXPORTER": "jaeger"})
    assert caplog.messages == ["OTEL_TRACES_EXPORTER=jaeger is not known; known: otlp, console, none"]


def test_missing_extra_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Asked for and not installed: one line that says what to install, and the process goes on untraced."""
    caplog.set_level(logging.INFO, logger="mainspring.telemetry")
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    before = trace.get_tracer_provider()
    with sdk_from_environment():
        assert trace.get_tracer_provider() is before
    [line] = caplog.messages
    assert line.endswith("is not installed: pip install 'mainspring[otel]'")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "foo"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "foo"),
    ],
)
def test_unknown_protocol_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, named: str
) -> None:
    """It is named with its variable and with those that are known; nothing is said to be missing."""
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv(variable, named)
    before = trace.get_tracer_provider()
    with sdk_from_environment():
        assert trace.get_tracer_provider() is before
    assert caplog.messages == [f"{variable}: {named!r} is not known here; known: grpc, http/protobuf"]


@dataclass(slots=True)
class Collector:
    """What an OTLP endpoint was sent, by path."""

    endpoint: str
    bodies: dict[str, list[bytes]] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take requests until the other side goes."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                self.bodies.setdefault(head[0].split(" ")[1], []).append(body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def collector() -> AsyncGenerator[Collector]:
    """An OTLP endpoint on a free port."""
    found = Collector("")
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    async with server:
        found.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


async def test_worker_sends_what_its_runs_told_before_it_ends(server: Server, tmp_path: Path) -> None:
    """`mainspring worker` with an OTLP endpoint: spans, metrics and logs have arrived when it has ended."""
    queue, run_id = f"queue-{uuid4().hex[:12]}", f"run-{uuid4().hex[:12]}"
    configuration(tmp_path, [{"text": "Done."}], config={"task_queue": queue})
    async with collector() as sink:
        environ = {
            **os.environ,
            "TEMPORAL_ADDRESS": server.address,
            ENDPOINT: sink.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
        }
        command = [sys.executable, "-m", "mainspring.worker"]
        process = subprocess.Popen(command, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL)
        try:
            client = await Client.connect(server.address)
            request = {"agent": "tested", "prompt": "go"}
            handle = await client.start_workflow("AgentRun", request, id=run_id, task_queue=queue)
            await asyncio.wait_for(handle.result(), 40)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(asyncio.to_thread(process.wait), 30) == 0
        finally:
            process.kill()
    spans, logs, metrics = (
        ExportTraceServiceRequest(),
        ExportLogsServiceRequest(),
        ExportMetricsServiceRequest(),
    )
    for message, path in ((spans, "traces"), (logs, "logs"), (metrics, "metrics")):
        for body in sink.bodies[f"/v1/{path}"]:
            message.MergeFromString(body)
    resource = {item.key: item.value.string_value for item in spans.resource_spans[0].resource.attributes}
    found = [span for item in spans.resource_spans for scope in item.scope_spans for span in scope.spans]
    assert resource["service.name"] == "mainspring-worker"
    assert len(resource["service.instance.id"]) == 36
    assert sorted(span.name for span in found) == ["chat default", "invoke_agent tested"]
    [root] = [span for span in found if not span.parent_span_id]
    assert {span.parent_span_id for span in found} == {b"", root.span_id}
    names = {
        metric.name
        for item in metrics.resource_metrics
        for scope in item.scope_metrics
        for metric in scope.metrics
    }
    assert {"mainspring.runs", "gen_ai.client.token.usage"} <= names
    assert logs.resource_logs
