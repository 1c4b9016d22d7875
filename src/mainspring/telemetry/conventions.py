"""Which names and values telemetry shows of a run: the one table. Pure.

Names of the GenAI semantic conventions where there is one (version 1.41, in development), `mainspring.*` for
the rest. What a person, a model, a tool or a provider wrote is content and is never shown from here: of an
event's fields only those that this table lists, and of an event that it does not know only its numbers.

Source: OpenTelemetry semantic conventions, "Generative AI"; shared design, loop.md "Events".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from mainspring.schemas.agent import ModelSpec
from mainspring.telemetry.told import Record, Told
from mainspring.workflows.values import clip

__all__ = [
    "OTHER",
    "SEVERE",
    "decision",
    "event_name",
    "identity",
    "kind_of",
    "logged",
    "model_of",
    "of_run",
    "provider_of",
    "texts_of",
    "tool_of",
]

OTHER = "_OTHER"
NAME_CHARACTERS = 256
TEXT_CHARACTERS = 4_096
LIST_ITEMS = 50

_SHOWN: dict[str, tuple[str, ...]] = {
    "RunStarted": ("model", "lifetime", "tools"),
    "ConfigurationRefreshed": ("changed",),
    "ExchangeStarted": ("exchange", "source", "accepted", "entry"),
    "ModelFailed": ("model", "error", "fallback"),
    "ComposeChecked": ("call_id", "bytes", "valid", "findings", "stage"),
    "Nudged": ("reason", "period", "repeats", "reflections_left"),
    "Stalled": ("period", "repeats"),
    "GateHeld": ("gate", "bound_left"),
    "Steered": ("accepted", "entry"),
    "SignalRejected": ("signal",),
    "Interrupted": ("calls",),
    "Paused": (),
    "Resumed": (),
    "BudgetExtended": ("turns", "tokens", "dollars", "wall", "calls"),
    "QuestionAsked": ("question_id", "expires"),
    "QuestionClosed": ("question_id", "status", "waited_ms"),
    "ExchangeEnded": ("exchange", "outcome", "code", "entry"),
    "Finished": ("outcome", "code", "exchanges", "unanswered"),
}
"""Fields of an event that say nothing of what was said."""

_TEXTS: dict[str, tuple[str, ...]] = {
    "RunStarted": ("notes",),
    "ConfigurationRefreshed": ("refused",),
    "ModelFailed": ("message",),
    "GateHeld": ("reason",),
    "SignalRejected": ("reason",),
    "QuestionAsked": ("question",),
    "ExchangeEnded": ("message", "answer"),
    "Finished": ("message",),
}
"""Fields that do; shown where content is switched on."""

_SPANNED = frozenset({"TurnStarted", "ToolsSelected", "ContextPlanned", "BudgetCheckpoint", "ToolCompleted"})
"""Events of every turn: they are spans, or attributes of one."""

_SIGNALS = frozenset({"steer", "follow_up", "interrupt", "finish", "pause", "resume", "answer", "decide"})
SEVERE = frozenset({"ModelFailed", "Stalled", "SignalRejected"})
"""Events that are logged as warnings."""

_PROVIDERS = {
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "gemini": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "google-vertex": "gcp.vertex_ai",
    "vertexai": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "grok": "x_ai",
    "xai": "x_ai",
    "moonshotai": "moonshot_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""Providers whose name in the conventions is not the one that a configuration uses."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}")


def logged(event: str) -> bool:
    """Whether an event becomes a log record, and an event of the run's span: every decision does."""
    return event not in _SPANNED


def event_name(event: str) -> str:
    """`GateHeld` → `mainspring.gate_held`."""
    return "mainspring." + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", event).lower()


def of_run(told: Told) -> dict[str, Any]:
    """What every span and log record of a run says of it."""
    return {
        "gen_ai.agent.name": clip(told.agent, NAME_CHARACTERS),
        "gen_ai.conversation.id": clip(told.workflow_id, NAME_CHARACTERS),
        "mainspring.run.id": told.run_id,
    }


def identity(record: Record) -> dict[str, Any]:
    """Where in the run it happened."""
    return {"mainspring.seq": record["seq"], "mainspring.turn": record["turn"]}


def decision(record: Record) -> dict[str, Any]:
    """Names, counts and digests of one event."""
    shown = _SHOWN.get(record["event"])
    if shown is None:
        numbers = ((name, value) for name, value in record.items() if isinstance(value, int | float))
        return {f"mainspring.{name}": value for name, value in numbers if name not in ("seq", "turn")}
    found = {name: _value(record[name]) for name in shown if name in record}
    if "signal" in found and found["signal"] not in _SIGNALS:
        found["signal"] = OTHER
    if "error" in found:
        found["error"] = kind_of(found["error"])
    return {f"mainspring.{name}": value for name, value in found.items()}


def texts_of(record: Record) -> dict[str, Any]:
    """What was said, of one event."""
    names = _TEXTS.get(record["event"], ())
    return {f"mainspring.{name}": _value(record[name], TEXT_CHARACTERS) for name in names if name in record}


def kind_of(error: object) -> str:
    """An error's type as `error.type`: what does not look like one may be anything."""
    return str(error) if _PLAIN.fullmatch(str(error)) else OTHER


def tool_of(told: Told) -> str:
    """The tool's name; a name that the catalog does not have is what a model wrote."""
    return clip(str(told.record["tool"]), NAME_CHARACTERS) if told.named else OTHER


def provider_of(model: ModelSpec) -> str:
    """`gen_ai.provider.name` of a model; a scripted one is ours."""
    if model.model is None:
        return "mainspring.scripted"
    named = model.model.partition(":")[0].removeprefix("gateway/")
    return _PROVIDERS.get(named, named)


def model_of(model: ModelSpec) -> str:
    """`gen_ai.request.model` of a model: the provider's name for it, or ours where it is scripted."""
    return model.name if model.model is None else model.model.partition(":")[2] or model.model


def _value(value: object, characters: int = NAME_CHARACTERS) -> Any:
    """A value as an attribute can hold it."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        items = cast(Sequence[object], value)
        return [clip(str(item), characters) for item in items[:LIST_ITEMS]]
    return clip(str(value), characters)
