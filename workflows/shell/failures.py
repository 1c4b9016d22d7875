"""A failed activity, as what is known of it: for the model an observation, for the loop a reason.

Source: shared design, tools.md "Retries and side effects"; temporal-facts.md 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as TimedOut

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from mainspring.schemas import errors
    from mainspring.schemas.activities import Usage
    from mainspring.schemas.base import unwire
    from mainspring.schemas.tools import ToolOutcome
    from mainspring.workflows.dispatch import Run
    from mainspring.workflows.values import clip

__all__ = ["CallOutcome", "CallStatus", "ModelGone", "Withdrawn", "failed_call", "model_gone", "unknown"]

CallStatus = Literal["ok", "error", "refused", "not_run", "interrupted", "unknown", "forbidden"]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What became of one call.

    Args:
        n: Number of the activity whose result it is, if it is one's.
        began: When it was dispatched, in nanoseconds of the workflow's clock.
        digest: Of a content that is shown cut and kept nowhere whole.
    """

    outcome: ToolOutcome
    status: CallStatus
    ms: int = 0
    n: int | None = None
    began: int | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class ModelGone:
    """The model call failed for good. `usage` is what its attempts were billed all the same, when known."""

    error: str
    message: str
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A person withdrew what was in flight."""


def model_gone(failure: BaseException) -> ModelGone:
    """Why a model call failed for good."""
    cause = failure.cause if isinstance(failure, ActivityError) else failure
    if isinstance(cause, ApplicationError):
        return ModelGone(cause.type or errors.MODEL_UNAVAILABLE, cause.message, _usage(cause))
    if isinstance(cause, TimedOut):
        kind = cause.type.name.lower() if cause.type else "timeout"
        return ModelGone("timeout", f"the model call ran out of time ({kind})")
    return ModelGone(errors.MODEL_UNAVAILABLE, str(cause or failure))


def _usage(cause: ApplicationError) -> Usage | None:
    """What a failed call was billed, from the details of its error."""
    details = cause.details[0] if cause.details else None
    found = details.get("usage") if isinstance(details, dict) else None
    try:
        return None if found is None else unwire(Usage, found)
    except ValidationError:
        return None


def failed_call(run: Run, failure: BaseException, ms: int) -> CallOutcome:
    """A call whose activity failed, as an observation that says what is known of its effect."""
    cause = failure.cause if isinstance(failure, ActivityError) else failure
    if is_cancelled_exception(failure):
        told = "Interrupted while it ran; whether it took effect is unknown. Verify before repeating."
        return CallOutcome(ToolOutcome(content=told, is_error=True), "interrupted", ms)
    if isinstance(cause, TimedOut):
        return _timed_out(run, cause, ms)
    if isinstance(cause, ApplicationError) and _may_have_happened(run, cause):
        return CallOutcome(unknown(clip(cause.message, 500)), "unknown", ms)
    if isinstance(cause, ApplicationError):
        status: CallStatus = "forbidden" if cause.type == errors.TOOL_FORBIDDEN else "error"
        told = clip(cause.message, 2_000) or cause.type or "the tool failed"
        label = f"{cause.type}: " if cause.type and cause.type not in told else ""
        return CallOutcome(ToolOutcome(content=f"{label}{told}", is_error=True), status, ms)
    told = clip(str(cause or failure), 2_000)
    return CallOutcome(ToolOutcome(content=told, is_error=True), "error", ms)


def _timed_out(run: Run, cause: TimedOut, ms: int) -> CallOutcome:
    if cause.type == TimeoutType.SCHEDULE_TO_START:
        told = "Not started: no worker took it in time."
        return CallOutcome(ToolOutcome(content=told, is_error=True), "not_run", ms)
    if run.tool.effects in ("none", "read"):
        told = f"Timed out: no result within {run.tool.timeout:g} s an attempt."
        return CallOutcome(ToolOutcome(content=told, is_error=True), "error", ms)
    return CallOutcome(unknown("it was lost or timed out"), "unknown", ms)


def unknown(why: str) -> ToolOutcome:
    """The observation of a call that may or may not have happened."""
    told = f"Outcome unknown ({why}): it may or may not have happened. Verify before repeating."
    return ToolOutcome(content=told, is_error=True)


_CUT_OFF = frozenset({errors.TOOL_UNREACHABLE, "WorkerShutdown"})
"""Failures of an attempt that was under way: its connection was lost, or its worker was told to stop."""


def _may_have_happened(run: Run, cause: ApplicationError) -> bool:
    """Whether a call that was cut off may have had its effect; a tool can vouch that it had not."""
    if cause.type not in _CUT_OFF or run.tool.effects in ("none", "read"):
        return False
    return not any(isinstance(detail, dict) and detail.get("not_applied") for detail in cause.details)
