"""The table of what is shown of an event."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import pytest

from mainspring.schemas.agent import ModelSpec
from mainspring.telemetry import conventions
from mainspring.workflows import events

TEXT = {
    "notes",
    "refused",
    "message",
    "question",
    "answer",
}
"""Fields of events that hold what somebody wrote; `reason` does where it is a sentence."""
EVENTS = {kind.__name__: kind for kind in get_args(events.Event)}


@pytest.mark.parametrize("name", EVENTS)
def test_no_field_that_holds_words_is_shown(name: str) -> None:
    """Of every event there is, no field of text is shown without content, and each is with it."""
    record: dict[str, Any] = {"seq": 0, "turn": 0, "event": name}
    record |= {item.name: f"words of {item.name}" for item in fields(EVENTS[name])}
    shown = conventions.decision(record)
    texts = {item for item in record if item in TEXT}
    assert texts & {key.removeprefix("mainspring.") for key in shown} == set()
    assert {f"mainspring.{text}" for text in texts} <= set(conventions.texts_of(record))


def test_of_an_unknown_event_only_numbers_are_shown() -> None:
    """An event that a later version emits shows its numbers and none of its words."""
    record = {"seq": 1, "turn": 2, "at": "…", "event": "Unheard", "words": "secret", "count": 3, "ok": True}
    assert conventions.decision(record) == {"mainspring.count": 3, "mainspring.ok": True}
    assert conventions.texts_of(record) == {}
    assert conventions.logged("Unheard")


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ("GateHeld", "mainspring.gate_held"),
        ("RunStarted", "mainspring.run_started"),
        ("Paused", "mainspring.paused"),
    ],
)
def test_event_name_is_in_snake_case(event: str, name: str) -> None:
    """Log records are named after their event."""
    assert conventions.event_name(event) == name


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai:gpt-5-mini", "openai", "gpt-5-mini"),
        ("openai-responses:gpt-5", "openai", "gpt-5"),
        ("anthropic:claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
        ("google-gla:gemini-3.8-flash", "gcp.gemini", "gemini-3.8-flash"),
        ("google-vertex:gemini-3.8-flash", "gcp.vertex_ai", "gemini-3.8-flash"),
        ("bedrock:us.amazon:nova", "aws.bedrock", "us.amazon:nova"),
        ("grok:grok-5", "x_ai", "grok-5"),
        ("somebody:else", "somebody", "else"),
        (None, "mainspring.scripted", "default"),
    ],
)
def test_model_is_named_as_the_conventions_do(model: str | None, provider: str, name: str) -> None:
    """Provider and model are told apart, and known providers have the name of the conventions."""
    spec = ModelSpec(name="default", model=model)
    assert (conventions.provider_of(spec), conventions.model_of(spec)) == (provider, name)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("model_rejected", "model_rejected"),
        ("TemporalTimeout:StartToClose", "TemporalTimeout:StartToClose"),
        ("no such model, said the provider", "_OTHER"),
        ("", "_OTHER"),
        ("x" * 101, "_OTHER"),
    ],
)
def test_error_type_is_a_type(error: str, kind: str) -> None:
    """What does not look like the name of a type is not shown as one."""
    assert conventions.kind_of(error) == kind
