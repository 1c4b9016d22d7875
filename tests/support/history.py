"""What a history holds, read as strictly as any reader may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import WorkflowHistory

from mainspring.testing import activities_of

__all__ = ["assert_sound", "bought_nothing", "payloads_of", "strict_json", "task_failures"]

_PASSING = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
"""A message came while the run was about to end: the server has the task repeated, by design."""


def task_failures(history: WorkflowHistory) -> list[str]:
    """Why workflow tasks failed; a run that is sound has none."""
    return [
        event.workflow_task_failed_event_attributes.failure.message
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        and event.workflow_task_failed_event_attributes.cause != _PASSING
    ]


def payloads_of(message: Message) -> Iterator[Payload]:
    """Every payload in a message, at any depth."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = [item for item in value.values() if isinstance(item, Message)]
        else:
            inner = list(value) if field.is_repeated else [value]
        for item in inner:
            yield from payloads_of(item)


def strict_json(text: bytes) -> Any:
    """The value of JSON text that every reader can read: UTF-8, no NaN, no half of a character."""
    value = json.loads(text.decode("utf-8"), parse_constant=_refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _refuse(name: str) -> None:
    raise AssertionError(f"a bare {name}")


def assert_sound(history: WorkflowHistory, *, sent: bool = True) -> None:
    """No workflow task failed, and every payload that is JSON is JSON to every reader.

    Args:
        history: Of one run.
        sent: Whether what people sent (start and signals) is read too.
    """
    assert task_failures(history) == []
    for event in history.events:
        if not sent and event.event_type in (
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
        ):
            continue
        for payload in payloads_of(event):
            if payload.metadata.get("encoding", b"").startswith(b"json/"):
                strict_json(payload.data)


def bought_nothing(history: WorkflowHistory) -> bool:
    """Whether no model was called."""
    return "mainspring.call_model" not in dict(activities_of(history))
