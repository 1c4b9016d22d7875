"""Telemetry of runs: OpenTelemetry spans, metrics and log records, through the API only.

    provider = TracerProvider(id_generator=RunIds())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

SDK and exporters are the process's own affair; a worker with the plugin uses whatever providers it has set.
`docs/telemetry.md` says what there is to see.
"""

from mainspring.telemetry.ids import RunIds
from mainspring.telemetry.providers import Providers
from mainspring.telemetry.telemetry import Telemetry

__all__ = ["Providers", "RunIds", "Telemetry"]
