"""Talking to a run: two queues, interrupting, pausing, finishing, cancelling."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import Worker

from mainspring.client import Run, RunCancelled, RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, events_named, replay
from support.invariants import check_case, serving
from support.tools import EFFECTS, nap, slow
from support.waiting import until

NAP = {"calls": [{"tool": "nap", "arguments": {"seconds": 0.4}}]}


async def words(case: Case, run: Run[Any]) -> list[tuple[str, Any]]:
    """Kind and content of each entry, without observations' content."""
    entries = await case.handle(run).query("transcript")
    return [
        (entry["kind"], None if entry["kind"] == "observation" else entry.get("content", ""))
        for entry in entries
    ]


async def test_steering_lands_after_the_observations_and_before_the_next_model_call(server: Server) -> None:
    """A message that arrives during a tool call stands behind its observation, once, in the same exchange."""
    replies = [NAP, {"expect": {"contains": "only the tests"}, "text": "ok"}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start("look")
        await until(run, status="acting")
        assert await run.steer("only the tests") == 1
        assert (await run.result()).exchanges == 1
        said = await words(case, run)
    assert said == [
        ("user", "look"),
        ("reply", ""),
        ("observation", None),
        ("user", "only the tests"),
        ("reply", "ok"),
    ]


async def test_steering_goes_first_and_a_follow_up_waits_for_its_own_exchange(server: Server) -> None:
    """With a follow-up queued, steering is what the next model call sees; the follow-up comes after."""
    replies = [NAP, {"text": "first"}, {"expect": {"contains": "later"}, "text": "second"}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start("look")
        await until(run, status="acting")
        await run.follow_up("later")
        await run.steer("now")
        result = await run.result()
        said = await words(case, run)
    assert (result.answer, result.exchanges) == ("second", 2)
    assert [text for kind, text in said if kind == "user"] == ["look", "now", "later"]
    assert said.index(("user", "now")) < said.index(("reply", "first")) < said.index(("user", "later"))


async def test_steering_before_the_answer_is_committed_reopens_the_exchange(server: Server) -> None:
    """Words that arrive while the model writes its answer are answered too; the draft is superseded."""
    replies = [{"text": "draft", "delay": 0.8}, {"expect": {"contains": "wait"}, "text": "better"}]
    async with serving(server.address, replies=replies) as case:
        run = await case.start()
        await until(run, turn=1)
        await run.steer("wait, also this")
        result = await run.result()
        verdicts = (await run.explain(1))["verdicts"]
    assert (result.answer, result.exchanges) == ("better", 1)
    assert any("superseded" in verdict for verdict in verdicts)


async def test_steering_with_interrupt_withdraws_the_call_in_flight(server: Server) -> None:
    """The call in flight is cancelled, its outcome is told as unknown, and the exchange goes on."""
    replies = [{"calls": [{"tool": "slow", "arguments": {"key": "steered"}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[slow]) as case:
        run = await case.start()
        await until(run, status="acting")
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await run.steer("stop that", interrupt=True)
        result = await run.result()
        took = time.monotonic() - began
        done = events_named(await case.events(run), "ToolCompleted", "Interrupted")
        said = await words(case, run)
    assert (result.answer, result.exchanges) == ("ok", 1)
    assert took < 10
    assert [event.get("status", event["event"]) for event in done] == ["interrupted", "Interrupted"]
    assert said.index(("observation", None)) < said.index(("user", "stop that"))
    assert EFFECTS["ended steered"] == 0


async def test_interrupt_ends_the_exchange_and_answers_every_call(server: Server) -> None:
    """Of four calls one at a time, interrupted in the second, all four have an observation."""
    calls = [{"tool": "nap", "arguments": {"seconds": 0}}] + [
        {"tool": "slow", "arguments": {"key": f"four {i}"}} for i in range(3)
    ]
    agent = {"limits": {"parallel_calls": 1}}
    async with serving(server.address, replies=[{"calls": calls}], tools=[slow, nap], agent=agent) as case:
        run = await case.start()
        while not EFFECTS["began four 0"]:
            await asyncio.sleep(0.02)
        await run.interrupt()
        with pytest.raises(RunFailed) as failed:
            await run.result()
        done = events_named(await case.events(run), "ToolCompleted")
    assert failed.value.result.outcome == "interrupted"
    assert [event["status"] for event in done] == ["ok", "interrupted", "not_run", "not_run"]


async def test_interrupt_of_a_model_call_ends_it(server: Server) -> None:
    """A model call in flight is cancelled and the run ends as interrupted, not after the model's delay."""
    async with serving(server.address, replies=[{"text": "slow", "delay": 20}]) as case:
        run = await case.start()
        await until(run, turn=1)
        began = time.monotonic()
        await run.interrupt()
        with pytest.raises(RunFailed):
            await run.result()
    assert time.monotonic() - began < 5


async def test_conversation_answers_follow_ups_until_it_is_finished(server: Server) -> None:
    """A conversation waits after its answer, answers a follow-up, and ends when told."""
    replies = [{"text": "one"}, {"text": "two"}]
    async with serving(server.address, replies=replies) as case:
        run = await case.start(lifetime="conversation")
        await until(run, status="waiting", awaiting="follow_up")
        assert await run.ask("and then?") == "two"
        await run.finish()
        result = await run.result()
    assert (result.outcome, result.answer, result.exchanges) == ("completed", "two", 2)


async def test_conversation_ends_when_nobody_comes_back(server: Server) -> None:
    """An idle conversation completes with its last answer."""
    async with serving(server.address, replies=[{"text": "one"}]) as case:
        result = await case.run(lifetime="conversation", idle_timeout=0.5)
    assert (result.outcome, result.answer) == ("completed", "one")


async def test_conversation_outlives_an_exchange_without_an_answer(server: Server) -> None:
    """An interrupted exchange is reported and the conversation waits for the next message."""
    replies = [{"text": "never", "delay": 20}, {"text": "here"}]
    async with serving(server.address, replies=replies) as case:
        run = await case.start(lifetime="conversation")
        await until(run, turn=1)
        await run.interrupt()
        await until(run, awaiting="follow_up")
        assert await run.ask("again") == "here"
        await run.finish()
        assert (await run.result()).answer == "here"
        ended = events_named(await case.events(run), "ExchangeEnded")
    assert [event["outcome"] for event in ended] == ["interrupted", "completed"]


async def test_interrupt_means_the_words_before_it(server: Server) -> None:
    """Between two exchanges it means the words that wait, be it in one task with them, and no later ones."""
    replies = [{"text": "one"}, {"text": "two"}]
    async with serving(server.address, replies=replies) as case:
        unserved = f"{case.task_queue}-alone"
        async with Worker(case.client, task_queue=unserved, max_cached_workflows=0):
            run = await case.start(lifetime="conversation", task_queue=unserved)
            await until(run, awaiting="follow_up")
        for name, *words in (("interrupt",), ("follow_up", "a"), ("interrupt",), ("follow_up", "b")):
            await case.handle(run).signal(name, args=words)  # no worker: one task has them all
        async with Worker(case.client, task_queue=unserved, max_cached_workflows=0):
            await until(run, awaiting="follow_up", exchange=3)
            await run.finish()
            result = await run.result()
            ended = events_named(await case.events(run), "ExchangeEnded")
            await check_case(case)
        case.started.remove(run.id)  # nobody serves it any more
        await replay(await case.history(run), case.plugin)
    assert [event["outcome"] for event in ended] == ["completed", "interrupted", "completed"]
    assert result.answer == "two"


async def test_paused_run_starts_no_call_until_it_is_resumed(server: Server) -> None:
    """What is in flight ends; the next model call waits for resume, and the wait is not billed."""
    replies = [NAP, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start()
        await until(run, status="acting")
        await run.pause()
        state = await until(run, status="waiting", awaiting="resume")
        await asyncio.sleep(1.0)
        assert (await run.state())["turn"] == state["turn"] == 1
        await run.resume()
        result = await run.result()
    assert result.answer == "ok"
    assert result.spend.wall_ms < 1_200


@pytest.mark.parametrize("when", [0.0, 0.05, 0.2, 0.6, 1.0])
async def test_cancel_ends_the_run_cancelled_at_any_moment(server: Server, when: float) -> None:
    """A cancelled run ends Cancelled, its last event says so, and every call of it has its observation.

    One that is cancelled before its first workflow task never began: it has no events.
    """
    replies = [{"text": "thinking", **NAP, "repeat": 40}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start()
        await asyncio.sleep(when)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        events = await case.events(run)
        calls = {event["call_id"] for event in events if event["event"] == "ToolCompleted"}
        entries = await case.handle(run).query("transcript")
    ends = (events[0]["event"], events[-1]["event"], events[-1]["outcome"]) if events else None
    assert ends == ("RunStarted", "Finished", "cancelled") or (ends is None and when == 0.0)
    assert calls == {call["id"] for entry in entries for call in entry.get("calls", [])}


async def test_burst_at_the_moment_of_completion_is_delivered_or_reported(server: Server) -> None:
    """Every accepted message is in the transcript once, in order, or named as unanswered in the result."""
    async with serving(server.address, replies={"replies": [{"text": "a"}], "then": "repeat_last"}) as case:
        for _ in range(10):
            run = await case.start()
            taken: list[str] = []
            for i in range(20):
                try:
                    await case.handle(run).signal("follow_up", f"message {i}")
                except RPCError:
                    break
                taken.append(f"message {i}")
            result = await run.result()
            entries = await run.transcript()
            said = [entry.content for entry in entries if entry.kind == "user"][1:]
            assert [*said, *result.unanswered] == taken


async def test_unknown_update_is_refused_by_name(server: Server) -> None:
    """An update that the run does not know is refused with what it knows, and harms nothing."""
    async with serving(server.address, replies=[{"text": "ok", "delay": 0.5}]) as case:
        run = await case.start()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await case.handle(run).execute_update("steeer", "x")
        assert "steer" in str(refused.value.cause)
        assert (await run.result()).answer == "ok"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("steer", [7]),
        ("steer", [{"mesage": "x"}]),
        ("steer", [{"message": "x", "interrupt": "perhaps"}]),
        ("steer", ["a", "b"]),
        ("steer", []),
        ("steer", ["   "]),
        ("follow_up", [None]),
        ("interrupt", ["now"]),
        ("no_such_signal", []),
        ("steer", [b"\xff\xfe"]),
    ],
)
async def test_undecodable_signal_is_an_event_and_harms_nothing(
    server: Server, name: str, args: list[Any]
) -> None:
    """Whatever a signal carries, the run goes on and says what it rejected and why."""
    async with serving(server.address, replies=[{"text": "ok", "delay": 0.4}]) as case:
        run = await case.start()
        await case.handle(run).signal(name, args=args)
        assert (await run.result()).answer == "ok"
        rejected = events_named(await case.events(run), "SignalRejected")
    assert [event["signal"] for event in rejected] == [name]
    assert rejected[0]["reason"]


async def test_repeated_update_is_taken_once(server: Server) -> None:
    """An update repeated with its id gets the first answer again, and its message is queued once."""
    async with serving(server.address, replies=[{"text": "ok", "delay": 0.6}, {"text": "more"}]) as case:
        run = await case.start()
        handle = case.handle(run)
        answers = [await handle.execute_update("follow_up", "more?", id="same") for _ in range(3)]
        result = await run.result()
    assert answers == [{"accepted": 1}] * 3
    assert result.exchanges == 2
