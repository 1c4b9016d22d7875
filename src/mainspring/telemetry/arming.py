"""Which trace a run belongs to: decided once, when it is armed, and recorded with what arming records.

Source: shared design, loop.md "Arming", "Events".
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from opentelemetry.trace import SpanKind
from temporalio import activity

from mainspring.schemas.activities import Armed, ArmRequest, Trace
from mainspring.schemas.base import unwire, wire
from mainspring.telemetry import messages
from mainspring.telemetry.providers import Providers, context_of, ref_of
from mainspring.telemetry.spans import agent_attributes, tracer_of
from mainspring.telemetry.told import Content, Told, nanoseconds
from mainspring.workflows import trace
from mainspring.workflows.trace import SpanRef

__all__ = ["Arming"]

NAME = "invoke_agent"
INLINE = "inline"


class Arming:
    """Decides the trace of each run that this process arms.

    Args:
        providers: Of this process.
        content: Whether content may be shown.
    """

    def __init__(self, providers: Providers, *, content: bool = False) -> None:
        self._providers = providers
        self._content = content

    def decide(self, request: ArmRequest, info: activity.Info, current: SpanRef | None) -> Trace | None:
        """The trace of a run; None where this process traces nothing.

        A run that was armed before keeps its own. An attempt that is repeated decides the same.

        Args:
            request: What is armed; the traceparent that the run was started with comes first.
            info: Of the arming activity.
            current: The span that arming runs in, if any: a tracing interceptor of the user's made it.
        """
        if request.trace is not None:
            return request.trace
        if self._providers.tracing() is None:
            return None
        parent = trace.read(request.input.traceparent) or current
        ref = trace.root(info.workflow_run_id or info.activity_id, parent)
        agent = request.input.agent if isinstance(request.input.agent, str) else INLINE
        attributes = {"gen_ai.operation.name": NAME, "gen_ai.agent.name": agent}
        flags = self._providers.flags(f"{NAME} {agent}", ref.trace_id, parent, attributes)
        return Trace(
            traceparent=trace.write(replace(ref, flags=flags)),
            parent=None if parent is None else trace.write(parent),
            exact=self._providers.exact(),
            began=info.scheduled_time.astimezone(UTC).isoformat(),
        )

    def recorded(self, request: ArmRequest, record: dict[str, Any], decided: Trace) -> dict[str, Any]:
        """The arming record with its trace; where ids cannot be chosen, the run's span is made here."""
        if request.trace is None and not decided.exact:
            decided = self._made(unwire(Armed, record), decided)
        return {**record, "trace": wire(decided)}

    def _made(self, armed: Armed, decided: Trace) -> Trace:
        provider, parent = self._providers.tracing(), trace.read(decided.parent)
        assert provider is not None
        assert decided.began is not None
        info = activity.info()
        about = Told(
            record={},
            workflow_id=info.workflow_id or "",
            run_id=info.workflow_run_id or "",
            agent=armed.agent,
            model=armed.models[0],
        )
        attributes = agent_attributes(about)
        if self._content:
            attributes |= messages.of_run(Content(instructions=armed.spec.instructions))
        span = tracer_of(provider).start_span(
            f"{NAME} {attributes['gen_ai.agent.name']}",
            context_of(parent),
            SpanKind.INTERNAL,
            attributes,
            start_time=nanoseconds(decided.began),
        )
        span.end(max(nanoseconds(decided.began), nanoseconds(datetime.now(UTC).isoformat())))
        ref = ref_of(span)
        return decided if ref is None else decided.model_copy(update={"traceparent": trace.write(ref)})
