"""The trace of a run: ids and traceparents."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.activities import Trace
from mainspring.schemas.base import unwire, wire
from mainspring.workflows import trace
from mainspring.workflows.trace import SpanRef

REFS = st.builds(SpanRef, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
CANONICAL = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@given(REFS)
def test_written_is_read_back(ref: SpanRef) -> None:
    """A traceparent names the span that it was written for, and nothing else."""
    assert trace.read(trace.write(ref)) == ref


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        CANONICAL[:-1],
        CANONICAL.upper(),
        "ff" + CANONICAL[2:],
        f"00-{0:032x}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{0:016x}-01",
        CANONICAL + "-",
    ],
)
def test_malformed_traceparent_names_nothing(text: str | None) -> None:
    """What W3C Trace Context calls invalid is as good as none."""
    assert trace.read(text) is None


def test_traceparent_of_a_later_version_is_read() -> None:
    """A version that is not known yet is read as far as it is known, as the standard asks."""
    assert trace.read(f"01-{CANONICAL[3:]}-more") == trace.read(CANONICAL)


@given(st.text(max_size=40), st.one_of(st.none(), REFS))
def test_root_is_a_function_of_the_run(run_id: str, parent: SpanRef | None) -> None:
    """The same run has the same root, in its parent's trace; neither id is ever 0."""
    root = trace.root(run_id, parent)
    assert root == trace.root(run_id, parent)
    assert root.trace_id
    assert root.span_id
    assert parent is None or root.trace_id == parent.trace_id


def test_spans_of_a_run_have_ids_of_their_own() -> None:
    """Root, turns and calls of a run, and those of another run, share no id."""
    roots = [Trace(traceparent=trace.write(trace.root(run, None))) for run in ("one", "two")]
    ids = [trace.root_of(root).span_id for root in roots]
    for root in roots:
        ids += [trace.of_turn(root, turn).span_id for turn in range(100)]
        ids += [trace.of_call(root, f"0badcafe-{n}").span_id for n in range(100)]
    assert len(set(ids)) == len(ids)


def test_where_ids_cannot_be_chosen_all_hangs_from_the_root() -> None:
    """Without ids of ours, turns, calls and children hang from the one span that there is."""
    inexact = Trace(traceparent=CANONICAL, exact=False)
    assert trace.of_turn(inexact, 1) == trace.of_call(inexact, "x-1") == trace.root_of(inexact)
    assert trace.for_child(inexact, "x-1") == CANONICAL


def test_record_that_is_carried_keeps_the_root() -> None:
    """An arming record that went through JSON, as a carried one does, names the same root and start."""
    record = Trace(traceparent=CANONICAL, parent=CANONICAL, began="2026-01-01T00:00:00+00:00")
    carried = unwire(Trace, json.loads(json.dumps(wire(record))))
    assert carried == record
    assert trace.of_turn(carried, 7) == trace.of_turn(record, 7)


def test_child_hangs_from_the_call_that_started_it() -> None:
    """A child run's traceparent is that of its call's span; without a trace there is none."""
    exact = Trace(traceparent=CANONICAL)
    child = trace.read(trace.for_child(exact, "x-1"))
    assert child == trace.of_call(exact, "x-1")
    assert child is not None
    assert (child.trace_id, child.flags) == (trace.root_of(exact).trace_id, 1)
    assert trace.for_child(None, "x-1") is None
