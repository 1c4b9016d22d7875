"""Runs that end with an answer, or with a typed reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import activities_of, events_named
from support.invariants import serving
from support.tools import observe

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}


class Report(BaseModel):
    """A typed output."""

    score: int


async def test_run_answers_after_one_model_call(server: Server) -> None:
    """A text reply ends the run: one model call and nothing more."""
    async with serving(server.address, replies=[{"text": "It is blue."}]) as case:
        run = await case.start("Which colour?")
        result = await run.result()
        history = await case.history(run)
    assert (result.outcome, result.answer) == ("completed", "It is blue.")
    assert activities_of(history) == [
        ("mainspring.arm", "completed"),
        ("mainspring.call_model", "completed"),
    ]


async def test_run_events_tell_the_whole_story_and_nothing_more(server: Server) -> None:
    """RunStarted is first, Finished is last, and each turn has its events exactly once."""
    replies = [{"calls": [{"tool": "observe", "arguments": {"i": 1}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[observe]) as case:
        run = await case.start()
        await run.result()
        names = [event["event"] for event in await case.events(run)]
    turn = ["TurnStarted", "ToolsSelected", "ContextPlanned", "BudgetCheckpoint"]
    assert names == [
        "RunStarted",
        "ExchangeStarted",
        *turn,
        "ToolCompleted",
        *turn,
        "ExchangeEnded",
        "Finished",
    ]


async def test_done_ends_the_run_and_its_siblings_do_not_run(server: Server) -> None:
    """`nika:done` wins over the calls beside it; each call still has exactly one observation."""
    calls = [
        {"tool": "observe", "arguments": {"i": 1}},
        {"tool": "nika:done", "arguments": {"result": {"score": 3}}},
    ]
    agent = {"tools": ["observe", "nika:done"], "output_schema": SCHEMA}
    async with serving(server.address, replies=[{"calls": calls}], tools=[observe], agent=agent) as case:
        run = await case.start()
        result = await run.result()
        events = events_named(await case.events(run), "ToolCompleted")
        ran = activities_of(await case.history(run))
    assert (result.outcome, result.output) == ("done", {"score": 3})
    assert [(event["tool"], event["status"]) for event in events] == [
        ("observe", "not_run"),
        ("nika:done", "ok"),
    ]
    assert "observe" not in dict(ran)


async def test_output_is_typed_in_python(server: Server) -> None:
    """A run started with a pydantic model gives back an instance of it."""
    async with serving(server.address, replies=[{"text": '{"score": 7}'}]) as case:
        run = await case.start(output=Report)
        assert await run.output() == Report(score=7)


async def test_output_that_misses_its_schema_is_repaired(server: Server) -> None:
    """An output that misses its schema is sent back once, with what is wrong, and the next one is taken."""
    replies = [
        {"text": '{"score": "high"}'},
        {"expect": {"contains": "[schema-check]"}, "text": '{"score": 5}'},
    ]
    async with serving(server.address, replies=replies, agent={"output_schema": SCHEMA}) as case:
        run = await case.start()
        result = await run.result()
        held = events_named(await case.events(run), "GateHeld")
    assert result.output == {"score": 5}
    assert [event["gate"] for event in held] == ["output_schema"]


async def test_output_that_never_meets_its_schema_fails_the_run(server: Server) -> None:
    """After two repairs the run ends as `schema`; the repairs are shared by text and `nika:done`."""
    replies = [
        {"text": "no json"},
        {"calls": [{"tool": "nika:done", "arguments": {"result": {"score": "x"}}}]},
        {"text": "still none"},
    ]
    agent = {"output_schema": SCHEMA, "tools": ["nika:done"]}
    async with serving(server.address, replies=replies, agent=agent) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run()
    assert (failed.value.result.outcome, failed.value.result.code) == ("schema", "NIKA-464")
    assert failed.value.result.spend.model_calls == 3


async def test_empty_reply_is_sent_back_once(server: Server) -> None:
    """A reply of thinking alone gets one redo; a second one ends the run as refused."""
    replies = [{"thinking": "hm"}, {"text": "Here."}]
    async with serving(server.address, replies=replies) as case:
        assert (await case.run()).answer == "Here."
    async with serving(server.address, replies=[{"thinking": "hm", "repeat": 2}]) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run()
    assert failed.value.result.outcome == "refused"


async def test_refusal_by_the_model_is_typed(server: Server) -> None:
    """A content filter's stop ends the run as refused, with the spend."""
    replies = [{"text": "", "finish_reason": "content_filter", "usage": {"input_tokens": 9}}]
    async with serving(server.address, replies=replies) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run()
    result = failed.value.result
    assert (result.outcome, result.code, result.spend.input_tokens) == ("refused", "NIKA-463", 9)


async def test_reply_cut_at_its_length_is_redone_once(server: Server) -> None:
    """Calls in a reply that was cut are never run; the second cut reply in a row ends the run."""
    cut = {"calls": [{"tool": "observe", "arguments": {"i": 1}}], "finish_reason": "length"}
    async with serving(server.address, replies=[cut, {"text": "short"}], tools=[observe]) as case:
        run = await case.start()
        assert (await run.result()).answer == "short"
        assert ("observe", "completed") not in activities_of(await case.history(run))
    async with serving(server.address, replies=[{**cut, "repeat": 2}], tools=[observe]) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run()
    assert failed.value.result.outcome == "refused"


async def test_failed_run_carries_its_last_text_as_partial(server: Server) -> None:
    """A run that ends without an answer still gives what the model last wrote."""
    replies = [{"text": "So far so good", "calls": [{"tool": "observe"}], "repeat": 3}]
    agent = {"budgets": {"turns": 2}}
    async with serving(server.address, replies=replies, tools=[observe], agent=agent) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run()
    result = failed.value.result
    assert (result.outcome, result.code, result.partial) == ("max_turns", "NIKA-460", "So far so good")
