"""Questions of a run: it waits durably for an answer, and every end of the wait is one observation."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import SearchAttributeKey

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, events_named
from support.invariants import serving, transcript_of
from support.tools import EFFECTS, nap, write
from support.waiting import until

ASK = {"tool": "nika:ask", "arguments": {"question": "Which city?", "options": ["Oslo", "Bergen"]}}
TELL = {"text": "You said: ${last_observation}"}
AGENT: dict[str, Any] = {"tools": ["nika:ask", "write", "nap"]}


def asking(server: Server, *replies: dict[str, Any], **options: Any) -> Any:
    """An agent that may ask."""
    agent = {**AGENT, **options.pop("agent", {})}
    return serving(server.address, replies=list(replies), tools=[write, nap], agent=agent, **options)


async def observed(case: Case, run: Any) -> list[dict[str, Any]]:
    """The observations of a run."""
    return [entry for entry in await transcript_of(case, run) if entry["kind"] == "observation"]


async def refused(case: Case, run: Any, argument: Any) -> str:
    """What an `answer` that is not taken is told."""
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await case.handle(run).execute_update("answer", argument)
    return str(error.value.cause)


async def test_question_waits_for_its_answer_and_costs_no_activity(server: Server) -> None:
    """The run shows what it asks, goes on with the answer as the observation, and dispatches nothing."""
    async with asking(server, {"calls": [ASK]}, TELL) as case:
        run = await case.start()
        state = await until(run, awaiting="answer")
        (question,) = state["questions"]
        told = await case.handle(run).execute_update(
            "answer", {"question_id": question["question_id"], "text": "Bergen"}
        )
        result = await run.result()
        ran = activities_of(await case.history(run))
        events = await case.events(run)
    assert (state["status"], question["question"], question["options"]) == (
        "waiting",
        "Which city?",
        ["Oslo", "Bergen"],
    )
    assert told == {"status": "answered", "question_id": question["question_id"]}
    assert result.answer == "You said: Bergen"
    assert [kind for kind, _ in ran] == ["mainspring.arm", "mainspring.call_model", "mainspring.call_model"]
    assert [event["status"] for event in events_named(events, "QuestionClosed", "ToolCompleted")] == [
        "answered",
        "ok",
    ]
    assert result.spend.tool_calls == 0


async def test_question_is_shown_where_people_look(server: Server) -> None:
    """In the state, in the details of the run's page, and by the search attribute `MainspringAwaiting`."""
    async with asking(server, {"calls": [ASK]}, TELL) as case:
        run = await case.start()
        (question,) = (await until(run, awaiting="answer"))["questions"]
        metadata: WorkflowMetadata = await case.handle(run).query(
            "__temporal_workflow_metadata", result_type=WorkflowMetadata
        )
        described = await case.handle(run).describe()
        await run.answer("Oslo", question["question_id"])
        await run.result()
        after = await case.handle(run).describe()
    assert "**asks:** Which city?" in metadata.current_details
    awaiting = SearchAttributeKey.for_keyword("MainspringAwaiting")
    assert described.typed_search_attributes[awaiting] == "answer"
    assert after.typed_search_attributes[awaiting] == "none"


async def test_waiting_for_a_person_is_no_wall_time(server: Server) -> None:
    """A second of waiting for an answer is not billed."""
    async with asking(server, {"calls": [ASK]}, TELL, agent={"budgets": {"wall": "1s"}}) as case:
        run = await case.start()
        (question,) = (await until(run, awaiting="answer"))["questions"]
        await asyncio.sleep(1.2)
        await run.answer("Oslo", question["question_id"])
        assert (await run.result()).outcome == "completed"


async def test_answer_is_taken_once_and_only_by_a_question_that_waits(server: Server) -> None:
    """An unknown id, a blank or too large text and a second answer are refused, each saying why."""
    other = {"calls": [{**ASK, "arguments": {"question": "And when?"}}]}
    async with asking(server, {"calls": [ASK]}, other, TELL) as case:
        run = await case.start()
        (first,) = (await until(run, awaiting="answer"))["questions"]
        known = first["question_id"]
        assert known in await refused(case, run, {"question_id": "nope", "text": "x"})
        assert "blank" in await refused(case, run, {"question_id": known, "text": "  "})
        assert "16384" in await refused(case, run, {"question_id": known, "text": "x" * 16_385})
        assert "text" in await refused(case, run, {"question_id": known})
        await run.answer("Oslo", known)
        await until(run, turn=2, awaiting="answer")
        assert "answered" in await refused(case, run, {"question_id": known, "text": "Bergen"})
        await run.answer("now")
        assert (await run.result()).answer == "You said: now"


async def test_question_that_nobody_answers_expires(server: Server) -> None:
    """After `question_timeout` the model is told so, and a late answer is too late."""
    agent = {"limits": {"question_timeout": "0.5s"}}
    async with asking(server, {"calls": [ASK]}, {"text": "ok", "delay": 1}, agent=agent) as case:
        run = await case.start()
        (question,) = (await until(run, awaiting="answer"))["questions"]
        await until(run, turn=2)
        late = await refused(case, run, {"question_id": question["question_id"], "text": "x"})
        await run.result()
        (seen,) = await observed(case, run)
    assert "expired" in late
    assert seen["is_error"]
    assert "Nobody answered" in seen["content"]


async def test_unattended_run_never_waits(server: Server) -> None:
    """With nobody to ask, the observation names the policy."""
    async with asking(server, {"calls": [ASK]}, {"text": "ok"}) as case:
        result = await case.run(attended=False)
        (seen,) = await observed(case, case.again(case.started[0]))
    assert result.answer == "ok"
    assert "attended: false" in seen["content"]


async def test_siblings_of_a_question_run_at_once_and_all_fold_in_order(server: Server) -> None:
    """What does not need the person is done while the question waits, exactly once."""
    key = "beside-a-question"
    calls = [ASK, {"tool": "write", "arguments": {"key": key}}, {**ASK, "arguments": {"question": "Why?"}}]
    async with asking(server, {"calls": calls}, {"text": "ok"}) as case:
        run = await case.start()
        state = await until(run, awaiting="answer", status="waiting")
        assert EFFECTS[key] == 1
        city, why = state["questions"]
        await run.answer("because", why["question_id"])
        await run.answer("Oslo", city["question_id"])
        await run.result()
        seen = await observed(case, run)
    assert [entry["content"] for entry in seen][::2] == ["Oslo", "because"]
    assert [entry["tool"] for entry in seen] == ["nika:ask", "write", "nika:ask"]
    assert EFFECTS[key] == 1


@pytest.mark.parametrize(
    ("say", "outcome", "words"),
    [
        (lambda run: run.steer("never mind", interrupt=True), "completed", "Withdrawn"),
        (lambda run: run.finish(), "completed", "Nobody will answer"),
        (lambda run: run.interrupt(), "interrupted", "Withdrawn"),
        (lambda run: run.cancel(), "cancelled", "Withdrawn"),
    ],
    ids=["steer", "finish", "interrupt", "cancel"],
)
async def test_question_is_withdrawn_by_what_ends_the_wait(
    server: Server, say: Any, outcome: str, words: str
) -> None:
    """Whatever ends the wait, the call has its one observation, and no question waits any more."""
    async with asking(server, {"calls": [ASK]}, {"text": "ok"}) as case:
        run = await case.start()
        await until(run, awaiting="answer")
        await say(run)
        with suppress(RunFailed):
            await run.result()
        (seen,) = await observed(case, run)
        state = await run.state()
    assert state["outcome"] == outcome
    assert words in seen["content"]
    assert state["questions"] == []


async def test_steering_waits_for_the_answer(server: Server) -> None:
    """Words that withdraw nothing are heard after the question is answered."""
    async with asking(server, {"calls": [ASK]}, {"text": "ok"}) as case:
        run = await case.start()
        (question,) = (await until(run, awaiting="answer"))["questions"]
        await run.steer("and be brief")
        assert (await run.state())["questions"]
        await run.answer("Oslo", question["question_id"])
        await run.result()
        kinds = [entry["kind"] for entry in await transcript_of(case, run)]
    assert kinds == ["user", "reply", "observation", "user", "reply"]


async def test_two_answers_at_once_have_one_outcome(server: Server) -> None:
    """Of two clients that answer at the same moment one is taken, and the other learns it."""
    async with asking(server, {"calls": [ASK]}, TELL) as case:
        run = await case.start()
        (question,) = (await until(run, awaiting="answer"))["questions"]
        answers = [
            case.handle(run).execute_update("answer", {"question_id": question["question_id"], "text": text})
            for text in ("Oslo", "Bergen")
        ]
        said = await asyncio.gather(*answers, return_exceptions=True)
        result = await run.result()
    assert sorted(isinstance(item, WorkflowUpdateFailedError) for item in said) == [False, True]
    assert result.answer in ("You said: Oslo", "You said: Bergen")


async def test_question_survives_the_worker(server: Server) -> None:
    """A run that waits holds no worker: with no workflow cache at all it answers just the same."""
    async with asking(server, {"calls": [ASK]}, TELL, max_cached_workflows=0) as case:
        run = await case.start()
        (question,) = (await until(run, awaiting="answer"))["questions"]
        await run.answer("Oslo", question["question_id"])
        assert (await run.result()).answer == "You said: Oslo"


async def test_exhausted_budget_does_not_wait_for_a_person(server: Server) -> None:
    """When the batch beside a question spends the wall time, nobody is waited for."""
    calls = [
        ASK,
        {"tool": "nap", "arguments": {"seconds": 0.9}},
        {"tool": "nap", "arguments": {"seconds": 0}},
    ]
    agent = {"budgets": {"wall": "0.6s"}, "limits": {"parallel_calls": 1}}
    async with asking(server, {"calls": calls}, {"text": "ok"}, agent=agent) as case:
        run = await case.start()
        with pytest.raises(Exception, match="NIKA-461"):
            await run.result()
        first, *_ = await observed(case, run)
    assert "ended before" in first["content"]


async def test_answer_while_siblings_run_ends_the_waiting_at_once(server: Server) -> None:
    """Nobody is told to wait for a person who has answered, although another call still runs."""
    calls = [ASK, {"tool": "nap", "arguments": {"seconds": 1.5}}]
    async with asking(server, {"calls": calls}, {"text": "ok"}) as case:
        run = await case.start()
        (question,) = (await until(run, status="acting", awaiting="answer"))["questions"]
        await run.answer("Oslo", question["question_id"])
        state = await run.state()
        assert (await run.result()).answer == "ok"
    assert (state["status"], state["awaiting"], state["questions"]) == ("acting", "none", [])


async def test_question_is_still_awaited_after_a_pause(server: Server) -> None:
    """Paused and resumed while its siblings run, a run is found again by what it waits for."""
    short = {"tool": "nap", "arguments": {"seconds": 1}}
    agent = {"limits": {"parallel_calls": 1}}
    async with asking(server, {"calls": [ASK, short, short]}, {"text": "ok"}, agent=agent) as case:
        run = await case.start()
        await until(run, awaiting="answer", status="acting")
        await run.pause()
        await until(run, awaiting="resume")
        await run.resume()
        await until(run, status="acting", awaiting="answer")
        await run.answer("Oslo")
        await run.result()
        (seen, *_) = await observed(case, run)
    assert seen["content"] == "Oslo"


async def test_question_outlives_a_spent_budget_that_is_waited_for(server: Server) -> None:
    """Where money runs out beside a question and the agent waits for more, the question waits too."""
    first, second = ({"tool": "nap", "arguments": {"seconds": seconds}} for seconds in (0.7, 0))
    agent = {"budgets": {"wall": "0.5s"}, "limits": {"parallel_calls": 1, "on_exhausted": "wait"}}
    async with asking(server, {"calls": [ASK, first, second]}, {"text": "ok"}, agent=agent) as case:
        run = await case.start()
        await until(run, awaiting="answer", status="waiting")
        await run.answer("Oslo")
        await until(run, awaiting="budget")
        await run.extend_budget(wall=100)
        assert (await run.result()).answer == "ok"
        asked, _, not_run = await observed(case, run)
    assert asked["content"] == "Oslo"
    assert "Not run" in not_run["content"]


async def test_question_expires_also_while_siblings_run(server: Server) -> None:
    """Its time is up when it is up: an answer that comes later is refused although the batch is not done."""
    calls = [ASK, {"tool": "nap", "arguments": {"seconds": 2}}]
    agent = {"limits": {"question_timeout": "0.5s"}}
    async with asking(server, {"calls": calls}, {"text": "ok"}, agent=agent) as case:
        run = await case.start()
        (question,) = (await until(run, status="acting", awaiting="answer"))["questions"]
        await asyncio.sleep(0.8)
        late = await refused(case, run, {"question_id": question["question_id"], "text": "x"})
        assert (await run.result()).answer == "ok"
        first, _ = await observed(case, run)
    assert "expired" in late
    assert "Nobody answered" in first["content"]


async def test_each_answer_is_told_when_it_comes(server: Server) -> None:
    """Of two questions the first to be answered is closed at once, and waited for no longer than that."""
    calls = [ASK, {**ASK, "arguments": {"question": "Why?"}}]
    async with asking(server, {"calls": calls}, {"text": "ok"}) as case:
        run = await case.start()
        city, why = (await until(run, awaiting="answer"))["questions"]
        await run.answer("because", why["question_id"])
        early = events_named(await case.events(run), "QuestionClosed")
        await asyncio.sleep(1.5)
        await run.answer("Oslo", city["question_id"])
        await run.result()
        events = await case.events(run)
    assert [event["question_id"] for event in early] == [why["question_id"]]
    closed = {event["question_id"]: event["waited_ms"] for event in events_named(events, "QuestionClosed")}
    assert closed[why["question_id"]] + 1_400 < closed[city["question_id"]]
    took = {event["call_id"]: event["ms"] for event in events_named(events, "ToolCompleted")}
    assert took == closed
