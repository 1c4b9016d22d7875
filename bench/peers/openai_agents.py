"""The script on the OpenAI Agents SDK's Temporal integration, set up as its documentation does."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, Usage
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

    from bench import script
    from bench.contestant import Contestant, Setup

TIMEOUT = timedelta(seconds=60)
RETRIES = RetryPolicy(maximum_attempts=5)


@activity.defn(name=script.TOOL_NAME)
async def observe(i: int) -> str:
    """What is seen at step i."""
    return script.observation(i)


class ScriptedModel(Model):
    """Asks for the next observation until there are as many as the prompt says, then answers."""

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """The reply is a function of the request alone."""
        return ModelResponse(output=[_reply(input)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Not part of the script."""
        raise NotImplementedError


def _reply(input: Any) -> ResponseFunctionToolCall | ResponseOutputMessage:
    items = [] if isinstance(input, str) else input
    seen = sum(1 for item in items if item.get("type") == "function_call_output")
    asked = input if isinstance(input, str) else input[0]["content"]
    if seen < script.turns_of(asked):
        return ResponseFunctionToolCall(
            id=f"item_{seen}",
            call_id=f"call_{seen}",
            name=script.TOOL_NAME,
            arguments=f'{{"i": {seen}}}',
            type="function_call",
            status="completed",
        )
    text = ResponseOutputText(text=script.ANSWER, annotations=[], type="output_text")
    return ResponseOutputMessage(
        id="answer", content=[text], role="assistant", status="completed", type="message"
    )


class ScriptedProvider(ModelProvider):
    """Has one model."""

    def get_model(self, model_name: str | None) -> Model:
        """The scripted model, whatever the name."""
        return ScriptedModel()


@workflow.defn(name="BenchOpenAIAgents")
class OpenAIAgentsRun:
    """An agent with one tool, which is an activity."""

    @workflow.run
    async def run(self, turns: int) -> str:
        """Run the script to its answer."""
        tool = activity_as_tool(observe, start_to_close_timeout=TIMEOUT, retry_policy=RETRIES)
        agent = Agent(name="bench", instructions=script.INSTRUCTIONS, tools=[tool])
        # Without a key, tracing would only log that it has none.
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, script.prompt(turns), max_turns=turns + 1, run_config=config)
        return str(result.final_output)


def _setup(turns: int) -> Setup:
    parameters = ModelActivityParameters(start_to_close_timeout=TIMEOUT, retry_policy=RETRIES)
    plugin = OpenAIAgentsPlugin(model_params=parameters, model_provider=ScriptedProvider())
    return Setup(turns, workflows=[OpenAIAgentsRun], activities=[observe], plugins=[plugin])


def contestant() -> Contestant:
    """The peer, as the benchmark runs it."""
    return Contestant(
        name="openai-agents",
        workflow_type="BenchOpenAIAgents",
        model_activity="invoke_model_activity",
        prepare=_setup,
    )
