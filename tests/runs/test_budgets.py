"""Budgets: an exhausted one buys nothing more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import activities_of, events_named
from support.invariants import serving
from support.tools import EFFECTS, nap, observe, write
from support.waiting import until

LOOK = {
    "calls": [{"tool": "observe", "arguments": {"i": "${n}"}}],
    "usage": {"input_tokens": 9_000, "output_tokens": 1_000},
    "repeat": 50,
}


async def failing(
    server: Server, budgets: dict[str, Any], replies: Any = (LOOK,), agent: dict[str, Any] | None = None
) -> Any:
    """The result of a run that ends without an answer, and its activities."""
    agent = {"budgets": budgets, **(agent or {})}
    tools = [observe, nap, write]
    async with serving(server.address, replies=list(replies), tools=tools, agent=agent) as case:
        run = await case.start()
        with pytest.raises(RunFailed) as failed:
            await run.result()
        done = events_named(await case.events(run), "ToolCompleted")
        return failed.value.result, activities_of(await case.history(run)), done


async def test_turns_end_the_run_and_the_pending_batch_is_not_dispatched(server: Server) -> None:
    """With 3 turns, the third reply's calls are answered but never run."""
    result, ran, done = await failing(server, {"turns": 3})
    assert (result.outcome, result.code) == ("max_turns", "NIKA-460")
    assert ran.count(("mainspring.call_model", "completed")) == 3
    assert ran.count(("observe", "completed")) == 2
    assert [event["status"] for event in done] == ["ok", "ok", "not_run"]


async def test_tokens_stop_before_the_call_that_they_cannot_pay(server: Server) -> None:
    """10,000 tokens a reply, a budget of 25,000: no fourth model call, and the third's calls do not run."""
    result, ran, _ = await failing(server, {"tokens": 25_000})
    assert (result.outcome, result.code) == ("budget", "NIKA-461")
    assert "tokens" in result.message
    assert ran.count(("mainspring.call_model", "completed")) == 3
    assert ran.count(("observe", "completed")) == 2


async def test_total_equal_to_its_ceiling_is_exhausted(server: Server) -> None:
    """A budget of exactly two replies buys two."""
    _, ran, _ = await failing(server, {"tokens": 20_000})
    assert ran.count(("mainspring.call_model", "completed")) == 2


async def test_answer_in_the_turn_that_crosses_the_budget_counts(server: Server) -> None:
    """A valid conclusion beats a budget."""
    replies = [{"text": "done", "usage": {"input_tokens": 90_000, "output_tokens": 10}}]
    async with serving(server.address, replies=replies, agent={"budgets": {"tokens": 1_000}}) as case:
        result = await case.run()
    assert (result.outcome, result.answer) == ("completed", "done")


async def test_cached_tokens_do_not_eat_the_budget(server: Server) -> None:
    """Tokens read from a provider's cache are counted apart."""
    usage = {"input_tokens": 9_000, "output_tokens": 10, "cached_tokens": 8_900}
    replies = [{**LOOK, "usage": usage, "repeat": 5}, {"text": "ok"}]
    agent = {"budgets": {"tokens": 2_000}}
    async with serving(server.address, replies=replies, tools=[observe], agent=agent) as case:
        result = await case.run()
    assert (result.outcome, result.spend.cached_tokens) == ("completed", 44_500)


async def test_batch_that_would_exceed_the_calls_does_not_run_at_all(server: Server) -> None:
    """Limit 6, 5 used, a batch of 2: none starts, and every call is answered."""
    five = {"calls": [{"tool": "write", "arguments": {"key": f"calls {i}"}} for i in range(5)]}
    two = {"calls": [{"tool": "write", "arguments": {"key": f"calls {i}"}} for i in (5, 6)]}
    result, ran, done = await failing(server, {"calls": 6}, [five, two])
    assert (result.outcome, result.spend.tool_calls) == ("budget", 5)
    assert "calls" in result.message
    assert ran.count(("write", "completed")) == 5
    assert [event["status"] for event in done] == ["ok"] * 5 + ["not_run"] * 2
    assert EFFECTS["calls 5"] == EFFECTS["calls 6"] == 0


async def test_wall_time_that_runs_out_during_a_model_call_ends_the_run(server: Server) -> None:
    """A deadline inside a model call is a clean outcome, close to its time."""
    result, _, _ = await failing(server, {"wall": "1s"}, [{"text": "late", "delay": 30}])
    assert (result.outcome, result.code) == ("budget", "NIKA-461")
    assert 1_000 <= result.spend.wall_ms < 5_000


async def test_wall_time_caps_a_tool_call(server: Server) -> None:
    """A tool that outlasts the wall time is ended by it."""
    nap_long = {"calls": [{"tool": "nap", "arguments": {"seconds": 60}}]}
    result, _, _ = await failing(server, {"wall": "1.5s"}, [nap_long])
    assert result.outcome == "budget"
    assert result.spend.wall_ms < 8_000


async def test_exhausted_run_waits_for_a_person_who_tops_it_up(server: Server) -> None:
    """With `on_exhausted: wait` the run pauses durably and goes on after `extend_budget`."""
    replies = [{**LOOK, "repeat": 3}, {"text": "ok"}]
    agent = {"budgets": {"tokens": 20_000}, "limits": {"on_exhausted": "wait"}}
    async with serving(server.address, replies=replies, tools=[observe], agent=agent) as case:
        run = await case.start()
        while (await run.state())["awaiting"] != "budget":
            await asyncio.sleep(0.05)
        new = await case.handle(run).execute_update("extend_budget", {"tokens": 100_000})
        result = await run.result()
        done = events_named(await case.events(run), "ToolCompleted")
    assert new["tokens"] == 120_000
    assert (result.outcome, result.answer) == ("completed", "ok")
    assert [event["status"] for event in done] == ["ok"] * 3


async def test_wall_time_that_runs_out_during_a_model_call_is_waited_for(server: Server) -> None:
    """With `on_exhausted: wait` a call that the deadline ends is made again after the top-up."""
    agent = {"budgets": {"wall": "0.5s"}, "limits": {"on_exhausted": "wait"}}
    async with serving(server.address, replies=[{"text": "late", "delay": 1.0}], agent=agent) as case:
        run = await case.start()
        await until(run, awaiting="budget")
        await case.handle(run).execute_update("extend_budget", {"wall": 20})
        result = await run.result()
    assert (result.outcome, result.answer, result.spend.turns) == ("completed", "late", 2)


async def test_model_that_hangs_in_the_last_turn_is_no_spent_wall_time(server: Server) -> None:
    """A time-out of the model itself says so, also where no further turn is left."""
    agent = {"limits": {"model_timeout": "0.5s"}}
    result, _, _ = await failing(server, {"turns": 1}, [{"text": "late", "delay": 30}], agent)
    assert (result.outcome, "wall" in result.message) == ("refused", False)


async def test_failed_attempts_and_replies_are_all_counted(server: Server) -> None:
    """A run that fails at turn 3 reports the spend of all three turns."""
    result, _, _ = await failing(server, {"turns": 3})
    assert (result.spend.input_tokens, result.spend.output_tokens) == (27_000, 3_000)
    assert result.spend.model_calls == 3


async def test_call_that_failed_for_good_is_billed_and_its_fallback_answers(server: Server) -> None:
    """What a model was billed before it failed stays in the spend; the fallback's answer ends the run."""
    billed = {"status": 401, "usage": {"input_tokens": 700, "output_tokens": 7}}
    config = {
        "models": {
            "default": {"script": "script.yaml", "fallback": "spare"},
            "spare": {"script": "spare.yaml"},
        }
    }
    spare = "replies:\n- {text: from the spare, usage: {input_tokens: 10, output_tokens: 3}}\n"
    replies = [{"fails": [billed], "text": "never"}]
    async with serving(server.address, replies=replies, config=config, files={"spare.yaml": spare}) as case:
        run = await case.start()
        result = await run.result()
        failed = events_named(await case.events(run), "ModelFailed")
    assert (result.answer, result.spend.input_tokens, result.spend.output_tokens) == (
        "from the spare",
        710,
        10,
    )
    assert [(event["model"], event["fallback"]) for event in failed] == [("default", "spare")]
