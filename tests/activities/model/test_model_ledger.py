"""The request, assembled from what the process holds and from queries, and its projection."""

from __future__ import annotations

import gc
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.activities.projection import Projections
from mainspring.schemas.activities import ModelReply
from mainspring.schemas.base import wire
from mainspring.schemas.errors import CATALOG_UNAVAILABLE, LEDGER_MISMATCH, MODEL_MISCONFIGURED
from mainspring.schemas.ledger import LedgerRef, Plan
from mainspring.schemas.tools import ParsedCall, ToolOutcome
from mainspring.workflows.ledger import (
    control_entry,
    observation_entry,
    project,
    reply_entry,
    select,
    user_entry,
)
from support.model import Run

LOOK = {"calls": [{"tool": "observe", "arguments": {"i": "${n}"}}], "repeat": 100}


async def test_ledger_needs_one_query_ever_in_one_process():
    """A process that produced what is new asks the run only once: for the arming record."""
    run = Run({"replies": [LOOK]})
    for turn in range(5):
        await run.call()
        run.observe(ToolOutcome(content=f"seen {turn}"))
    assert run.cache.queries == 1


async def test_ledger_is_the_same_in_another_process():
    """A process that holds nothing assembles the same request from queries."""
    expect = {"contains": ["seen 0", "seen 2"], "messages_min": 7, "messages_max": 7}
    run = Run({"replies": [{**LOOK, "repeat": 3}, {"text": "ok", "expect": expect}]})
    for turn in range(3):
        await run.call()
        run.observe(ToolOutcome(content=f"seen {turn}"), produced_here=turn != 1)
        run.restart()
    assert (await run.call()).text == "ok"


async def test_ledger_with_another_digest_is_retryable():
    """What cannot be assembled to its digest is not sent."""
    run = Run({"replies": [{"text": "x"}]})
    error = await run.fails(ledger=LedgerRef(length=1, digest="f" * 16))
    assert (error.type, error.non_retryable) == (LEDGER_MISMATCH, False)


async def test_plan_decides_what_is_shown():
    """Entries outside the plan's ranges are not sent."""
    expect = {"contains": "seen 1", "excludes": "seen 0"}
    run = Run({"replies": [{**LOOK, "repeat": 2}, {"text": "ok", "expect": expect}]})
    for turn in range(2):
        await run.call()
        run.observe(ToolOutcome(content=f"seen {turn}"))
    assert (await run.call(plan=Plan(ranges=((0, 1), (3, 5))))).text == "ok"


async def test_catalog_in_the_blob_store_is_read_once(blobs):
    """A large catalog lies in the blob store, and is read once for its digest."""
    run = Run({"replies": [LOOK]}, blobs=blobs)
    content = json.dumps([wire(tool) for tool in run.armed.tools]).encode()
    ref = await blobs.put(content, "application/json")
    run.armed = run.armed.model_copy(update={"tools": None, "catalog_blob": ref})
    assert (await run.call()).calls[0].problem is None
    run.observe(ToolOutcome(content="x"))
    await blobs.erase([ref.digest])
    assert (await run.call()).calls[0].problem is None


async def test_catalog_that_is_gone_is_catalog_unavailable(blobs):
    """A digest that cannot be found again ends the call at once, by name."""
    run = Run({"replies": [LOOK]}, blobs=blobs)
    ref = await blobs.put(b"[]", "application/json")
    await blobs.erase([ref.digest])
    run.armed = run.armed.model_copy(update={"tools": None, "catalog_blob": ref})
    error = await run.fails()
    assert (error.type, error.non_retryable) == (CATALOG_UNAVAILABLE, True)
    assert ref.digest in str(error)


async def test_offer_that_the_catalog_lacks_is_an_error():
    """What is counted as offered is what is sent: a name without a definition is not dropped silently."""
    error = await Run({"replies": [LOOK]}).fails(offered=("observe", "ghost"))
    assert error.type == CATALOG_UNAVAILABLE
    assert "ghost" in str(error)


async def test_model_index_beyond_the_armed_models_is_misconfigured():
    """A fallback that was not armed cannot be asked."""
    assert (await Run({"replies": [LOOK]}).fails(model=3)).type == MODEL_MISCONFIGURED


async def test_fallback_model_is_the_armed_one_at_that_index():
    """`model` picks among the recorded models."""
    run = Run({"replies": [{"text": "first"}]})
    second = run.armed.models[0].model_copy(update={"name": "b", "script": {"replies": [{"text": "second"}]}})
    run.armed = run.armed.model_copy(update={"models": (*run.armed.models, second)})
    reply = await run.attempt(model=1)
    assert (reply.text, reply.model) == ("second", "b")


KINDS = st.lists(
    st.sampled_from(["user", "control", "reply", "empty", "calls", "silent", "unanswered", "half"]),
    max_size=25,
)


def ledger_of(kinds):
    """A ledger with turns of these kinds; calls are answered one by one."""
    entries = []
    for kind in kinds:
        seq = len(entries)
        if kind == "user":
            entries.append(user_entry(seq, 1, 1, f"u{seq}"))
        elif kind == "control":
            entries.append(control_entry(seq, 1, 1, "empty_reply", f"c{seq}"))
        elif kind in ("reply", "empty"):
            text = f"r{seq}" if kind == "reply" else ""
            entries.append(reply_entry(seq, 1, 1, ModelReply(text=text), []))
        else:
            text = f"r{seq}" if kind == "calls" else ""
            calls = (ParsedCall(tool="a"), ParsedCall(tool="b"))
            ids = [f"p-{seq}", f"p-{seq}b"]
            entries.append(reply_entry(seq, 1, 1, ModelReply(text=text, calls=calls), ids))
            for index, call_id in enumerate(ids[: {"unanswered": 0, "half": 1}.get(kind, 2)]):
                outcome = ToolOutcome(content=f"o{seq}{index}")
                entries.append(observation_entry(len(entries), 1, 1, call_id, "a", outcome))
    return entries


@settings(deadline=None, max_examples=400)
@given(KINDS, st.data())
def test_projection_kept_equals_projection_made(kinds, data):
    """Whatever was kept from earlier calls, the projection is the one that is made from nothing."""
    entries = ledger_of(kinds)
    projections = Projections()
    lengths = data.draw(st.lists(st.integers(0, len(entries)), max_size=8))
    for length in [*sorted(lengths), *lengths]:
        cut = data.draw(st.integers(0, length))
        plan = data.draw(st.sampled_from([Plan(), Plan(ranges=((0, cut // 2), (cut, length)))]))
        made = projections.of(("w", "p"), entries[:length], plan)
        assert made.messages == project(select(entries[:length], plan))
        assert made.tokens == sum(e.tokens_estimate for e in select(entries[:length], plan))


@pytest.mark.parametrize("turns", [3])
def test_projection_dies_with_its_ledger(turns):
    """What is kept of a run goes when the process drops the run's ledger."""
    projections = Projections()
    entries = ledger_of(["user", *["calls"] * turns])
    projections.of(("w", "p"), entries, Plan())
    assert len(projections) == 1
    del entries
    gc.collect()
    assert len(projections) == 0
