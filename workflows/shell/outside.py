"""What a run has done outside of it: arming, model calls, tool calls.

Source: shared design, context.md "The transcript by reference"; tools.md "A tool is an activity";
temporal-facts.md 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

from mainspring.workflows.shell.failures import (
    CallOutcome,
    ModelGone,
    Withdrawn,
    failed_call,
    model_gone,
    unknown,
)
from mainspring.workflows.shell.people import People

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from mainspring.schemas import errors
    from mainspring.schemas.activities import Armed, ModelReply, ModelRequest
    from mainspring.schemas.base import unwire, wire
    from mainspring.schemas.ledger import NewEntry, Plan
    from mainspring.schemas.run import RunInput
    from mainspring.schemas.tools import ToolDeclaration, ToolOutcome
    from mainspring.workflows import budget, events, views
    from mainspring.workflows.dispatch import SECONDS_MIN, Run, attempts, summary
    from mainspring.workflows.router import Offer
    from mainspring.workflows.values import PREVIEW_BYTES, clip, preview, render, safe_value

__all__ = ["RunShell"]

MODEL_HEARTBEAT_SECONDS = 15.0
"""A model call beats every half second: silence for this long is a lost worker."""
HANGING = "TemporalTimeout:StartToClose"
"""How a retry policy names an attempt that was alive to its time-out: a model that hangs is asked once."""
PAUSE_SECONDS_MAX = 60.0
_USUAL_SPILL = (16_384, None)
"""Bound of the agent and of the tool, where neither says anything: then no call need be told."""
CALL_TOOL = "mainspring.call_tool"
"""The plain activity that serves MCP tools by name, where a worker's dynamic activity is the user's own."""

_FALLBACK = frozenset(
    {
        errors.MODEL_RATE_LIMITED,
        errors.MODEL_UNAVAILABLE,
        errors.MODEL_REJECTED,
        errors.MODEL_MISCONFIGURED,
        "WorkerShutdown",
        "timeout",
    }
)


class RunShell(People):
    """A run's dealings with the outside."""

    async def settle(self, handles: Sequence[workflow.ActivityHandle[Any]], grace: float) -> None:
        """Wait until all are done, or until a person withdraws them: then cancel, and wait `grace` seconds.

        Raises: asyncio.CancelledError, after the same, when the run is cancelled.
        """

        def done() -> bool:
            return all(handle.done() for handle in handles)

        try:
            await workflow.wait_condition(lambda: self.stop is not None or done())
        except asyncio.CancelledError:
            await self._cancel(handles, grace)
            raise
        if not done():
            await self._cancel(handles, grace)

    async def _cancel(self, handles: Sequence[workflow.ActivityHandle[Any]], grace: float) -> None:
        pending = [handle for handle in handles if not handle.done()]
        for handle in pending:
            handle.cancel()
        if pending and grace > 0:
            try:
                await workflow.wait_condition(lambda: all(handle.done() for handle in pending), timeout=grace)
            except TimeoutError:
                return

    # -- activities --------------------------------------------------------------------------------

    async def arm(self, request: RunInput) -> Armed:
        """Resolve agent and catalog, and keep the catalog's declarations.

        Raises: ApplicationError with the type `invalid_input` or `catalog_unavailable`; CancelledError.
        """
        traced = {} if self.armed is None or self.armed.trace is None else {"trace": wire(self.armed.trace)}
        try:
            result: dict[str, Any] = await workflow.execute_activity(
                "mainspring.arm",
                {"input": wire(request), **traced},
                start_to_close_timeout=timedelta(seconds=120),
                retry_policy=RetryPolicy(maximum_attempts=5, maximum_interval=timedelta(seconds=3)),
                summary=clip(f"arm {views.agent_name(request)}", 100),
            )
        except ActivityError as error:
            self.attributes = _attributes(error) or self.attributes
            raise _unavailable(error) from error
        armed = unwire(Armed, result)
        self.attributes = armed.search_attributes
        if not (self.decides(2) and self.armed and self.armed.digest == armed.digest):
            self.declarations = await self._declarations(armed)  # not where a refresh changes nothing
        return armed

    async def _declarations(self, armed: Armed) -> list[ToolDeclaration]:
        """The catalog's declarations; of one that is too large for the record, page by page."""
        if armed.tools is not None:
            return [tool.declaration for tool in armed.tools]
        declarations: list[ToolDeclaration] = []
        blob = wire(armed.catalog_blob) if armed.catalog_blob else None
        try:
            for page in range(armed.catalog_pages):
                result: dict[str, Any] = await workflow.execute_activity(
                    "mainspring.catalog_page",
                    args=[blob, page],
                    start_to_close_timeout=timedelta(seconds=60),
                    retry_policy=RetryPolicy(maximum_attempts=5),
                )
                declarations += [unwire(ToolDeclaration, item) for item in result["tools"]]
        except ActivityError as error:
            raise _unavailable(error) from error
        return declarations

    async def call_model(self, offer: Offer, plan: Plan) -> tuple[ModelReply, int] | ModelGone | Withdrawn:
        """Call the model, then its fallbacks; the reply comes with its number.

        Raises: asyncio.CancelledError, when the run is cancelled.
        """
        armed, began = self.armed, workflow.time_ns()
        assert armed is not None
        while True:
            self.asked = (f"{self.prefix}-{self._number}", began)
            called = await self._call_model(armed, offer, plan)
            if not isinstance(called, ModelGone):
                return called
            self.meter = self.meter.failed(called.usage)
            failed = armed.models[self.model_index].name
            more = self.model_index + 1 < len(armed.models) and called.error in _FALLBACK
            fallback = armed.models[self.model_index + 1].name if more else None
            self.emit(events.ModelFailed(failed, called.error, clip(called.message, 300), fallback))
            if fallback is None:
                return called
            await self.unpaused()
            if self.stop is not None:
                return Withdrawn()
            self.tick()
            if not isinstance(budget.check_spend(self.budget, self.meter), budget.Within):
                return called
            self.model_index += 1

    async def _call_model(
        self, armed: Armed, offer: Offer, plan: Plan
    ) -> tuple[ModelReply, int] | ModelGone | Withdrawn:
        activity_id, number = self.next_id()
        request = ModelRequest(
            armed=armed.digest,
            call=self.meter.model_calls,
            turn=self.meter.turns,
            exchange=self.exchange,
            ledger=self.ledger.ref,
            new=tuple(self._compact(new) for new in self.new),
            plan=plan,
            offered=offer.names,
            model=self.model_index,
        )
        model = armed.models[self.model_index]
        wall_left = self._wall_left()
        longest = max(SECONDS_MIN, self.limits.model_timeout)
        longest = longest if wall_left is None else min(longest, wall_left)
        handle = workflow.start_activity(
            "mainspring.call_model",
            wire(request),
            activity_id=activity_id,
            start_to_close_timeout=timedelta(seconds=longest),
            schedule_to_close_timeout=None if wall_left is None else timedelta(seconds=wall_left),
            heartbeat_timeout=timedelta(seconds=min(MODEL_HEARTBEAT_SECONDS, longest / 2)),
            retry_policy=RetryPolicy(
                maximum_attempts=self.limits.model_attempts,
                maximum_interval=timedelta(seconds=PAUSE_SECONDS_MAX),
                non_retryable_error_types=[HANGING],
            ),
            summary=clip(f"turn {self.meter.turns} · {model.name}", 100),
        )
        await self.settle([handle], grace=0)
        if not handle.done():
            return Withdrawn()
        failure = handle.exception()
        if failure is None:
            reply = unwire(ModelReply, handle.result())
            self.new = []
            self._number += len(reply.calls)
            return reply, number
        if is_cancelled_exception(failure):
            self.raise_if_cancelled()
            return Withdrawn()
        return model_gone(failure)

    def _compact(self, new: NewEntry) -> NewEntry:
        """Leave out what the activity can infer."""
        known = {"exchange": self.exchange, "turn": self.meter.turns - 1}
        inferred = {name: None for name, value in known.items() if getattr(new, name) == value}
        return new.model_copy(update=inferred) if inferred else new

    async def run_calls(self, wave: Sequence[Run], into: dict[str, CallOutcome]) -> None:
        """Run a wave of calls at once and note what became of each, by call id.

        Raises: asyncio.CancelledError, when the run is cancelled; `into` is filled first.
        """
        handles: dict[str, workflow.ActivityHandle[Any]] = {}
        ended: dict[str, int] = {}
        began = workflow.time_ns()
        for run in wave:
            handle = self._start_call(run)
            handle.add_done_callback(self._note_end(ended, run.call.id))
            handles[run.call.id] = handle
            self.in_flight[run.call.id] = run.call.tool
        try:
            await self.settle(list(handles.values()), grace=self.limits.cancel_grace)
        finally:
            for run in wave:
                took = ended.get(run.call.id, began) - began
                outcome = self._call_outcome(run, handles[run.call.id], -(-took // 1_000_000))
                into[run.call.id] = replace(outcome, began=began)
            self.in_flight.clear()

    def _note_end(self, ended: dict[str, int], call_id: str) -> Callable[[Any], None]:
        def note(_: Any) -> None:
            ended[call_id] = workflow.time_ns()
            self.in_flight.pop(call_id, None)

        return note

    def _wall_left(self) -> float | None:
        """Seconds of wall time that the budget leaves.

        Without it an activity on the run's own queue has no bound in time from schedule to close, only one on
        each of its attempts: a run that no worker serves for a while must wait, not fail.
        """
        if self.budget.wall is None:
            return None
        return max(0.001, self.budget.wall - self.meter.wall_ms / 1000)

    def _start_call(self, run: Run) -> workflow.ActivityHandle[Any]:
        tool = run.tool
        wall_left = self._wall_left()
        bounds = attempts(tool, wall_left)
        waits = wall_left is None and tool.task_queue is None
        arguments: list[Any] = [run.call.arguments]
        if tool.activity == CALL_TOOL:
            arguments.insert(0, tool.name)
        if tool.source != "activity" and (self.limits.spill_bytes, tool.spill_bytes) != _USUAL_SPILL:
            arguments.append({"spill_bytes": tool.spill_bytes or self.limits.spill_bytes})
        return workflow.start_activity(
            tool.activity or tool.name,
            args=arguments,
            activity_id=run.call.id,
            task_queue=tool.task_queue,
            result_type=RawValue,
            start_to_close_timeout=timedelta(seconds=bounds.start_to_close),
            schedule_to_close_timeout=None if waits else timedelta(seconds=bounds.schedule_to_close),
            heartbeat_timeout=None if bounds.heartbeat is None else timedelta(seconds=bounds.heartbeat),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            retry_policy=RetryPolicy(
                maximum_attempts=bounds.attempts, maximum_interval=timedelta(seconds=30)
            ),
            summary=summary(self.meter.turns, run.call),
        )

    def _call_outcome(self, run: Run, handle: workflow.ActivityHandle[Any], ms: int) -> CallOutcome:
        if not handle.done():
            return CallOutcome(unknown("it was interrupted"), "unknown", ms)
        failure = handle.exception()
        if failure is not None:
            return failed_call(run, failure, ms)
        number = int(run.call.id.rpartition("-")[2])
        try:
            value = _decoded(handle.result())
            if run.tool.source != "activity":
                outcome = unwire(ToolOutcome, value)
                return CallOutcome(outcome, "error" if outcome.is_error else "ok", ms, number)
        except ValidationError:  # the worker has an activity of its own under the tool's name
            pass
        except FailureError as error:
            told = (
                f"It ended, and its result cannot be read here ({type(error.__cause__ or error).__name__})."
            )
            return CallOutcome(ToolOutcome(content=told, is_error=True), "error", ms)
        return self._bounded(run, value, ms)

    def _bounded(self, run: Run, value: object, ms: int) -> CallOutcome:
        """A result that no activity of ours has made safe, nor cut to its bound."""
        content = safe_value(value, depth=self.limits.depth)
        whole = render(content).encode("utf-8", "replace")
        bound = run.tool.spill_bytes or self.limits.spill_bytes
        if len(whole) <= bound:
            return CallOutcome(ToolOutcome(content=content), "ok", ms)
        shown = preview(render(content), limit=min(bound, PREVIEW_BYTES))
        digest = blake2b(whole, digest_size=8).hexdigest()
        return CallOutcome(ToolOutcome(content=shown), "ok", ms, digest=digest)


def _unavailable(error: ActivityError) -> BaseException:
    """What a failed arming activity means for the run."""
    if is_cancelled_exception(error):
        return asyncio.CancelledError()
    cause = error.cause
    known = (errors.INVALID_INPUT, errors.CATALOG_UNAVAILABLE)
    if isinstance(cause, ApplicationError) and cause.type in known:
        return cause
    told = clip(str(cause or error), 500)
    return ApplicationError(f"arming failed: {told}", type=errors.CATALOG_UNAVAILABLE)


def _attributes(error: ActivityError) -> tuple[str, ...]:
    """The search attributes that the server has, from the details of a refusal."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    known = details[0].get("search_attributes") if details and isinstance(details[0], dict) else None
    return tuple(str(name) for name in known) if isinstance(known, list) else ()


def _decoded(result: RawValue | None) -> Any:
    """A call's result. It is decoded here and not by the SDK, since anybody's may be unreadable.

    Raises: FailureError.
    """
    if result is None:
        return None
    try:
        return workflow.payload_converter().from_payload(result.payload)
    except FailureError:
        raise
    except Exception as error:
        raise ApplicationError("unreadable", type=errors.INVALID_PAYLOAD, non_retryable=True) from error
