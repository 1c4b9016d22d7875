"""Short runs that between them take every path of the loop: played in tests, recorded as golden histories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import WorkflowHistory

from mainspring.client import Run, RunCancelled, RunFailed
from mainspring.schemas.run import RunResult
from mainspring.testing import Case
from mainspring.tools import ToolContext, ToolUnavailable, tool
from support.invariants import serving
from support.tools import broken, nap, observe, slow

__all__ = ["STORIES", "Story", "play"]

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
USAGE = {"input_tokens": 900, "output_tokens": 100}
NAP = {"text": "One moment.", "calls": [{"tool": "nap", "arguments": {"seconds": 0.5}}], "usage": USAGE}
LOOK = {"calls": [{"tool": "observe", "arguments": {"i": "${n}"}}], "usage": USAGE}
AGAIN = {"calls": [{"tool": "observe"}], "usage": USAGE}
ASK = {"tool": "nika:ask", "arguments": {"question": "Which one?", "options": ["this", "that"]}}
ASKING = {"tools": ["observe", "nika:ask"]}
SEARCHES = (
    {"calls": [{"tool": "nika:find_tools", "arguments": {"query": "take some time"}}]},
    {"calls": [{"tool": "nap", "arguments": {"seconds": 0}}]},
    {"calls": [{"tool": "observe"}]},
)
SLOW = {"calls": [{"tool": "slow", "arguments": {"key": "story"}}, {"tool": "observe"}]}


@tool(effects="read")
async def flaky(context: ToolContext) -> str:
    """Fail at first.

    Args:
        context: Given by the engine.
    """
    if context.attempt < 3:
        raise ToolUnavailable("not yet", retry_after=0.05)
    return f"attempt {context.attempt}"


TOOLS = (observe, nap, slow, broken, flaky)
Drive = Callable[[Case, Run[Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Story:
    """One run.

    Args:
        replies: What the model says.
        outcome: How it ends.
        drive: What people do meanwhile.
        start: Options of `start_run`.
        files: Beside the configuration, by name.
    """

    replies: Sequence[Mapping[str, Any]]
    outcome: str = "completed"
    agent: Mapping[str, Any] = field(default_factory=dict)
    drive: Drive | None = None
    start: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


async def play(story: Story, address: str) -> tuple[RunResult, WorkflowHistory]:
    """Run it; the result, also of a run that fails, and the history. The laws of every run are checked."""
    options = {"agent": story.agent, "config": story.config, "files": story.files}
    async with serving(address, replies=story.replies, tools=TOOLS, **options) as case:
        run = await case.start("Do it.", **story.start)
        if story.drive is not None:
            await story.drive(case, run)
        try:
            result = await run.result()
        except RunCancelled:
            result = RunResult(outcome="cancelled")
        except RunFailed as failed:
            if failed.result is None:
                raise
            result = failed.result
        return result, await case.history(run)


async def _until(run: Run[Any], **wanted: Any) -> None:
    async with asyncio.timeout(20):
        while True:
            state = await run.state()
            if all(state[key] == value for key, value in wanted.items()):
                return
            await asyncio.sleep(0.02)


async def _steer(case: Case, run: Run[Any]) -> None:
    await _until(run, status="acting")
    await case.handle(run).signal("steer", "only the tests")
    await case.handle(run).signal("steer", {"mesage": "misspelt"})
    await _until(run, status="acting", turn=2)
    await run.steer("and quickly")


async def _steer_at_once(case: Case, run: Run[Any]) -> None:
    await _until(run, status="acting")
    await asyncio.sleep(0.3)
    await run.steer("drop that", interrupt=True)


async def _interrupt(case: Case, run: Run[Any]) -> None:
    await _until(run, status="acting")
    await asyncio.sleep(0.3)
    await run.interrupt()


async def _interrupt_model(case: Case, run: Run[Any]) -> None:
    await _until(run, turn=1)
    await run.interrupt()


async def _cancel(case: Case, run: Run[Any]) -> None:
    await _until(run, status="acting")
    await asyncio.sleep(0.3)
    await run.cancel()


async def _cancel_waiting(case: Case, run: Run[Any]) -> None:
    await _until(run, awaiting="budget")
    await run.cancel()


async def _top_up(case: Case, run: Run[Any]) -> None:
    await _until(run, awaiting="budget")
    await run.extend_budget(tokens=100_000)


async def _converse(case: Case, run: Run[Any]) -> None:
    await _until(run, awaiting="follow_up")
    await run.ask("and then?")
    await case.handle(run).signal("follow_up", "and last?")
    await _until(run, exchange=3, awaiting="follow_up")
    await run.finish()


async def _pause(case: Case, run: Run[Any]) -> None:
    await _until(run, status="acting")
    await run.pause()
    await _until(run, awaiting="resume")
    await run.resume()


async def _answer(case: Case, run: Run[Any]) -> None:
    await _until(run, status="waiting", awaiting="answer")
    for question in reversed((await run.state())["questions"]):
        answer = {"question_id": question["question_id"], "text": "that"}
        await case.handle(run).execute_update("answer", answer)


async def _say_instead(case: Case, run: Run[Any]) -> None:
    await _until(run, awaiting="answer")
    await run.steer("neither", interrupt=True)


async def _interrupt_question(case: Case, run: Run[Any]) -> None:
    await _until(run, awaiting="answer")
    await run.interrupt()


async def _cancel_question(case: Case, run: Run[Any]) -> None:
    await _until(run, awaiting="answer")
    await run.cancel()


STORIES: dict[str, Story] = {
    "answer": Story([{"text": "It is blue.", "usage": USAGE}]),
    "parallel-tools": Story(
        [
            {
                "text": "All at once.",
                "thinking": "Hm.",
                "calls": [
                    {"tool": "nap", "arguments": {"seconds": 0.2}},
                    {"tool": "observe", "arguments": {"i": 1}},
                    {"tool": "broken", "arguments": {"why": "no luck"}},
                    {"tool": "observed", "arguments": {}},
                    {"tool": "observe", "raw_arguments": '{"i": 1,,}'},
                ],
            },
            {**LOOK, "repeat": 2},
            {"text": "Seen."},
        ]
    ),
    "retries": Story(
        [
            {
                "fails": [
                    {"status": 429, "retry_after": 0.05, "usage": {"input_tokens": 3}},
                    {"status": 500},
                ],
                "calls": [{"tool": "flaky"}],
            },
            {"text": "At last."},
        ]
    ),
    "fallback": Story(
        [{"fails": [{"status": 401}], "text": "never"}],
        config={
            "models": {
                "default": {"script": "script.yaml", "fallback": "second"},
                "second": {"script": "second.yaml"},
            }
        },
        files={"second.yaml": 'replies: [{text: "From the second."}]'},
    ),
    "steering": Story([NAP, NAP, {"expect": {"contains": "and quickly"}, "text": "Done."}], drive=_steer),
    "steering-interrupt": Story(
        [SLOW, {"expect": {"contains": "drop that"}, "text": "Dropped."}], drive=_steer_at_once
    ),
    "interrupt": Story([SLOW], "interrupted", drive=_interrupt),
    "interrupt-model": Story([{"text": "slow", "delay": 20}], "interrupted", drive=_interrupt_model),
    "cancel": Story([SLOW], "cancelled", drive=_cancel),
    "cancel-waiting": Story(
        [{**LOOK, "repeat": 9}],
        "cancelled",
        {"budgets": {"tokens": 2_000}, "limits": {"on_exhausted": "wait"}},
        _cancel_waiting,
    ),
    "max-turns": Story([{**LOOK, "repeat": 9}], "max_turns", {"budgets": {"turns": 2}}),
    "budget": Story([{**LOOK, "repeat": 9}], "budget", {"budgets": {"tokens": 2_000}}),
    "budget-extended": Story(
        [{**LOOK, "repeat": 3}, {"text": "Enough."}],
        agent={"budgets": {"tokens": 2_000}, "limits": {"on_exhausted": "wait"}},
        drive=_top_up,
    ),
    "conversation": Story(
        [{"text": "One."}, LOOK, {"text": "Two."}, {"text": "Three."}],
        drive=_converse,
        start={"lifetime": "conversation"},
    ),
    "schema-repair": Story(
        [{"text": "no json"}, {"text": '{"score": "high"}'}, {"text": '{"score": 5}'}],
        agent={"output_schema": SCHEMA},
    ),
    "schema-failed": Story([{"text": "no json", "repeat": 3}], "schema", {"output_schema": SCHEMA}),
    "done": Story(
        [{"calls": [{"tool": "observe"}, {"tool": "nika:done", "arguments": {"result": {"score": 3}}}]}],
        "done",
        {"output_schema": SCHEMA, "tools": ["observe", "nika:done"]},
    ),
    "repeated": Story([{**AGAIN, "repeat": 6}], "stalled"),
    "nudged": Story(
        [{**AGAIN, "repeat": 3}, {"expect": {"contains": "[loop-guard]"}, "text": "Something else, then."}]
    ),
    "errors": Story(
        [{"calls": [{"tool": "broken", "arguments": {"why": "${n}"}}], "repeat": 2}, {"text": "No."}]
    ),
    "refused-text": Story(
        [{"text": "no json", "repeat": 5}],
        "stalled",
        {"output_schema": SCHEMA, "limits": {"schema_repairs": 9}},
    ),
    "asked": Story(
        [{"calls": [ASK, {"tool": "observe"}, ASK]}, {"text": "So it is."}], agent=ASKING, drive=_answer
    ),
    "ask-expired": Story(
        [{"calls": [ASK]}, {"text": "Nobody."}], agent={**ASKING, "limits": {"question_timeout": "0.3s"}}
    ),
    "ask-withdrawn": Story([{"calls": [ASK]}, {"text": "Never mind."}], agent=ASKING, drive=_say_instead),
    "ask-interrupted": Story([{"calls": [ASK]}], "interrupted", ASKING, _interrupt_question),
    "ask-cancelled": Story([{"calls": [ASK]}], "cancelled", ASKING, _cancel_question),
    "ask-unattended": Story([{"calls": [ASK]}, {"text": "Alone."}], agent=ASKING, start={"attended": False}),
    "composed": Story(
        [{"calls": [{"tool": "nika:compose", "arguments": {"workflow": "nika: a"}}]}, {"text": "Unchecked."}],
        agent={"tools": ["nika:compose"]},
    ),
    "routed": Story(
        [*SEARCHES, {"text": "Found."}], agent={"tools": ["**"], "routing": {"threshold": 2, "top": 1}}
    ),
    "sticky": Story(
        [*SEARCHES, {"text": "Found."}],
        agent={"tools": ["**"], "routing": {"threshold": 2, "top": 1, "sticky": True}},
    ),
    "empty-reply": Story([{"thinking": "hm"}, {"text": "Here."}]),
    "refused": Story([{"text": "", "finish_reason": "content_filter"}], "refused"),
    "pause": Story([NAP, {"text": "Resumed."}], drive=_pause),
    "no-such-agent": Story([], "invalid_input", start={"agent": "nobody"}),
}
