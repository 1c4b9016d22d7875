"""Spans as they follow from one event: their times, and whether there is one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mainspring.schemas.activities import Trace
from mainspring.schemas.agent import ModelSpec
from mainspring.telemetry import spans
from mainspring.telemetry.told import Told, nanoseconds
from mainspring.workflows import trace

SECOND = "2026-01-01T00:00:01.{:03}+00:00"
EXACT = Trace(
    traceparent=f"00-{1:032x}-{2:016x}-01", parent=f"00-{1:032x}-{3:016x}-01", began=SECOND.format(0)
)
CHECKPOINT = {"event": "BudgetCheckpoint", "at": SECOND.format(10), "ms": 8, "finish_reason": "stop"}
CALLED = {
    "event": "ToolCompleted",
    "at": SECOND.format(10),
    "began": SECOND.format(2),
    "ms": 5,
    "call_id": "x-1",
    "tool": "look",
    "status": "ok",
    "bytes": 1,
    "spilled": False,
}


def told(record: dict[str, Any], **changes: Any) -> Told:
    """An event of a traced run."""
    whole = {"seq": 9, "turn": 1, **record}
    event = Told(whole, "run", "id", "tested", model=ModelSpec(name="default"), trace=EXACT, named=True)
    return replace(event, **changes)


def milliseconds(made: spans.Made | None) -> tuple[float, float]:
    """From when to when, within the second."""
    assert made is not None
    start = nanoseconds(SECOND.format(0))
    return (made.start - start) / 1e6, (made.end - start) / 1e6


def test_chat_ends_with_its_checkpoint() -> None:
    """A model call lasted for its time until its checkpoint."""
    assert milliseconds(spans.of_event(told(CHECKPOINT), exact=True)) == (2, 10)


def test_chat_begins_no_sooner_than_its_turn() -> None:
    """Times are rounded, each for itself: a call that would begin before its turn begins with it."""
    began = {"seq": 7, "turn": 1, "event": "TurnStarted", "at": SECOND.format(3)}
    assert milliseconds(spans.of_event(told(CHECKPOINT, since=[began]), exact=True)) == (3, 10)


def test_call_lasts_from_its_dispatch() -> None:
    """A call lasted for its time from its dispatch, and ended no later than it was told of."""
    assert milliseconds(spans.of_event(told(CALLED), exact=True)) == (2, 7)
    assert milliseconds(spans.of_event(told({**CALLED, "ms": 9}), exact=True)) == (2, 10)


@pytest.mark.parametrize("status", ["refused", "not_run"])
def test_call_that_was_not_dispatched_has_no_span(status: str) -> None:
    """Without a beginning there is nothing to show."""
    record = {name: value for name, value in CALLED.items() if name != "began"} | {"status": status}
    assert spans.of_event(told(record), exact=True) is None


@pytest.mark.parametrize("record", [CHECKPOINT, CALLED])
def test_run_that_is_not_recorded_has_no_spans(record: dict[str, Any]) -> None:
    """What was decided when the run was armed holds, whatever the sampler of this process would say."""
    unsampled = EXACT.model_copy(update={"traceparent": f"00-{1:032x}-{2:016x}-00"})
    assert spans.of_event(told(record, trace=unsampled), exact=True) is None
    assert spans.of_event(told(record, trace=None), exact=True) is None


def test_ids_follow_from_the_trace() -> None:
    """A turn and a call have the ids that their activities were told; without ids of ours, any."""
    chat, call = (spans.of_event(told(record), exact=True) for record in (CHECKPOINT, CALLED))
    assert chat is not None
    assert call is not None
    assert (chat.ref, call.ref) == (trace.of_turn(EXACT, 1), trace.of_call(EXACT, "x-1"))
    assert chat.parent == call.parent == trace.root_of(EXACT)
    inexact = EXACT.model_copy(update={"exact": False})
    other = spans.of_event(told(CALLED, trace=inexact), exact=False)
    assert other is not None
    assert (other.ref, other.parent) == (None, trace.root_of(EXACT))


@pytest.mark.parametrize(
    ("since", "error"),
    [
        ([], "interrupted"),
        (
            [{"seq": 8, "turn": 1, "event": "ModelFailed", "at": SECOND.format(9), "error": "timeout"}],
            "timeout",
        ),
    ],
)
def test_turn_without_a_reply_is_an_error(since: list[dict[str, Any]], error: str) -> None:
    """Its type is the failure's; where nothing failed, somebody interrupted it."""
    record = {name: value for name, value in CHECKPOINT.items() if name != "finish_reason"}
    made = spans.of_event(told(record, since=since), exact=True)
    assert made is not None
    assert made.error == error
