"""Metrics of runs: counters and histograms, recorded once for each event.

Source: OpenTelemetry semantic conventions, "Generative AI metrics"; shared design, loop.md "Events".
"""

from __future__ import annotations

from typing import Any

from opentelemetry.metrics import Meter, MeterProvider

from mainspring.telemetry import conventions
from mainspring.telemetry.providers import SCHEMA_URL, SCOPE, scope_version
from mainspring.telemetry.spans import failed_chat
from mainspring.telemetry.told import Record, Told, nanoseconds

__all__ = ["Meters"]

TOKEN_BOUNDS = tuple(4**power for power in range(14))
SECOND_BOUNDS = tuple(0.01 * 2**power for power in range(14))
RUN_SECOND_BOUNDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400, 604_800)
TOOL_BOUNDS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1_024, 4_096, 10_000)


class Meters:
    """The instruments of one meter provider."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter(SCOPE, scope_version(), SCHEMA_URL)
        self._make_model_instruments(meter)
        self._make_run_instruments(meter)
        self._dropped = meter.create_counter(
            "mainspring.telemetry.dropped",
            "{event}",
            "Events that no telemetry was made of: the queue was full",
        )

    def _make_model_instruments(self, meter: Meter) -> None:
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a turn's model calls",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
        )
        self._call_seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Time of a turn's model calls, retries and fallbacks included",
            explicit_bucket_boundaries_advisory=SECOND_BOUNDS,
        )
        self._first_token = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "Time to the first streamed token",
            explicit_bucket_boundaries_advisory=SECOND_BOUNDS,
        )
        self._dollars = meter.create_counter("mainspring.cost", "{USD}", "Dollars spent on model calls")
        self._model_failures = meter.create_counter(
            "mainspring.model.failures", "{failure}", "Model calls that failed for good, by error"
        )

    def _make_run_instruments(self, meter: Meter) -> None:
        self._runs = meter.create_counter("mainspring.runs", "{run}", "Runs that ended, by outcome")
        self._run_seconds = meter.create_histogram(
            "mainspring.run.duration",
            "s",
            "Time from a run's start to its end",
            explicit_bucket_boundaries_advisory=RUN_SECOND_BOUNDS,
        )
        self._turns = meter.create_counter("mainspring.turns", "{turn}", "Turns")
        self._tool_calls = meter.create_counter("mainspring.tool.calls", "{call}", "Tool calls, by status")
        self._tool_seconds = meter.create_histogram(
            "mainspring.tool.duration",
            "s",
            "Time of a tool call that was dispatched",
            explicit_bucket_boundaries_advisory=SECOND_BOUNDS,
        )
        self._offered = meter.create_histogram(
            "mainspring.tools.offered",
            "{tool}",
            "Tools that a turn's request offered",
            explicit_bucket_boundaries_advisory=TOOL_BOUNDS,
        )
        self._universe = meter.create_histogram(
            "mainspring.tools.universe",
            "{tool}",
            "Tools that a turn's request could have offered",
            explicit_bucket_boundaries_advisory=TOOL_BOUNDS,
        )
        self._nudges = meter.create_counter("mainspring.nudges", "{nudge}", "Nudges of the guard, by reason")
        self._stalls = meter.create_counter("mainspring.stalls", "{stall}", "Exchanges that the guard ended")
        self._holds = meter.create_counter("mainspring.gate.holds", "{hold}", "Replies sent back, by gate")
        self._rejected = meter.create_counter(
            "mainspring.signals.rejected", "{signal}", "Signals that could not be taken"
        )

    def dropped(self, events: int) -> None:
        """Count events that were lost."""
        self._dropped.add(events)

    def record(self, told: Told) -> None:
        """Record what an event says."""
        record, agent = told.record, {"gen_ai.agent.name": told.agent}
        match told.event:
            case "BudgetCheckpoint":
                self._record_turn(told)
            case "ToolsSelected":
                self._offered.record(record["offered"], agent)
                self._universe.record(record["universe"], agent)
            case "ToolCompleted":
                self._record_tool(told)
            case "Finished":
                self._record_run(told)
            case _:
                self._count(told.event, record, agent)

    def _count(self, event: str, record: Record, agent: dict[str, Any]) -> None:
        """Decisions that are only counted."""
        match event:
            case "ModelFailed":
                error = conventions.kind_of(record["error"])
                self._model_failures.add(1, {**agent, "error.type": error})
            case "Nudged":
                self._nudges.add(1, {**agent, "mainspring.reason": record["reason"]})
            case "Stalled":
                self._stalls.add(1, agent)
            case "GateHeld":
                self._holds.add(1, {**agent, "mainspring.gate": record["gate"]})
            case "SignalRejected":
                self._rejected.add(1, agent)
            case _:
                pass

    def _record_turn(self, told: Told) -> None:
        record, attributes = told.record, _of_model(told)
        self._turns.add(1, {"gen_ai.agent.name": told.agent})
        before = _before(told)
        for kind in ("input", "output"):
            tokens = _more(record, before, f"{kind}_tokens", f"call_{kind}_tokens")
            if tokens:
                self._tokens.record(int(tokens), {**attributes, "gen_ai.token.type": kind})
        dollars = _more(record, before, "dollars", None)
        if dollars:
            self._dollars.add(dollars, attributes)
        failed = failed_chat(told)
        error = {"error.type": failed} if failed else {}
        self._call_seconds.record(record.get("ms", 0) / 1_000, {**attributes, **error})
        if "first_token_ms" in record:
            self._first_token.record(record["first_token_ms"] / 1_000, attributes)

    def _record_tool(self, told: Told) -> None:
        record = told.record
        attributes = {
            "gen_ai.agent.name": told.agent,
            "gen_ai.tool.name": conventions.tool_of(told),
            "mainspring.status": record["status"],
        }
        self._tool_calls.add(1, attributes)
        if "began" in record:
            self._tool_seconds.record(record["ms"] / 1_000, attributes)

    def _record_run(self, told: Told) -> None:
        attributes = {"gen_ai.agent.name": told.agent, "mainspring.outcome": told.record["outcome"]}
        began = told.trace.began if told.trace else None
        seconds = (told.at - nanoseconds(began or told.journal[0]["at"])) / 1e9
        self._runs.add(1, attributes)
        self._run_seconds.record(max(0.0, seconds), attributes)


def _of_model(told: Told) -> dict[str, Any]:
    assert told.model is not None
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": conventions.provider_of(told.model),
        "gen_ai.request.model": conventions.model_of(told.model),
        "gen_ai.agent.name": told.agent,
    }
    if "model" in told.record:
        attributes["gen_ai.response.model"] = told.record["model"]
    return attributes


def _before(told: Told) -> Record | None:
    """The checkpoint before this one; an empty one before a run's first; None where it is unknown."""
    first: Record = told.since[0] if told.since else {"event": "", "seq": 1}
    if first["event"] == "BudgetCheckpoint":
        return first
    return {} if first["seq"] == 0 else None


def _more(record: Record, before: Record | None, total: str, call: str | None) -> float:
    """What a turn added to a sum: failed attempts are billed too, so the call's own figure may be less."""
    if before is None:
        return (record.get(call) or 0) if call else 0
    return (record.get(total) or 0) - (before.get(total) or 0)
