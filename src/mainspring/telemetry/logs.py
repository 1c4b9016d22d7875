"""Log records: one for each decision of a run, named `mainspring.<event>`, in the run's trace."""

from __future__ import annotations

from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber

from mainspring.schemas.run import ANSWERED
from mainspring.telemetry import conventions
from mainspring.telemetry.providers import SCHEMA_URL, SCOPE, context_of, scope_version
from mainspring.telemetry.told import Told
from mainspring.workflows import trace

__all__ = ["write"]


def write(provider: LoggerProvider, told: Told) -> None:
    """Write the record of a decision."""
    shown = conventions.of_run(told) | conventions.identity(told.record) | conventions.decision(told.record)
    if told.content is not None:
        shown |= conventions.texts_of(told.record)
    severity = _severity(told)
    record = LogRecord(
        timestamp=told.at,
        context=context_of(None if told.trace is None else trace.root_of(told.trace)),
        severity_number=severity,
        severity_text=severity.name,
        attributes=shown,
        event_name=conventions.event_name(told.event),
    )
    provider.get_logger(SCOPE, scope_version(), SCHEMA_URL).emit(record)


def _severity(told: Told) -> SeverityNumber:
    if told.event in ("Finished", "ExchangeEnded") and told.record["outcome"] not in ANSWERED:
        return SeverityNumber.ERROR if told.event == "Finished" else SeverityNumber.WARN
    return SeverityNumber.WARN if told.event in conventions.SEVERE else SeverityNumber.INFO
