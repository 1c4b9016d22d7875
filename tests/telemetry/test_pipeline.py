"""What becomes of an event on its way: told once, or counted as lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from mainspring.embedded import Server
from mainspring.schemas.activities import Trace
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.run import Spend
from mainspring.telemetry.pipeline import Pipeline, Seen
from mainspring.telemetry.told import Record, Told
from support.invariants import serving
from support.telemetry import Recorded
from support.tools import observe

AT = "2026-01-01T00:00:0{}.000+00:00"
TRACE = Trace(traceparent=f"00-{1:032x}-{2:016x}-01", began=AT.format(0))


def told(event: str, seq: int, turn: int = 1, **fields: Any) -> Told:
    """An event as a run tells it."""
    record: Record = {"seq": seq, "turn": turn, "at": AT.format(5), "event": event, **fields}
    last = event == "Finished"
    return Told(
        record=record,
        workflow_id="run",
        run_id=str(fields.pop("run", "one")),
        agent="tested",
        model=ModelSpec(name="default"),
        trace=TRACE,
        named=True,
        journal=({"seq": 0, "turn": 0, "at": AT.format(1), "event": "RunStarted"}, record) if last else (),
        spend=Spend() if last else None,
    )


def ended(seq: int, outcome: str = "completed") -> Told:
    """The last event of a run."""
    return told("Finished", seq, outcome=outcome, exchanges=1, unanswered=0)


def called(seq: int, call: str) -> Told:
    """A call's event."""
    fields = {"tool": "look", "status": "ok", "ms": 1, "bytes": 1, "spilled": False, "began": AT.format(3)}
    return told("ToolCompleted", seq, call_id=call, **fields)


def drained(*events: Told, **options: Any) -> Recorded:
    """What a pipeline made of events, told one after the other."""
    recorded = Recorded()
    pipeline = Pipeline(recorded.providers, **options)
    for event in events:
        pipeline.tell(event)
    assert pipeline.flush(10)
    return recorded


@given(st.integers(1, 12), st.lists(st.integers(0, 11), max_size=6))
def test_seen_again_is_not_new(length: int, restarts: list[int]) -> None:
    """However often a run's tasks are done again from any point, each of its events is new once."""
    seen = Seen()
    new = [seq for seq in range(length) if seen.is_new(told("Steered", seq))]
    for restart in restarts:
        new += [seq for seq in range(restart, length) if seen.is_new(told("Steered", seq))]
    assert new == list(range(length))


def test_seen_tells_another_way_from_the_same_way_again() -> None:
    """A task that is done again and learns of a message goes another way: what it tells from there is new."""
    seen = Seen()
    first = [told("TurnStarted", 0), called(1, "a"), ended(2)]
    again = [
        told("TurnStarted", 0),
        called(1, "a"),
        told("Steered", 2),
        told("TurnStarted", 3, turn=2),
        ended(4),
    ]
    assert [seen.is_new(event) for event in first] == [True, True, True]
    assert [seen.is_new(event) for event in again] == [False, False, True, True, True]
    assert [seen.is_new(event) for event in again] == [False] * 5


def test_ending_that_the_server_refused_is_not_told() -> None:
    """A run that goes on after its `Finished` was told has one `invoke_agent`: that of its real end."""
    made = drained(ended(2), told("Steered", 2), ended(4, "done"))
    [root] = made.spans("invoke_agent")
    assert (root.attributes or {})["mainspring.outcome"] == "done"
    assert made.total("mainspring.runs") == 1
    assert made.total("mainspring.runs", mainspring__outcome="done") == 1


def test_event_that_is_told_again_makes_nothing_again() -> None:
    """What a task that is done again tells once more makes no second span, figure or record."""
    events = [told("RunStarted", 0), called(1, "a"), told("Steered", 2), ended(3)]
    made = drained(*events, *events)
    assert [span.name for span in made.spans()] == ["invoke_agent tested", "execute_tool look"]
    assert made.total("mainspring.tool.calls") == 1
    assert made.total("mainspring.runs") == 1
    assert len(made.logs()) == 3


def test_run_that_goes_on_has_not_ended() -> None:
    """An ending that another event of the run follows is taken back, whether or not another ending came."""
    made = drained(ended(2), told("Steered", 2))
    assert made.spans() == []
    assert made.points("mainspring.runs") == []


def test_ending_is_told_when_it_has_settled() -> None:
    """An ending that nothing follows is made after its time, without anybody asking."""
    recorded = Recorded()
    pipeline = Pipeline(recorded.providers, settle_seconds=0.3)
    pipeline.start()
    pipeline.tell(ended(0))
    time.sleep(0.1)
    assert recorded.spans() == []
    comes(lambda: bool(recorded.spans()))
    assert pipeline.flush(5)
    assert len(recorded.spans()) == 1


def comes(what: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Stuck(SpanProcessor):
    """An exporter that hangs until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def on_end(self, span: ReadableSpan) -> None:
        """Hang."""
        self.go.wait(30)


def test_full_queue_drops_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """What the queue cannot hold is dropped, counted in a metric and said in one line; nobody waits."""
    caplog.set_level(logging.WARNING, logger="mainspring.telemetry")
    recorded, stuck = Recorded(), Stuck()
    recorded.tracer.add_span_processor(stuck)
    pipeline = Pipeline(recorded.providers, queued_max=10)
    pipeline.start()
    pipeline.tell(called(0, "first"))
    comes(lambda: recorded.active.started == 1)
    began = time.monotonic()
    for seq in range(1, 101):
        pipeline.tell(called(seq, str(seq)))
    assert time.monotonic() - began < 1
    stuck.go.set()
    assert pipeline.flush(10)
    assert pipeline.dropped == 90
    assert len(recorded.spans()) == 11
    assert recorded.total("mainspring.telemetry.dropped") == 90
    assert [record.message for record in caplog.records] == [
        "telemetry cannot keep up: 90 events are dropped so far; runs go on"
    ]


def test_exporter_that_hangs_ends_no_flush_late() -> None:
    """A flush gives up after its time, and says that it did."""
    recorded, stuck = Recorded(), Stuck()
    recorded.tracer.add_span_processor(stuck)
    pipeline = Pipeline(recorded.providers)
    pipeline.tell(called(0, "first"))
    began = time.monotonic()
    assert not pipeline.flush(0.5)
    assert time.monotonic() - began < 2
    stuck.go.set()


class Raising(SpanProcessor):
    """A processor that fails."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Fail."""
        raise RuntimeError("no")


def test_processor_that_raises_costs_its_signal_only(caplog: pytest.LogCaptureFixture) -> None:
    """A defect in anybody's processor is said once; figures and log records are made all the same."""
    recorded = Recorded()
    recorded.tracer.add_span_processor(Raising())
    pipeline = Pipeline(recorded.providers)
    for seq in range(3):
        pipeline.tell(called(seq, str(seq)))
    pipeline.tell(ended(3))
    assert pipeline.flush(10)
    assert recorded.total("mainspring.tool.calls") == 3
    assert len(recorded.logs("mainspring.finished")) == 1
    assert len([record for record in caplog.records if record.name == "mainspring.telemetry"]) == 1


async def test_run_does_not_wait_for_a_hanging_exporter(server: Server) -> None:
    """A run ends in its time though every span hangs its exporter."""
    recorded, stuck = Recorded(), Stuck()
    recorded.tracer.add_span_processor(stuck)
    replies = [{"calls": [{"tool": "observe"}]}, {"text": "Done."}]
    async with serving(
        server.address, replies=replies, tools=[observe], telemetry=recorded.providers
    ) as case:
        result = await case.run()
        stuck.go.set()
    assert result.outcome == "completed"
