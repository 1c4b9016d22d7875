"""The script on pydantic-ai's Temporal integration, set up as its documentation does."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import (
        PydanticAIPlugin,
        PydanticAIWorkflow,
        TemporalDurability,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import UsageLimits

    from bench import script
    from bench.contestant import Contestant, Setup

ACTIVITY = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=60), retry_policy=RetryPolicy(maximum_attempts=5)
)


def _reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for the next observation until there are as many as the prompt says, then answer."""
    parts = [part for message in messages for part in message.parts]
    seen = sum(1 for part in parts if isinstance(part, ToolReturnPart))
    asked = next(str(part.content) for part in parts if isinstance(part, UserPromptPart))
    if seen < script.turns_of(asked):
        call = ToolCallPart(script.TOOL_NAME, {"i": seen}, tool_call_id=f"call_{seen}")
        return ModelResponse(parts=[call])
    return ModelResponse(parts=[TextPart(script.ANSWER)])


agent = Agent(
    FunctionModel(_reply),
    name="bench",
    instructions=script.INSTRUCTIONS,
    capabilities=[TemporalDurability(activity_config=ACTIVITY)],
)


@agent.tool_plain
def observe(i: int) -> str:
    """What is seen at step i."""
    return script.observation(i)


@workflow.defn(name="BenchPydanticAI")
class PydanticAIRun(PydanticAIWorkflow):
    """An agent with one tool, which the integration makes an activity."""

    __pydantic_ai_agents__ = (agent,)

    @workflow.run
    async def run(self, turns: int) -> str:
        """Run the script to its answer."""
        unlimited = UsageLimits(request_limit=None)
        result = await agent.run(script.prompt(turns), usage_limits=unlimited)
        return str(result.output)


def contestant() -> Contestant:
    """The peer, as the benchmark runs it."""
    return Contestant(
        name="pydantic-ai",
        workflow_type="BenchPydanticAI",
        model_activity="agent__bench__model_request",
        prepare=lambda turns: Setup(turns, workflows=[PydanticAIRun], plugins=[PydanticAIPlugin()]),
    )
