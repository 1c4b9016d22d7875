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
async def call_model(request: dict[str, Any]) -> dict[str, Any]:
    """One scripted reply: a tool call on the turns asked for, then the answer."""
    turn, turns = request["turn"], request["turns"]
    usage = {"input_tokens": 900, "output_tokens": 25}
    if turn == turns:
        return {"text": script.ANSWER, "calls": [], "usage": usage}
    call = {"id": f"call_{turn}", "tool": script.TOOL_NAME, "arguments": {"i": turn}}
    return {"text": "", "calls": [call], "usage": usage}


@activity.defn(name=TOOL)
async def call_tool(arguments: dict[str, Any]) -> str:
    """One observation of 2 KB."""
    return script.observation(arguments["i"])


@workflow.defn(name="BenchFloor")
class Floor:
    """The script as straight workflow code."""

    @workflow.run
    async def run(self, turns: int) -> str:
        """Run `turns` turns and the answering model call; returns the answer."""
        for turn in range(turns):
            reply = await _activity(MODEL, {"turn": turn, "turns": turns})
            for call in reply["calls"]:
                await _activity(TOOL, call["arguments"])
        reply = await _activity(MODEL, {"turn": turns, "turns": turns})
        return str(reply["text"])


async def _activity(name: str, argument: dict[str, Any]) -> Any:
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
