"""Spans: `chat`, `execute_tool` and `invoke_agent`, each begun and ended in one place, from an event.

No span is ever left open: it is made when what it tells of is over, with the times of the run's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, TracerProvider

from mainspring.schemas.run import ANSWERED
from mainspring.telemetry import conventions, messages
from mainspring.telemetry.ids import asking_for
from mainspring.telemetry.providers import SCHEMA_URL, SCOPE, context_of, scope_version
from mainspring.telemetry.told import Record, Told, nanoseconds
from mainspring.workflows import trace
from mainspring.workflows.trace import SpanRef

__all__ = ["EVENTS_MAX", "Made", "agent_attributes", "make", "makes_one", "of_event", "tracer_of"]

EVENTS_MAX = 1_000
"""Decisions that a run's span shows, the newest; the SDK keeps 128 unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Made:
    """A span to make.

    Args:
        ref: Its ids; None for ids of the tracer's own.
        parent: None for a root.
        error: `error.type`, when it tells of a failure.
        events: Name, time and attributes.
    """

    name: str
    kind: SpanKind
    ref: SpanRef | None
    parent: SpanRef | None
    start: int
    end: int
    attributes: dict[str, Any]
    error: str | None = None
    events: Sequence[tuple[str, int, dict[str, Any]]] = ()


def tracer_of(provider: TracerProvider) -> Tracer:
    """Our tracer."""
    return provider.get_tracer(SCOPE, scope_version(), SCHEMA_URL)


def make(tracer: Tracer, made: Made) -> None:
    """Make one span, whole."""
    attributes = made.attributes | ({"error.type": made.error} if made.error else {})
    with asking_for(made.ref):
        span = tracer.start_span(
            made.name, context_of(made.parent), made.kind, attributes, start_time=made.start
        )
    for name, at, shown in made.events:
        span.add_event(name, shown, at)
    if made.error:
        span.set_status(Status(StatusCode.ERROR, made.error))
    span.end(max(made.start, made.end))


def makes_one(told: Told) -> bool:
    """Whether events of that name make spans at all."""
    return told.event in ("BudgetCheckpoint", "ToolCompleted", "Finished")


def of_event(told: Told, *, exact: bool) -> Made | None:
    """The span that an event makes.

    Args:
        told: The event.
        exact: Whether this process's tracer gives spans the ids that are asked for.
    """
    if told.trace is None:
        refused = told.event == "Finished" and told.model is None
        return _refused(told, exact) if refused else None
    if not trace.root_of(told.trace).sampled:
        return None
    match told.event:
        case "BudgetCheckpoint":
            return _chat(told)
        case "ToolCompleted" if "began" in told.record:
            return _tool(told)
        case "Finished" if told.trace.exact:
            return _agent(told, exact)
        case _:
            return None


def _chat(told: Told) -> Made:
    assert told.trace is not None
    assert told.model is not None
    record, of_turn = told.record, [item for item in told.since if item["turn"] == told.record["turn"]]
    began = next((nanoseconds(item["at"]) for item in of_turn if item["event"] == "TurnStarted"), 0)
    shown = {
        "gen_ai.usage.input_tokens": record.get("call_input_tokens"),
        "gen_ai.usage.output_tokens": record.get("call_output_tokens"),
        "gen_ai.usage.cache_read.input_tokens": record.get("call_cached_tokens") or None,
        "gen_ai.response.time_to_first_chunk": _seconds(record.get("first_token_ms")),
        "gen_ai.response.model": record.get("model"),
        **{f"mainspring.tools.{name}": _last(of_turn, "ToolsSelected", name) for name in _SIZES},
        "mainspring.context_tokens": _last(of_turn, "ContextPlanned", "context_tokens"),
    }
    attributes = _common(told, "chat") | {name: value for name, value in shown.items() if value is not None}
    if "finish_reason" in record:
        attributes["gen_ai.response.finish_reasons"] = (record["finish_reason"],)
    if told.content is not None:
        attributes |= messages.of_chat(told.content)
    return Made(
        name=f"chat {conventions.model_of(told.model)}",
        kind=SpanKind.CLIENT,
        ref=trace.of_turn(told.trace, record["turn"]) if told.trace.exact else None,
        parent=trace.root_of(told.trace),
        start=max(began, told.at - record.get("ms", 0) * 1_000_000),  # both are rounded, each for itself
        end=told.at,
        attributes=attributes,
        error=failed_chat(told),
    )


_SIZES = ("offered", "universe")


def failed_chat(told: Told) -> str | None:
    """Why a turn's model call brought no reply; None when it did."""
    if "finish_reason" in told.record:
        return None
    return conventions.kind_of(_last(told.since, "ModelFailed", "error") or "interrupted")


def _tool(told: Told) -> Made:
    assert told.trace is not None
    record, name = told.record, conventions.tool_of(told)
    start = nanoseconds(record["began"])
    attributes = _common(told, "execute_tool", model=False) | {
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": record["call_id"],
        "mainspring.status": record["status"],
        "mainspring.bytes": record["bytes"],
        "mainspring.spilled": record["spilled"],
    }
    if told.content is not None:
        attributes |= messages.of_tool(told.content, record["call_id"])
    return Made(
        name=f"execute_tool {name}",
        kind=SpanKind.INTERNAL,
        ref=trace.of_call(told.trace, record["call_id"]) if told.trace.exact else None,
        parent=trace.root_of(told.trace),
        start=start,
        end=min(start + record["ms"] * 1_000_000, told.at),
        attributes=attributes,
        error=None if record["status"] == "ok" else record["status"],
    )


def _agent(told: Told, exact: bool) -> Made:
    assert told.trace is not None
    root, parent = trace.root_of(told.trace), trace.read(told.trace.parent)
    made = _ended(told, told.trace.began)
    if exact:
        return replace(made, ref=root, parent=parent)
    # Another worker than this one chose the ids: the span cannot have its own, but stays in its trace.
    return replace(made, ref=None, parent=parent or root)


def _refused(told: Told, exact: bool) -> Made:
    """A run that was never armed has no trace yet, and no span but this one."""
    parent = trace.read(told.parent)
    return replace(_ended(told, None), ref=trace.root(told.run_id, parent) if exact else None, parent=parent)


def _ended(told: Told, began: str | None) -> Made:
    record, content = told.record, told.content
    attributes = agent_attributes(told) | conventions.decision(record)
    spend = told.spend
    if spend is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": spend.input_tokens,
            "gen_ai.usage.output_tokens": spend.output_tokens,
            "mainspring.turns": spend.turns,
            "mainspring.model_calls": spend.model_calls,
            "mainspring.tool_calls": spend.tool_calls,
            **({} if spend.dollars is None else {"mainspring.dollars": spend.dollars}),
        }
    if content is not None:
        attributes |= messages.of_run(content)
    start = nanoseconds(began or told.journal[0]["at"])
    return Made(
        name=f"invoke_agent {attributes['gen_ai.agent.name']}",
        kind=SpanKind.INTERNAL,
        ref=None,
        parent=None,
        start=min(start, nanoseconds(told.journal[0]["at"])),
        end=told.at,
        attributes=attributes,
        error=None if record["outcome"] in ANSWERED else record["outcome"],
        events=[_event(item, content is not None) for item in _decisions(told.journal)],
    )


def _decisions(journal: Sequence[Record]) -> Sequence[Record]:
    ends = ("RunStarted", "Finished")
    return [item for item in journal if conventions.logged(item["event"]) and item["event"] not in ends][
        -EVENTS_MAX:
    ]


def _event(record: Record, content: bool) -> tuple[str, int, dict[str, Any]]:
    shown = conventions.identity(record) | conventions.decision(record)
    if content:
        shown |= conventions.texts_of(record)
    return conventions.event_name(record["event"]), nanoseconds(record["at"]), shown


def agent_attributes(told: Told) -> dict[str, Any]:
    """Attributes of `invoke_agent` that are known from its beginning."""
    model = {} if told.model is None else _model(told)
    return {"gen_ai.operation.name": "invoke_agent", **model, **conventions.of_run(told)}


def _common(told: Told, operation: str, *, model: bool = True) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": operation,
        **(_model(told) if model else {}),
        **conventions.of_run(told),
        **conventions.identity(told.record),
    }


def _model(told: Told) -> dict[str, Any]:
    assert told.model is not None
    return {
        "gen_ai.provider.name": conventions.provider_of(told.model),
        "gen_ai.request.model": conventions.model_of(told.model),
    }


def _last(records: Sequence[Record], event: str, field: str) -> Any:
    """A field of the newest event of that name."""
    return next((item.get(field) for item in reversed(records) if item["event"] == event), None)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000
