"""The OpenTelemetry SDK for our own worker process, as the standard OTEL_* variables ask for it.

Only `mainspring worker` uses this: a program of one's own sets its providers itself.

| variable | what it does |
|---|---|
| `OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT` …) | traces, metrics and logs go there |
| `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_LOGS_EXPORTER` | `otlp`, `console` or `none` |
| `OTEL_EXPORTER_OTLP_PROTOCOL` | `grpc` (default) or `http/protobuf` |
| `OTEL_SDK_DISABLED` | `true`: nothing |

The SDK itself reads the others: service name, resource, sampler, headers, intervals, limits.

Source: OpenTelemetry specification, "Environment Variable Specification".
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any
from uuid import uuid4

from opentelemetry import _logs, metrics, trace

from mainspring.telemetry.ids import RunIds
from mainspring.telemetry.providers import Providers

__all__ = ["asked_for", "sdk_from_environment"]

SERVICE = "mainspring-worker"
SHUTDOWN_SECONDS = 10.0
SIGNALS = ("traces", "metrics", "logs")
_CLASSES = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}
_CONSOLE = {
    "traces": ("opentelemetry.sdk.trace.export", "ConsoleSpanExporter"),
    "metrics": ("opentelemetry.sdk.metrics.export", "ConsoleMetricExporter"),
    "logs": ("opentelemetry.sdk._logs.export", "ConsoleLogExporter"),
}
_PROTOCOLS = {"grpc": "grpc", "http/protobuf": "http"}

_log = logging.getLogger("mainspring.telemetry")


def asked_for(environ: Mapping[str, str]) -> dict[str, str]:
    """Which exporter each signal is to have, by the variables; a signal with none is left out."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return {}
    found: dict[str, str] = {}
    for signal in SIGNALS:
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        usual = "otlp" if any(environ.get(name) for name in endpoints) else "none"
        name = environ.get(f"OTEL_{signal.upper()}_EXPORTER") or usual
        if name in ("otlp", "console"):
            found[signal] = name
        elif name != "none":
            _log.warning("OTEL_%s_EXPORTER=%s is not known; known: otlp, console, none", signal.upper(), name)
    return found


@contextmanager
def sdk_from_environment() -> Generator[None]:
    """Set this process's providers where the environment asks for them; what they hold is sent at the end.

    Providers that the process has already are left alone. Where the SDK or an exporter is missing, or a
    protocol is not known, that is said in one line, and nothing is traced.
    """
    asked = asked_for(os.environ)
    closers: list[Callable[[], Any]] = []
    if asked and Providers().tracing() is None:
        try:
            closers = _configure(asked)
        except ImportError as error:
            _log.warning(
                "telemetry is asked for by OTEL_* variables, and %s is not installed: "
                "pip install 'mainspring[otel]'",
                error.name,
            )
        except _UnknownProtocol as error:
            _log.warning("%s", error)
    try:
        yield
    finally:
        _shut_down(closers)


def _configure(asked: Mapping[str, str]) -> list[Callable[[], Any]]:
    """Make and set the providers.

    Raises: ImportError, _UnknownProtocol, before any is set.
    """
    protocols = {signal: _protocol(signal) for signal, name in asked.items() if name == "otlp"}
    exporters = {signal: _exporter(signal, protocols.get(signal)) for signal in asked}
    resource = _resource()
    closers: list[Callable[[], Any]] = []
    if "traces" in exporters:
        sdk, export = _modules("trace")
        tracer = sdk.TracerProvider(id_generator=RunIds(), resource=resource)
        tracer.add_span_processor(export.BatchSpanProcessor(exporters["traces"]))
        trace.set_tracer_provider(tracer)
        closers.append(tracer.shutdown)
    if "metrics" in exporters:
        sdk, export = _modules("metrics")
        reader = export.PeriodicExportingMetricReader(exporters["metrics"])
        meter = sdk.MeterProvider(metric_readers=[reader], resource=resource)
        metrics.set_meter_provider(meter)
        closers.append(meter.shutdown)
    if "logs" in exporters:
        sdk, export = _modules("_logs")
        logger = sdk.LoggerProvider(resource=resource)
        logger.add_log_record_processor(export.BatchLogRecordProcessor(exporters["logs"]))
        _logs.set_logger_provider(logger)
        closers.append(logger.shutdown)
    _log.info("telemetry: %s", ", ".join(f"{signal} to {name}" for signal, name in asked.items()))
    return closers


def _modules(name: str) -> tuple[Any, Any]:
    return import_module(f"opentelemetry.sdk.{name}"), import_module(f"opentelemetry.sdk.{name}.export")


class _UnknownProtocol(ValueError):
    """A variable asks for an OTLP protocol that is none of ours."""


def _protocol(signal: str) -> str:
    """The OTLP protocol of a signal; a variable that is blank counts as none.

    Raises: _UnknownProtocol.
    """
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if named := os.environ.get(variable):
            if named not in _PROTOCOLS:
                raise _UnknownProtocol(
                    f"{variable}: {named!r} is not known here; known: {', '.join(_PROTOCOLS)}"
                )
            return named
    return "grpc"


def _exporter(signal: str, protocol: str | None) -> Any:
    """An exporter: to the console without a protocol; its own settings it reads from the environment.

    Raises: ImportError.
    """
    if protocol is None:
        module, kind = _CONSOLE[signal]
        found = import_module(module)
        newer = kind.replace("LogExporter", "LogRecordExporter")  # its name from version 1.39 on
        return (getattr(found, newer, None) or getattr(found, kind))()
    module, kind = _CLASSES[signal]
    package = f"opentelemetry.exporter.otlp.proto.{_PROTOCOLS[protocol]}"
    return getattr(import_module(f"{package}.{module}"), kind)()


def _resource() -> Any:
    """What the telemetry is about: the environment's resource; what it does not say of the service, we do.

    Two workers without an instance id would be one series to whoever stores their metrics.
    """
    resources = import_module("opentelemetry.sdk.resources")
    told = resources.OTELResourceDetector().detect().attributes
    ours = {"service.name": SERVICE, "service.instance.id": str(uuid4())}
    return resources.Resource.create({name: value for name, value in ours.items() if name not in told})


def _shut_down(closers: list[Callable[[], Any]]) -> None:
    """Send what is left, for a bounded time: a process must be able to stop though its collector is gone."""

    def close() -> None:
        for shut_down in closers:
            with suppress(Exception):  # whatever an exporter raises: what it lost is lost
                shut_down()

    if closers:
        thread = threading.Thread(target=close, name="mainspring-telemetry-shutdown", daemon=True)
        thread.start()
        thread.join(SHUTDOWN_SECONDS)
