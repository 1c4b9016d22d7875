"""Calls of a run: every call has exactly one observation, in the order of the calls."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, events_named
from mainspring.tools import tool
from support.invariants import serving
from support.tools import EFFECTS, broken, nap, observe, slow, vault, write


def began_at(event: dict[str, Any]) -> datetime:
    """When a call was dispatched."""
    return datetime.fromisoformat(event["began"])


async def observations(case: Case, run: Any) -> list[dict[str, Any]]:
    """The observations in a run's transcript."""
    entries = await case.handle(run).query("transcript")
    return [entry for entry in entries if entry["kind"] == "observation"]


async def test_calls_of_a_reply_run_at_once_and_fold_in_order(server: Server) -> None:
    """Parallel calls overlap in time; their observations stand in the order of the calls."""
    calls = [{"tool": "nap", "arguments": {"seconds": s}} for s in (0.9, 0.3, 0.6)]
    async with serving(server.address, replies=[{"calls": calls}, {"text": "ok"}], tools=[nap]) as case:
        run = await case.start()
        await run.result()
        seen = await observations(case, run)
        calls_told = events_named(await case.events(run), "ToolCompleted")
    spans = [(began_at(event), began_at(event) + timedelta(milliseconds=event["ms"])) for event in calls_told]
    assert max(began for began, _ in spans) < min(ended for _, ended in spans)
    assert [entry["call_id"][-2:] for entry in seen] == ["-1", "-2", "-3"]


async def test_call_has_a_stable_idempotency_key(server: Server) -> None:
    """A tool sees `<workflow id>:<activity id>`, which any language can compute."""
    replies = [{"calls": [{"tool": "nap", "arguments": {"seconds": 0}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start()
        await run.result()
        seen = await observations(case, run)
    assert seen[0]["content"] == f"{run.id}:{seen[0]['call_id']}"


async def test_unknown_tool_is_an_observation_with_near_names(server: Server) -> None:
    """An unknown name harms nothing: the others run, and the model reads what it may have meant."""
    calls = [{"tool": "observ", "arguments": {}}, {"tool": "observe", "arguments": {"i": 2}}]
    async with serving(server.address, replies=[{"calls": calls}, {"text": "ok"}], tools=[observe]) as case:
        run = await case.start()
        await run.result()
        seen = await observations(case, run)
    assert seen[0]["is_error"]
    assert "observe" in seen[0]["content"]
    assert seen[1]["content"] == "observation 2"


async def test_strict_tools_end_the_run_with_nothing_dispatched(server: Server) -> None:
    """With `strict_tools` a name outside the whitelist ends the run as NIKA-462."""
    calls = [{"tool": "write", "arguments": {"key": "strict"}}, {"tool": "other", "arguments": {}}]
    agent = {"limits": {"strict_tools": True}}
    async with serving(server.address, replies=[{"calls": calls}], tools=[write], agent=agent) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run()
    assert (failed.value.result.outcome, failed.value.result.code) == ("forbidden_tool", "NIKA-462")
    assert EFFECTS["strict"] == 0


@pytest.mark.parametrize("raw", ['{"i": 1,,}', '["x"]', "7", '{"i":1}{"i":2}', '{"x":' * 5000, '{"i": NaN}'])
async def test_malformed_arguments_never_run(server: Server, raw: str) -> None:
    """Arguments that are no JSON object are an observation; the call never runs as `{}`."""
    replies = [{"calls": [{"tool": "observe", "raw_arguments": raw}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[observe]) as case:
        run = await case.start()
        assert (await run.result()).answer == "ok"
        seen = await observations(case, run)
        ran = activities_of(await case.history(run))
    assert seen[0]["is_error"]
    assert "observe" not in dict(ran)


@pytest.mark.parametrize("raw", ["", "  "])
async def test_absent_arguments_mean_none_where_the_schema_admits_it(server: Server, raw: str) -> None:
    """Empty arguments call a tool that needs none."""
    replies = [{"calls": [{"tool": "observe", "raw_arguments": raw}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[observe]) as case:
        run = await case.start()
        await run.result()
        assert (await observations(case, run))[0]["content"] == "observation 0"


async def test_duplicate_call_ids_of_a_provider_do_no_harm(server: Server) -> None:
    """Two calls with one id both run, and both have their own observation."""
    calls = [{"tool": "observe", "arguments": {"i": i}, "id": "c1"} for i in (1, 2)]
    replies = [{"calls": calls}, {"calls": calls}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[observe]) as case:
        run = await case.start()
        await run.result()
        seen = await observations(case, run)
    assert len({entry["call_id"] for entry in seen}) == 4
    assert [entry["content"] for entry in seen] == ["observation 1", "observation 2"] * 2


async def test_error_of_a_tool_is_an_observation_and_not_retried(server: Server) -> None:
    """A tool that raises is read by the model; the activity completed, once."""
    replies = [{"calls": [{"tool": "broken", "arguments": {"why": "no luck"}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[broken]) as case:
        run = await case.start()
        await run.result()
        seen = await observations(case, run)
        ran = activities_of(await case.history(run))
    assert seen[0]["is_error"]
    assert "no luck" in seen[0]["content"]
    assert ran.count(("broken", "completed")) == 1


async def test_hard_refusal_of_a_tool_ends_the_run(server: Server) -> None:
    """`ToolForbidden` ends the run as `security` and is never fed back."""
    async with serving(server.address, replies=[{"calls": [{"tool": "vault"}]}], tools=[vault]) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run()
    assert (failed.value.result.outcome, failed.value.result.code) == ("security", "NIKA-468")


async def test_lost_write_has_an_unknown_outcome(server: Server) -> None:
    """A write that times out runs once, and the model is told to verify before repeating."""
    replies = [{"calls": [{"tool": "slow", "arguments": {"key": "lost"}}]}, {"text": "ok"}]
    quick = tool(effects="write", timeout=1.0, name="slow")(slow.function)
    async with serving(server.address, replies=replies, tools=[quick]) as case:
        run = await case.start()
        await run.result()
        seen = await observations(case, run)
        status = events_named(await case.events(run), "ToolCompleted")[0]["status"]
    assert "unknown" in seen[0]["content"].lower()
    assert (status, EFFECTS["began lost"]) == ("unknown", 1)


async def test_batch_beyond_its_bound_answers_every_call(server: Server) -> None:
    """Of 200 calls in one reply the first 64 run and the first 128 are kept, each with its observation."""
    calls = [{"tool": "observe", "arguments": {"i": i}} for i in range(200)]
    async with serving(server.address, replies=[{"calls": calls}, {"text": "ok"}], tools=[observe]) as case:
        run = await case.start()
        await run.result()
        ran = activities_of(await case.history(run))
        done = events_named(await case.events(run), "ToolCompleted")
    assert ran.count(("observe", "completed")) == 64
    assert len(done) == 128


async def test_result_that_cannot_be_read_is_an_observation(server: Server) -> None:
    """A user's activity under a tool's name may return what nobody can decode; the run goes on."""

    @activity.defn(name="observe")
    async def unreadable(_: dict[str, int]) -> RawValue:
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 300))

    replies = [{"calls": [{"tool": "observe"}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[observe], activities=[unreadable]) as case:
        run = await case.start()
        assert (await run.result()).answer == "ok"
        seen = await observations(case, run)
    assert seen[0]["is_error"]
    assert "cannot be read" in seen[0]["content"]
