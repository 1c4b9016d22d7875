"""What stands between Temporal and our runs: the observer, the trace, and the context of activities.

Workers have it and replayers have not: a replay tells nobody of anything. Workflows and activities of the
user's pass through untouched.

Source: shared design, loop.md "Events"; the header is the one that Temporal's own interceptors read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace as otel
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from mainspring.schemas.activities import ArmRequest
from mainspring.telemetry.arming import Arming
from mainspring.telemetry.observer import RunObserver
from mainspring.telemetry.providers import context_of, ref_of
from mainspring.workflows import trace
from mainspring.workflows.trace import SpanRef

__all__ = ["HEADER", "RunInterceptor"]

HEADER = "_tracer-data"
RUNS = frozenset({"AgentRun"})
"""Our workflow types."""
ARM = "mainspring.arm"
CALL_MODEL = "mainspring.call_model"
CALL_TOOL = "mainspring.call_tool"


class RunInterceptor(Interceptor):
    """Traces and observes the runs of a worker.

    Args:
        observer: What each run tells of its events.
        arming: Decides the trace of a run.
        ambient: The span that was current where the worker was started, which no run belongs to.
    """

    def __init__(
        self, observer: RunObserver, arming: Arming, ambient: Callable[[], SpanRef | None] = lambda: None
    ) -> None:
        self._observer = observer
        self._arming = arming
        self._ambient = ambient

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        """The interceptor of each workflow; it is used as it is in the sandbox too."""

        class Observed(_RunInbound):
            observer = self._observer

        return Observed

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """The interceptor of each activity."""
        return _InContext(next, self._arming, self._ambient)


class _RunInbound(WorkflowInboundInterceptor):
    observer: RunObserver

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_WithHeader(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        run = workflow.instance()
        if workflow.info().workflow_type in RUNS and hasattr(run, "observer"):
            run.observer = self.observer
        return await super().execute_workflow(input)


class _WithHeader(WorkflowOutboundInterceptor):
    """Tells each activity of a traced run which span it works for."""

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        if workflow.info().workflow_type in RUNS and HEADER not in input.headers:
            ref = _span_of(workflow.instance(), input)
            if ref is not None:
                input.headers = {**input.headers, HEADER: _payload(ref)}
        return super().start_activity(input)


def _span_of(run: Any, input: StartActivityInput) -> SpanRef | None:
    """The span that an activity works for; None where nothing is traced."""
    armed = getattr(run, "armed", None)
    if armed is None or armed.trace is None:
        return None
    if input.activity == CALL_MODEL:
        return trace.of_turn(armed.trace, run.meter.turns)
    ours = input.activity.startswith("mainspring.") and input.activity != CALL_TOOL
    if ours or input.activity_id is None:
        return trace.root_of(armed.trace)
    return trace.of_call(armed.trace, input.activity_id)


def _payload(ref: SpanRef) -> Payload:
    carrier = json.dumps({"traceparent": trace.write(ref)}, separators=(",", ":"))
    return Payload(metadata={"encoding": b"json/plain"}, data=carrier.encode())


def _named_by(payload: Payload | None) -> SpanRef | None:
    try:
        carrier: Any = json.loads(payload.data) if payload is not None else {}
        found: Any = carrier.get("traceparent")
    except (ValueError, AttributeError):
        return None
    return trace.read(found) if isinstance(found, str) else None


class _InContext(ActivityInboundInterceptor):
    """Runs our activities where the span that they work for is current."""

    def __init__(
        self, next: ActivityInboundInterceptor, arming: Arming, ambient: Callable[[], SpanRef | None]
    ) -> None:
        super().__init__(next)
        self._arming = arming
        self._ambient = ambient

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.workflow_type not in RUNS:
            return await super().execute_activity(input)
        current = ref_of(otel.get_current_span())
        if current is not None and current == self._ambient():
            current = None
        if info.activity_type == ARM:
            return await self._arm(input, current)
        named = _named_by(input.headers.get(HEADER))
        with _inside(named if current is None else None):  # an interceptor of the user's has been here before
            return await super().execute_activity(input)

    async def _arm(self, input: ExecuteActivityInput, current: SpanRef | None) -> Any:
        request: ArmRequest = input.args[0]
        decided = self._arming.decide(request, activity.info(), current)
        inside = trace.root_of(decided) if decided is not None and decided.exact else None
        with _inside(inside if current is None else None):
            record = await super().execute_activity(input)
        return record if decided is None else self._arming.recorded(request, record, decided)


@contextmanager
def _inside(ref: SpanRef | None) -> Generator[None]:
    """That span is current in the block; None changes nothing."""
    if ref is None:
        yield
        return
    token = contexts.attach(context_of(ref))
    try:
        yield
    finally:
        contexts.detach(token)
