"""The activity that calls a model: assemble the request, ask, read the reply.

Its argument is constant in size. What it lacks it asks of its own run by query; what it produced it keeps, so
that the next call needs none.

Source: shared design, context.md "The transcript by reference"; loop.md "Live text", "Errors".
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from mainspring.activities import faults
from mainspring.activities.deltas import Stamp
from mainspring.activities.prices import added
from mainspring.activities.projection import Projections
from mainspring.activities.pulse import Pulse, carried_usage
from mainspring.activities.replies import RawReply, read_reply
from mainspring.activities.scripted import Asked, ScriptedModel
from mainspring.activities.setup import Setup, Setups
from mainspring.activities.transcript import ProcessCache, RunReader, WorkflowReader, split_id
from mainspring.schemas.activities import ModelReply, ModelRequest
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.base import problems, wire

if TYPE_CHECKING:
    from mainspring.activities.blobs import BlobStore
    from mainspring.activities.delta_feed import DeltaFeeds
    from mainspring.activities.providers import Providers

__all__ = ["ModelActivity"]

MODELS_MAX = 256


class ChatModel(Protocol):
    """A model that can be asked: a provider's, or a scripted one."""

    async def answer(self, asked: Asked, pulse: Pulse) -> RawReply:
        """The reply.

        Raises: ApplicationError, of one of the model types in `schemas.errors`.
        """
        ...


def _own_run(info: activity.Info) -> RunReader:
    assert info.workflow_id is not None
    assert info.workflow_run_id is not None
    return WorkflowReader(activity.client(), info.workflow_id, info.workflow_run_id)


def _stamp(info: activity.Info, request: ModelRequest) -> Stamp:
    return Stamp(
        run=info.workflow_id or "",
        execution=info.workflow_run_id or "",
        exchange=request.exchange,
        turn=request.turn,
        call=info.activity_id,
        attempt=info.attempt,
        began=round(info.started_time.timestamp() * 1_000_000),
    )


class ModelActivity:
    """Calls models for runs.

    Args:
        cache: What this process holds of its runs.
        blobs: The blob store, for large catalogs, attachments and long texts; None without one.
        reader: How a run is read, by the activity's info; by query where it is None.
        feeds: Where every piece of a reply goes beside the heartbeats; None for nowhere.
    """

    def __init__(
        self,
        cache: ProcessCache,
        blobs: BlobStore | None = None,
        *,
        reader: Callable[[activity.Info], RunReader] = _own_run,
        feeds: DeltaFeeds | None = None,
    ) -> None:
        self._cache = cache
        self._blobs = blobs
        self._reader = reader
        self._feeds = feeds
        self._setups = Setups(blobs)
        self._projections = Projections()
        self._models: OrderedDict[tuple[str, int], ChatModel] = OrderedDict()
        self._providers: Providers | None = None

    @activity.defn(name="mainspring.call_model")
    async def call_model(self, request: ModelRequest) -> dict[str, Any]:
        """Make one model call; answers a `ModelReply` as plain JSON.

        Raises: ApplicationError, typed as in `schemas.errors`; CancelledError, with the stream closed.
        """
        info = activity.info()
        assert info.workflow_id is not None
        feed = None if self._feeds is None else self._feeds.open(_stamp(info, request))
        text = None
        with Pulse(carried_usage(info.heartbeat_details), feed) as pulse:
            try:
                reply = await self._reply(request, info, pulse)
                text = reply.text
            except ApplicationError as error:
                if pulse.carried is None:
                    raise
                raise faults.with_usage(error, wire(pulse.carried)) from None
            finally:
                if feed is not None:
                    await feed.close(text)
        self._cache.put(info.workflow_id, info.activity_id, reply)
        return wire(reply)

    async def _reply(self, request: ModelRequest, info: activity.Info, pulse: Pulse) -> ModelReply:
        prefix, _ = split_id(info.activity_id)
        workflow_id = info.workflow_id or ""
        reader = self._reader(info)
        setup = await self._setups.of(await self._cache.armed(request.armed, reader))
        entries = await self._cache.entries(workflow_id, prefix, request, reader)
        asked = Asked(
            system=setup.system,
            system_tokens=setup.system_tokens,
            projection=self._projections.of((workflow_id, prefix), entries, request.plan),
            offer=setup.catalog.offer(request.offered),
            catalog=setup.catalog,
            call=request.call,
            attempt=info.attempt,
        )
        model = await self._model(setup, request.model)
        raw = await model.answer(asked, pulse)
        reply = await read_reply(raw, setup, asked.offer, self._blobs, pulse.first_token_ms)
        if reply.usage is None or pulse.carried is None:
            return reply
        return reply.model_copy(update={"usage": added(pulse.carried, reply.usage)})

    async def _model(self, setup: Setup, index: int) -> ChatModel:
        """The model to ask: the armed one, or a fallback of it.

        Raises: ApplicationError(MODEL_MISCONFIGURED).
        """
        key = (setup.armed.digest, index)
        model = self._models.get(key)
        if model is None:
            if index >= len(setup.armed.models):
                raise faults.misconfigured(f"the run has {len(setup.armed.models)} models, asked for {index}")
            model = self._models[key] = await self._made(setup.armed.models[index], setup)
            if len(self._models) > MODELS_MAX:
                self._models.popitem(last=False)
        return model

    async def _made(self, spec: ModelSpec, setup: Setup) -> ChatModel:
        if spec.script is not None:
            try:
                return ScriptedModel(spec)
            except ValidationError as error:
                raise faults.misconfigured(f"the script of {spec.name}: {problems(error)}") from None
        if self._providers is None:
            # A second to import, and only when such a model is asked: not at start, not on the event loop.
            module = await asyncio.to_thread(import_module, "mainspring.activities.providers")
            providers: Providers = self._providers or module.Providers(self._blobs)
            self._providers = providers
        return self._providers.model(spec, setup.armed.spec.settings)
