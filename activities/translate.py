"""Between our messages and pydantic-ai's: what is sent to a provider, and what came back.

Names are those that providers take, one to one with ours. Ids are the run's own, so that a provider's
duplicates, blanks and repeats never reach a later request.

Source: shared design, context.md; loop.md "Intrinsics" (names); field-faults.md B2, B18 to B21, C13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition as ProviderTool

from mainspring.activities.arguments import RawCall
from mainspring.activities.attachments import Attachments, label
from mainspring.activities.scripted import Asked
from mainspring.schemas.activities import FinishReason
from mainspring.schemas.ledger import EntryCall, Thinking
from mainspring.schemas.tools import ToolDefinition
from mainspring.workflows.catalog import wire_name
from mainspring.workflows.ledger import AssistantMessage, Message, Result, UserMessage, UserText
from mainspring.workflows.values import render, safe_text, safe_value

__all__ = ["finish_reason_of", "messages_of", "parameters_of", "reply_parts"]

UNPARSED_KEY = "INVALID_JSON"
"""Under this key a call whose arguments were no JSON object is shown back: providers insist on an object."""
IMAGES_MAX = 8


def parameters_of(asked: Asked) -> ModelRequestParameters:
    """The instructions and the tools offered, in their order."""
    instructions = [InstructionPart(content=asked.system)] if asked.system else []
    return ModelRequestParameters(
        function_tools=[_tool(tool) for tool in asked.offer.tools], instruction_parts=instructions
    )


def _tool(tool: ToolDefinition) -> ProviderTool:
    """The schema goes out as it is: strict modes rewrite schemas, and ours are not ours to rewrite."""
    return ProviderTool(
        name=wire_name(tool.name),
        description=tool.declaration.description,
        parameters_json_schema=dict(tool.input_schema),
        strict=False,
    )


async def messages_of(
    messages: Sequence[Message], attachments: Attachments, *, system: str, result_images: bool
) -> list[ModelMessage]:
    """The projection as pydantic-ai's messages.

    Thinking goes back beside calls, and only to the provider (`system`) that it came from. With
    `result_images`, the newest images that tools returned are shown; the others are named only.
    """
    shown = _newest_images(messages) if result_images else frozenset[str]()
    translated: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            translated.append(_response(message, system))
        else:
            translated.append(await _request(message, attachments, shown))
    return translated


def _newest_images(messages: Sequence[Message]) -> frozenset[str]:
    digests: dict[str, None] = {}
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            for result in reversed(message.results):
                for file in result.files:
                    if file.media_type.startswith("image/"):
                        digests.setdefault(file.digest)
                        if len(digests) == IMAGES_MAX:
                            return frozenset(digests)
    return frozenset(digests)


def _response(message: AssistantMessage, system: str) -> ModelResponse:
    # Providers need their thinking back beside calls; elsewhere they ignore it, or refuse it out of place.
    # What no provider stamped was text in tags: it is not shown again.
    blocks = [block for block in message.thinking if block.provider == system] if message.calls else []
    thinking = [_thinking(block) for block in blocks]
    parts: list[ModelResponsePart] = [*thinking]
    if message.text:
        parts.append(TextPart(content=message.text))
    parts += [_call(call) for call in message.calls]
    return ModelResponse(parts=parts, provider_name=system if thinking else None)


def _thinking(block: Thinking) -> ThinkingPart:
    return ThinkingPart(
        content=block.text,
        id=block.id,
        signature=block.signature,
        provider_name=block.provider,
        provider_details=None if block.details is None else dict(block.details),
    )


def _call(call: EntryCall) -> ToolCallPart:
    arguments: dict[str, Any] = dict(call.arguments)
    if not arguments and call.raw:
        arguments = {UNPARSED_KEY: call.raw}
    return ToolCallPart(tool_name=wire_name(call.tool), args=arguments, tool_call_id=call.id)


async def _request(message: UserMessage, attachments: Attachments, shown: frozenset[str]) -> ModelRequest:
    parts: list[ModelRequestPart] = [await _return(item, attachments, shown) for item in message.results]
    parts += [await _words(words, attachments) for words in message.texts]
    return ModelRequest(parts=parts)


async def _return(result: Result, attachments: Attachments, shown: frozenset[str]) -> ToolReturnPart:
    text = render(result.content)
    labels = [label(file) for file in result.files]
    content: Any = "\n".join([text, *labels] if text else labels)
    images = [await attachments.image(file) for file in result.files if file.digest in shown]
    found = [image for image in images if image is not None]
    return ToolReturnPart(
        tool_name=wire_name(result.tool),
        content=[content, *found] if found else content,
        tool_call_id=result.call_id,
        outcome="failed" if result.is_error else "success",
    )


async def _words(words: UserText, attachments: Attachments) -> UserPromptPart:
    if not words.attachments:
        return UserPromptPart(content=words.text)
    return UserPromptPart(content=[words.text, *await attachments.contents(words.attachments)])


def reply_parts(response: ModelResponse) -> tuple[str, tuple[RawCall, ...], tuple[Thinking, ...]]:
    """Text, calls and thinking of a response, each in its order."""
    texts: list[str] = []
    calls: list[RawCall] = []
    thinking: list[Thinking] = []
    for part in response.parts:
        if isinstance(part, TextPart):
            texts.append(part.content)
        elif isinstance(part, ToolCallPart):
            calls.append(RawCall(part.tool_name, part.args))
        elif isinstance(part, ThinkingPart):
            thinking.append(_thought(part))
    return "".join(texts), tuple(calls), tuple(thinking)


def _thought(part: ThinkingPart) -> Thinking:
    details = None if part.provider_details is None else safe_value(part.provider_details)
    return Thinking(
        text=safe_text(part.content),
        signature=part.signature,
        id=part.id,
        provider=part.provider_name,
        details=details if isinstance(details, dict) else None,
    )


def finish_reason_of(response: ModelResponse, has_calls: bool) -> FinishReason | None:
    """Why the reply ended; None when it was cut off before it said so."""
    details = response.provider_details or {}
    raw = details.get("finish_reason")
    if response.finish_reason is None and raw is None:
        return None
    if response.finish_reason == "content_filter":
        return "refusal" if raw == "refusal" or "refusal" in details else "content_filter"
    if response.finish_reason == "stop" and has_calls:
        return "tool_call"
    return response.finish_reason or "stop"
