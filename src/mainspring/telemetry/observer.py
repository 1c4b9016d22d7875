"""The observer of a run: on the workflow's thread, it puts down what happened and goes.

It runs inside the workflow, in the sandbox too where one is used, so it does nothing that could wait, fail or
differ: no clock, no OpenTelemetry, no import. What it puts down is a reference to values that never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from temporalio import workflow

from mainspring.schemas.activities import ModelReply
from mainspring.schemas.ledger import Entry
from mainspring.telemetry.told import Content, Record, Told

if TYPE_CHECKING:
    from mainspring.workflows.shell.state import RunState

__all__ = ["RunObserver"]

LOOKED_BACK = 1_000
"""Events, or entries, that are looked through for what belongs to an event."""
CONTENT_CHARACTERS = 64_000
"""Of the newest entries that a model was asked with: what is older is in the spans before."""


class RunObserver:
    """Tells of every event of a run.

    Contract: it never raises, whatever becomes of what it tells.

    Args:
        tell: Takes it; at once, or not at all.
        content: Whether what was said is told too.
    """

    def __init__(self, tell: Callable[[Told], None], *, content: bool = False) -> None:
        self._tell = tell
        self._content = content

    def __call__(self, run: RunState, record: dict[str, Any], about: Entry | ModelReply | None) -> None:
        """Take note of an event, see `workflows.shell.state.Observer`."""
        try:
            self._tell(self._told(run, record, about))
        except Exception:  # a defect here must cost a span, and not a run
            workflow.logger.exception("telemetry was not told of an event")

    def _told(self, run: RunState, record: Record, about: Entry | ModelReply | None) -> Told:
        info, armed, name = workflow.info(), run.armed, record["event"]
        first = run.journal.records[0]
        agent = armed.agent if armed else first.get("agent", "?")
        return Told(
            record=record,
            workflow_id=info.workflow_id,
            run_id=info.run_id,
            agent=agent,
            model=armed.models[run.model_index] if armed else None,
            trace=armed.trace if armed else None,
            parent=run.input.traceparent if run.input else None,
            named=name == "ToolCompleted" and record["tool"] in run.tools,
            since=_since_checkpoint(run) if name == "BudgetCheckpoint" else (),
            journal=tuple(run.journal.records) if name == "Finished" else (),
            spend=run.meter.spend() if name == "Finished" else None,
            content=self._said(run, record, about) if self._content else None,
        )

    def _said(self, run: RunState, record: Record, about: Entry | ModelReply | None) -> Content | None:
        match record["event"]:
            case "BudgetCheckpoint":
                reply = about if isinstance(about, ModelReply) else None
                return Content(reply, _asked_with(run), _instructions(run))
            case "ToolCompleted":
                observed = about if isinstance(about, Entry) else None
                found = (_reply_with(run, record["call_id"]), observed)
                return Content(entries=tuple(entry for entry in found if entry is not None))
            case "Finished":
                return Content(entries=_ends(run), instructions=_instructions(run))
            case _:
                return Content()


def _instructions(run: RunState) -> str:
    return run.armed.spec.instructions if run.armed else ""


def _since_checkpoint(run: RunState) -> tuple[Record, ...]:
    """The events before this checkpoint, back to the one before it, which comes first."""
    found: list[Record] = []
    newest_first = reversed(run.journal.records)
    next(newest_first)  # the checkpoint itself
    for record in newest_first:
        found.append(record)
        if record["event"] == "BudgetCheckpoint" or len(found) == LOOKED_BACK:
            break
    return tuple(reversed(found))


def _asked_with(run: RunState) -> tuple[Entry, ...]:
    """The newest entries of the ledger, before the reply to them is in it."""
    found: list[Entry] = []
    left = CONTENT_CHARACTERS
    for entry in reversed(run.ledger.entries):
        left -= len(str(entry.content))
        if found and (left < 0 or len(found) == LOOKED_BACK):
            break
        found.append(entry)
    return tuple(reversed(found))


def _reply_with(run: RunState, call_id: str) -> Entry | None:
    """The reply that asked for a call."""
    for entry in reversed(run.ledger.entries[-LOOKED_BACK:]):
        if any(call.id == call_id for call in entry.calls):
            return entry
    return None


def _ends(run: RunState) -> tuple[Entry, ...]:
    """The first message of a run, and its last reply."""
    entries = run.ledger.entries
    last = next((entry for entry in reversed(entries[-LOOKED_BACK:]) if entry.kind == "reply"), None)
    return tuple(entry for entry in (*entries[:1], last) if entry is not None)
