"""Models of real providers, through pydantic-ai: built from a specification, asked in a stream.

Imported only when such a model is asked: it takes a second.

Source: shared design, dependencies.md; loop.md "Live text"; field-faults.md E9, H3.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model, StreamedResponse, infer_model
from pydantic_ai.models import ModelRequestParameters as Parameters
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings as ProviderSettings
from pydantic_ai.usage import RequestUsage

from mainspring.activities import faults
from mainspring.activities.attachments import Attachments
from mainspring.activities.prices import dollars
from mainspring.activities.provider_errors import missing_extra, missing_variables, provider_error
from mainspring.activities.pulse import Pulse
from mainspring.activities.replies import RawReply
from mainspring.activities.scripted import Asked
from mainspring.activities.secrets import resolve
from mainspring.activities.setup import ReadsBlobs
from mainspring.activities.translate import finish_reason_of, messages_of, parameters_of, reply_parts
from mainspring.schemas.activities import Usage
from mainspring.schemas.agent import ModelSettings, ModelSpec

__all__ = ["Connections", "ProviderModel", "Providers"]

CONNECTIONS_MAX = 64
_CACHING = frozenset({"anthropic", "bedrock"})
"""Providers that cache a prompt only when asked to, and are asked."""
_NEEDED = frozenset({"extra_headers", "extra_body"})
"""Settings that cannot be left out silently."""
_NEVER = ("\ue000think\ue000", "\ue000/think\ue000")
"""Thinking tags that no model writes: tags in a text are ours to read, whole, when the stream has ended."""


class Connections:
    """Provider clients of this process, shared by the runs that ask the same model with the same secrets."""

    def __init__(self) -> None:
        self._models: OrderedDict[tuple[object, ...], Model[Any]] = OrderedDict()
        self._lock = asyncio.Lock()

    async def model(self, spec: ModelSpec) -> tuple[Model[Any], dict[str, str]]:
        """The model and the extra headers to send.

        Secrets are read each time, so that a rotated key is taken up.

        Raises: ApplicationError(MODEL_MISCONFIGURED).
        """
        key = None if spec.api_key is None else resolve(spec.api_key)
        headers = {name: resolve(reference) for name, reference in spec.headers.items()}
        identity = (spec.model, spec.base_url, key)
        async with self._lock:
            model = self._models.get(identity)
            if model is None:
                # Reading certificates and importing an SDK take their time: not on the event loop.
                model = self._models[identity] = await asyncio.to_thread(_build, spec, key)
                if len(self._models) > CONNECTIONS_MAX:
                    self._models.popitem(last=False)
            self._models.move_to_end(identity)
        return model, headers


def _build(spec: ModelSpec, key: str | None) -> Model[Any]:
    name, _, model_name = (spec.model or "").partition(":")
    if not name or not model_name:
        raise faults.misconfigured(f"model {spec.name}: {spec.model!r} is not <provider>:<model>")
    try:
        kind = infer_provider_class(name)
        provider = _provider(kind, name, spec, key)
        model = infer_model(f"{name}:{model_name}", provider_factory=lambda _: provider)
        return _with_profile(model, provider)
    except ImportError as error:
        raise missing_extra(error, name) from None
    except (UserError, ValueError) as error:
        missing = missing_variables(error)
        if missing:
            told = f"model {spec.name}: {missing} is not set where the worker runs"
            raise faults.misconfigured(told) from None
        raise provider_error(UserError(f"model {spec.name}: {error}"), name) from None


def _provider(kind: type[Provider[Any]], name: str, spec: ModelSpec, key: str | None) -> Provider[Any]:
    """The provider, with the address and key of the specification where it takes them."""
    given = {"base_url": spec.base_url, "api_key": key}
    takes = inspect.signature(kind.__init__).parameters
    wanted = {item: value for item, value in given.items() if value is not None}
    refused = sorted(set(wanted) - set(takes))
    if refused:
        raise faults.misconfigured(f"model {spec.name}: provider {name} takes no {' and no '.join(refused)}")
    make = cast("Callable[..., Provider[Any]]", kind)
    return make(**wanted)


def _with_profile(model: Model[Any], provider: Provider[Any]) -> Model[Any]:
    """A chat model, told that a stream without a finish reason is broken, and to leave its text as it is."""
    parameters = inspect.signature(type(model).__init__).parameters
    chat = any(kind.__name__ == "OpenAIChatModel" for kind in type(model).__mro__)
    if not chat or "profile" not in parameters:
        return model
    profile = {"openai_chat_streaming_requires_finish_reason": True, "thinking_tags": _NEVER}
    make = cast("Callable[..., Model[Any]]", type(model))
    return make(model.model_name, provider=provider, profile=profile)


class Providers:
    """The models of providers, of this process."""

    def __init__(self, blobs: ReadsBlobs | None) -> None:
        self._connections = Connections()
        self._attachments = Attachments(blobs)

    def model(self, spec: ModelSpec, settings: ModelSettings) -> ProviderModel:
        """A model as an agent with these settings asks it."""
        return ProviderModel(spec, settings, self._connections, self._attachments)


class ProviderModel:
    """One model of a provider, as one agent asks it."""

    def __init__(
        self, spec: ModelSpec, settings: ModelSettings, connections: Connections, attachments: Attachments
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._connections = connections
        self._attachments = attachments
        self._provider = (spec.model or "").partition(":")[0]
        # What a model behind an address of one's own can see is unknown; a picture it cannot see is a 400.
        self._own_server = self._provider == "openai-chat" and spec.base_url is not None

    async def answer(self, asked: Asked, pulse: Pulse) -> RawReply:
        """Ask the provider, in a stream.

        Raises: ApplicationError, of one of the model types; CancelledError, with the connection closed.
        """
        model, headers = await self._connections.model(self._spec)
        try:
            parameters = parameters_of(asked)
            images = bool(model.profile.get("supports_image_input", True)) and not self._own_server
            messages = await messages_of(
                asked.projection.messages, self._attachments, system=model.system, result_images=images
            )
            settings = _settings(self._spec, self._settings, model, headers, bool(parameters.function_tools))
            return await self._stream(model, messages, settings, parameters, pulse)
        except Exception as error:
            raise provider_error(error, self._provider) from None

    async def _stream(
        self,
        model: Model[Any],
        messages: list[Any],
        settings: ProviderSettings,
        parameters: Parameters,
        pulse: Pulse,
    ) -> RawReply:
        pulse.asked()
        request = model_request_stream(
            model, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
        )
        async with request as stream:
            try:
                async for event in stream:
                    _seen(event, pulse)
                return self._reply(stream)
            except Exception:
                pulse.billed(self._usage(stream.usage))
                raise

    def _reply(self, stream: StreamedResponse) -> RawReply:
        response = stream.get()
        text, calls, thinking = reply_parts(response)
        finish = finish_reason_of(response, bool(calls))
        if finish is None:
            raise faults.truncated(self._provider)
        refusal = (response.provider_details or {}).get("refusal")
        return RawReply(
            text=text or (refusal if isinstance(refusal, str) else ""),
            calls=calls,
            thinking=thinking,
            finish_reason=finish,
            usage=self._usage(response.usage),
            model=response.model_name or self._spec.model,
        )

    def _usage(self, reported: RequestUsage) -> Usage | None:
        """What the provider reported; None when it reported nothing, which is not 0."""
        if reported.unmeasured_requests or not reported.has_values():
            return None
        usage = Usage(
            input_tokens=reported.input_tokens,
            output_tokens=reported.output_tokens,
            cached_tokens=reported.cache_read_tokens,
        )
        cost = dollars(self._spec, usage, cache_write_tokens=reported.cache_write_tokens)
        return usage.model_copy(update={"dollars": cost})


def _seen(event: object, pulse: Pulse) -> None:
    """Note what was streamed: text and thinking are shown live, the rest only counts as the first token."""
    match event:
        case PartStartEvent(part=ThinkingPart(content=thought)):
            pulse.thought(thought)
        case PartStartEvent(part=TextPart(content=text)):
            pulse.token(text)
        case PartStartEvent():
            pulse.token()
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            pulse.token(text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(thought))):
            pulse.thought(thought)


def _settings(
    spec: ModelSpec, agent: ModelSettings, model: Model[Any], headers: dict[str, str], tools: bool
) -> ProviderSettings:
    """Settings of the model and, before them, of the agent. Retries are Temporal's alone."""
    merged = {**spec.settings.model_dump(exclude_none=True), **agent.model_dump(exclude_none=True)}
    if not tools:
        merged.pop("parallel_tool_calls", None)
    if "stop_sequences" in merged:
        merged["stop_sequences"] = list(merged["stop_sequences"])
    if headers:
        merged["extra_headers"] = headers
    merged["max_retries"] = 0
    for unknown in model.unsupported_settings & merged.keys():
        if unknown in _NEEDED:
            raise faults.misconfigured(f"model {spec.name}: its provider takes no {unknown}")
        del merged[unknown]
    if model.system in _CACHING:
        merged["cache"] = True
    settings: ProviderSettings = merged  # type: ignore[assignment]
    return settings
