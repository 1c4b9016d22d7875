"""What telemetry is told: one event of a run, and what of the run it takes to make spans and figures of it.

Built on a workflow's thread, so it holds references to values that never change and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring.schemas.activities import ModelReply, Trace
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.ledger import Entry
from mainspring.schemas.run import Spend

__all__ = ["Content", "Record", "Told", "nanoseconds"]

Record = Mapping[str, Any]
"""An event as the run keeps it: `seq`, `turn`, `at`, `event`, and its fields."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Content:
    """What an event is about; there is none unless content is switched on.

    Args:
        reply: The model's reply, of a checkpoint.
        entries: Of the ledger, oldest first: what the model was asked, or the call and its observation.
        instructions: The agent's.
    """

    reply: ModelReply | None = None
    entries: tuple[Entry, ...] = ()
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """One event.

    Args:
        record: The event.
        run_id: Of the Temporal run that it happened in.
        agent: The agent's name.
        model: The model in use; None until the run is armed.
        trace: The run's trace; None where the worker that armed it traces nothing.
        parent: The traceparent that the run was started with.
        named: Whether the tool that the event names is in the run's catalog, and not only in a model's mind.
        since: Events since the checkpoint before this one and that one, oldest first; for a checkpoint.
        journal: All events that the run keeps; for the last one.
        spend: What the run cost; for the last one.
    """

    record: Record
    workflow_id: str
    run_id: str
    agent: str
    model: ModelSpec | None = None
    trace: Trace | None = None
    parent: str | None = None
    named: bool = False
    since: Sequence[Record] = ()
    journal: Sequence[Record] = ()
    spend: Spend | None = None
    content: Content | None = None

    @property
    def event(self) -> str:
        """The event's name."""
        return str(self.record["event"])

    @property
    def at(self) -> int:
        """When it happened, in nanoseconds since 1970."""
        return nanoseconds(self.record["at"])


def nanoseconds(at: str) -> int:
    """An ISO time in nanoseconds since 1970."""
    return (datetime.fromisoformat(at) - _EPOCH) // timedelta(microseconds=1) * 1_000
