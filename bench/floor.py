"""The floor: a bare workflow with the same two activities a turn, and nothing else.

No agent loop on Temporal that records each call as an activity can be cheaper than this one.
"""

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from bench import script
    from bench.contestant import FLOOR, Contestant, Setup

MODEL = "model"
TOOL = "tool"


@activity.defn(name=MODEL)
async def call_model(turn: int) -> dict[str, Any]:
    """One scripted reply: a call of the tool."""
    return {"tool": script.TOOL_NAME, "arguments": {"i": turn}}


@activity.defn(name=TOOL)
async def call_tool(arguments: dict[str, Any]) -> str:
    """One observation of 2 KB."""
    return script.observation(arguments["i"])


@workflow.defn(name="BenchFloor")
class Floor:
    """The script as straight workflow code."""

    @workflow.run
    async def run(self, turns: int) -> str:
        """Run `turns` turns and a last model call; returns the answer."""
        for turn in range(turns):
            call = await _activity(MODEL, turn)
            await _activity(TOOL, call["arguments"])
        await _activity(MODEL, turns)
        return script.ANSWER


async def _activity(name: str, argument: object) -> Any:
    return await workflow.execute_activity(
        name,
        argument,
        start_to_close_timeout=timedelta(seconds=60),
        retry_policy=RetryPolicy(maximum_attempts=5),
    )


def contestant() -> Contestant:
    """The floor, as the benchmark runs it."""
    return Contestant(
        name=FLOOR,
        workflow_type="BenchFloor",
        model_activity=MODEL,
        prepare=lambda turns: Setup(turns, workflows=[Floor], activities=[call_model, call_tool]),
    )
