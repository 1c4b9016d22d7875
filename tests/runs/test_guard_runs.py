"""The stall guard in real runs: seen, told once, ended; and what is honest work is left alone.

Source: shared design, loop.md "Guard (stalls)"; field-faults.md, group A (in the tests' names).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.schemas.run import Stall
from mainspring.testing import Case, activities_of, events_named
from mainspring.tools import tool
from support.chat_server import calling, chat_server, saying
from support.invariants import serving, transcript_of

STEPS: Counter[str] = Counter()


@tool(effects="read")
async def look(at: str = "", near: str = "") -> str:
    """Look at something that never changes.

    Args:
        at: What.
        near: What is beside it.
    """
    return f"the same {at}"


@tool(effects="read")
async def step(key: str) -> int:
    """Go one step on.

    Args:
        key: Of the counter.
    """
    STEPS[key] += 1
    return STEPS[key]


@tool(effects="read", polls=True)
async def status(job: str = "") -> str:
    """Say how a job stands.

    Args:
        job: Which.
    """
    return "running"


@tool(effects="read", polls=True)
async def job(key: str) -> str:
    """Say how a job stands: done, when it is asked for the fifth time.

    Args:
        key: Of the job.
    """
    STEPS[key] += 1
    return "running" if STEPS[key] < 5 else "done"


@tool(effects="read")
async def fail(why: str = "") -> str:
    """Fail.

    Args:
        why: With what words.
    """
    raise ValueError(why)


TOOLS = [look, step, status, job, fail]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """One call of a script."""
    return {"tool": tool, "arguments": arguments}


def looks(at: str, repeat: int = 1) -> dict[str, Any]:
    """The same look so many turns in a row."""
    return {"calls": [call("look", at=at)], "repeat": repeat}


OK = {"text": "ok"}
NUDGED = {"expect": {"contains": "[loop-guard]"}, **OK}


def at_work(server: Server, *replies: dict[str, Any], **agent: Any) -> Any:
    """An agent that follows a script with these tools."""
    return serving(server.address, replies=list(replies), tools=TOOLS, agent=agent)


async def stalled(case: Case) -> Any:
    """The result of a run that must stall."""
    run = await case.start()
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert (failed.value.result.outcome, failed.value.result.code) == ("stalled", "NIKA-467")
    return failed.value.result


async def decisions(case: Case) -> list[tuple[str, Any]]:
    """What the guard decided in the only run of a case: each event with its turn."""
    events = await case.events(case.again(case.started[0]))
    return [(event["event"], event["turn"]) for event in events_named(events, "Nudged", "Stalled")]


async def observations(case: Case) -> list[dict[str, Any]]:
    """The observations in the transcript of the only run."""
    entries = await transcript_of(case, case.again(case.started[0]))
    return [entry for entry in entries if entry["kind"] == "observation"]


async def nudges(case: Case) -> list[dict[str, Any]]:
    """The nudges in the transcript of the only run."""
    entries = await transcript_of(case, case.again(case.started[0]))
    return [entry for entry in entries if entry.get("control_kind") == "nudge"]


async def test_nudge_lands_exactly_once_and_the_run_recovers(server: Server) -> None:
    """At the third identical turn one message follows the observations; the run goes on and answers."""
    async with at_work(server, looks("a", 3), {**looks("b"), **{"expect": NUDGED["expect"]}}, OK) as case:
        result = await case.run()
        told = await decisions(case)
        (nudge,) = await nudges(case)
        entries = await transcript_of(case, case.again(case.started[0]))
    assert result.answer == "ok"
    assert told == [("Nudged", 3)]
    assert entries[nudge["seq"] - 1]["kind"] == "observation"
    assert 'look(at="a")' in nudge["content"]


async def test_nudge_is_sent_in_one_message_with_the_observations(server: Server) -> None:
    """A provider never sees two messages of the user in a row, and reads the nudge after the results."""
    same = calling(("look", '{"at": "a"}'))
    async with chat_server([same, same, same, saying("ok")]) as provider:
        model = {"model": "openai-chat:m", "base_url": provider.base_url}
        options: dict[str, Any] = {"agent": {"model": "http"}, "config": {"models": {"http": model}}}
        async with serving(server.address, tools=TOOLS, **options) as case:
            assert (await case.run()).answer == "ok"
    sent = [body.decode() for body in provider.bodies]
    assert [text.count("[loop-guard]") for text in sent] == [0, 0, 0, 1]


async def test_identical_cycles_stall_and_the_model_is_not_asked_again(server: Server) -> None:
    """Five identical turns end the run as NIKA-467 with evidence; a sixth request is never made."""
    async with at_work(server, {**looks("a", 5), "text": "still looking"}, OK) as case:
        result = await stalled(case)
        told = await decisions(case)
        ran = activities_of(await case.history(case.started[0]))
    assert result.stall == Stall(period=1, repeats=5, steps=('look(at="a")',))
    assert result.partial == "still looking"
    assert 'look(at="a")' in result.message
    assert told == [("Nudged", 3), ("Stalled", 5)]
    assert ran.count(("mainspring.call_model", "completed")) == 5
    assert result.spend.tool_calls == 5


async def test_polling_with_changing_observations_never_trips(server: Server) -> None:
    """A2: the same call eight times with another result each time is progress."""
    poll = {"calls": [call("step", key="polling")], "repeat": 8}
    async with at_work(server, poll, OK) as case:
        assert (await case.run()).answer == "ok"
        assert await decisions(case) == []


async def test_tool_that_polls_is_exempt_and_others_stay_guarded(server: Server) -> None:
    """A2, A8: ten equal answers of a waiting tool are fine; a loop of another tool beside it is seen."""
    waits = {"calls": [call("status", job="j")], "repeat": 10}
    beside = {"calls": [call("status", job="j"), call("look", at="a")], "repeat": 5}
    async with at_work(server, waits, beside) as case:
        result = await stalled(case)
        told = await decisions(case)
    assert told == [("Nudged", 13), ("Stalled", 15)]
    assert result.stall.repeats == 5


async def test_poll_below_the_stall_is_left_to_end(server: Server) -> None:
    """A8: four equal answers of an undeclared poll are nudged and not ended, and thresholds are settings."""
    async with at_work(server, looks("job", 4), OK) as case:
        assert (await case.run()).answer == "ok"
    async with at_work(server, looks("job", 9), OK, guard={"nudge_after": 10, "stall_after": 10}) as case:
        assert (await case.run()).answer == "ok"
        assert await decisions(case) == []


async def test_poll_that_reaches_its_end_completes(server: Server) -> None:
    """A8: `running` four times and then `done`, of a tool that declares `polls`: the run gets there."""
    async with at_work(server, {"calls": [call("job", key="declared")], "repeat": 5}, OK) as case:
        assert (await case.run()).answer == "ok"
        assert await decisions(case) == []
        seen = [entry["content"] for entry in await observations(case)]
    assert seen == ["running"] * 4 + ["done"]


async def test_honest_repetitive_work_completes(server: Server) -> None:
    """A1: twelve reads of twelve things are no loop."""
    reads = [{"calls": [call("look", at=f"f{i}")]} for i in range(12)]
    async with at_work(server, *reads, OK) as case:
        assert (await case.run()).answer == "ok"
        assert await decisions(case) == []


async def test_alternating_calls_are_flagged_at_the_third_period(server: Server) -> None:
    """A4: a, b, a, b, a, b is a cycle of two, and is told as a, a, a is."""
    async with at_work(server, *[looks("a"), looks("b")] * 3, OK) as case:
        await case.run()
        assert await decisions(case) == [("Nudged", 6)]


async def test_text_between_equal_calls_hides_nothing(server: Server) -> None:
    """A5: five turns that each say something else and then make the same call."""
    turns = [{**looks("a"), "text": f"Thought {n}: let me look again."} for n in range(5)]
    async with at_work(server, *turns, OK) as case:
        await stalled(case)
        assert await decisions(case) == [("Nudged", 3), ("Stalled", 5)]


async def test_cycle_of_three_is_nudged_then_ended(server: Server) -> None:
    """A10: read, failing edit, failing test, again and again: first a warning, then the end."""
    cycle = [looks("a"), {"calls": [call("fail", why="edit")]}, {"calls": [call("fail", why="test")]}]
    async with at_work(server, *cycle * 5) as case:
        result = await stalled(case)
        told = await decisions(case)
    assert (result.stall.period, result.stall.repeats) == (3, 5)
    assert told == [("Nudged", 3), ("Stalled", 15)]


async def test_cycle_of_three_without_errors_is_nudged_at_its_third_copy(server: Server) -> None:
    """A10: X, Y, Z, X, Y, Z, X, Y, Z is seen although no two neighbours are equal."""
    async with at_work(server, *[looks(at) for at in "xyz"] * 3, OK) as case:
        assert (await case.run()).answer == "ok"
        assert await decisions(case) == [("Nudged", 9)]


async def test_second_loop_has_a_nudge_of_its_own(server: Server) -> None:
    """A11: after a nudge that was heeded, another loop is warned of by its own name."""
    async with at_work(server, looks("c1", 3), looks("c2", 3), OK) as case:
        assert (await case.run()).answer == "ok"
        first, second = await nudges(case)
    assert ("c1" in first["content"], "c2" in first["content"]) == (True, False)
    assert ("c1" in second["content"], "c2" in second["content"]) == (False, True)


async def test_relapse_gets_no_second_warning(server: Server) -> None:
    """A12: the loop that was warned of before is ended without a further nudge."""
    others = [looks(f"other {i}") for i in range(8)]
    async with at_work(server, looks("a", 3), *others, looks("a", 5)) as case:
        await stalled(case)
        assert await decisions(case) == [("Nudged", 3), ("Stalled", 16)]


async def test_wordy_reply_is_no_loop_and_three_results_a_turn_hide_none(server: Server) -> None:
    """A13: repetition inside one text is not looked at; a window of turns holds however many results."""
    wordy = {**looks("x"), "text": "I go on. " * 12}
    three = {"calls": [call("look", at=at) for at in "abc"], "text": "Once more.", "repeat": 3}
    async with at_work(server, wordy, three, OK) as case:
        await case.run()
        assert await decisions(case) == [("Nudged", 4)]


async def test_unknown_tools_are_a_streak_of_errors_and_no_cycle(server: Server) -> None:
    """A14: six different unknown names are six different turns, and failing ones."""
    unknown = [{"calls": [call(f"no_such_{i}")]} for i in range(6)]
    async with at_work(server, *unknown, OK) as case:
        assert (await case.run()).answer == "ok"
        (nudge,) = await nudges(case)
        told = await decisions(case)
    assert told == [("Nudged", 2)]
    assert "Every call of the last 2 turns failed" in nudge["content"]
    assert "no_such_1" in nudge["content"]


async def test_streak_of_errors_nudges_on_its_second_turn(server: Server) -> None:
    """Two turns in which every call failed are told to the model, whatever they called."""
    failing = [{"calls": [call("fail", why=f"{i}")]} for i in range(2)]
    async with at_work(server, *failing, {**NUDGED}) as case:
        assert (await case.run()).answer == "ok"
        events = await case.events(case.again(case.started[0]))
    (nudged,) = events_named(events, "Nudged")
    assert (nudged["turn"], nudged["reason"], nudged["reflections_left"]) == (2, "error_streak", 0)


async def test_one_success_in_a_batch_ends_the_streak(server: Server) -> None:
    """A turn in which something worked is no failure."""
    mixed = [{"calls": [call("fail", why=f"{i}"), call("look", at=f"{i}")]} for i in range(3)]
    async with at_work(server, *mixed, OK) as case:
        await case.run()
        assert await decisions(case) == []


async def test_text_that_a_gate_keeps_refusing_is_seen(server: Server) -> None:
    """A6: a loop without calls is bounded by the guard, not by the turns."""
    agent = {"output_schema": {"type": "integer"}, "limits": {"schema_repairs": 10}}
    async with at_work(server, {"text": "no number", "repeat": 9}, **agent) as case:
        result = await stalled(case)
        told = await decisions(case)
    assert told == [("Nudged", 3), ("Stalled", 5)]
    assert result.spend.turns == 5


async def test_plain_answer_takes_one_model_call(server: Server) -> None:
    """A19: a reply without calls is the answer."""
    async with at_work(server, OK) as case:
        assert (await case.run()).spend.model_calls == 1


async def test_equal_calls_whose_keys_are_ordered_otherwise_are_equal(server: Server) -> None:
    """Providers order the keys of arguments, and put spaces between them, as they like."""
    one = {"calls": [{"tool": "look", "raw_arguments": '{"at": "a", "near": "b"}'}]}
    two = {"calls": [{"tool": "look", "raw_arguments": ' {"near" : "b","at":"a"} '}]}
    async with at_work(server, one, two, one, OK) as case:
        await case.run()
        assert await decisions(case) == [("Nudged", 3)]


async def test_guard_starts_anew_with_each_exchange(server: Server) -> None:
    """What repeated for one message is not held against the next."""
    async with at_work(server, looks("a", 2), OK, looks("a", 2), {"text": "again"}) as case:
        run = await case.start(lifetime="conversation")
        assert await run.ask("once more") == "again"
        await run.finish()
        await run.result()
        assert await decisions(case) == []


async def test_conversation_survives_a_stalled_exchange(server: Server) -> None:
    """The exchange ends as stalled, and the next message is answered."""
    async with at_work(server, looks("a", 5), OK) as case:
        run = await case.start(lifetime="conversation")
        assert await run.ask("something else") == "ok"
        await run.finish()
        await run.result()
        ended = events_named(await case.events(run), "ExchangeEnded")
    assert [event["outcome"] for event in ended] == ["stalled", "completed"]


async def test_no_reflections_means_no_nudge(server: Server) -> None:
    """With `max_reflections: 0` the first word is the last."""
    async with at_work(server, looks("a", 5), guard={"max_reflections": 0}) as case:
        await stalled(case)
        assert await decisions(case) == [("Stalled", 5)]


async def test_state_and_explain_show_the_guard(server: Server) -> None:
    """What repeats is in the state; why the model was told is among the turn's verdicts."""
    async with at_work(server, looks("a", 3), OK) as case:
        run = await case.start()
        await run.result()
        guard = (await run.state())["guard"]
        verdicts = (await run.explain(3))["verdicts"]
    assert (guard["repeats"], guard["nudges"], guard["reflections_left"]) == (3, 1, 0)
    assert verdicts == ["guard: nudge: repeated_actions, 3 times a cycle of 1"]
