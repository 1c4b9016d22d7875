"""A call as the guard is shown it, from what the ledger and the events have of it.

The loop asks this of a turn that has just been folded, the backtest of one that was recorded: there is one
way to see a call, so that both judge alike. Pure.

Source: shared design, loop.md "Guard (stalls)".
"""

from __future__ import annotations

from mainspring.schemas.ledger import Entry, EntryCall
from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.dispatch import label
from mainspring.workflows.guard import Act
from mainspring.workflows.intrinsics import without_hints

__all__ = ["act_of"]

NEVER_RAN = ("not_run", "interrupted")
"""Statuses of calls that say nothing of their tool."""


def act_of(
    call: EntryCall, observed: Entry, tool: ToolDeclaration | None, status: str, cut: str | None
) -> Act:
    """What the guard sees of a call and its observation.

    Args:
        call: As the reply has it.
        observed: Its observation.
        tool: What it calls; None for a tool that does not exist.
        status: As `ToolCompleted` has it.
        cut: Digest of a content that is shown cut and kept nowhere whole.
    """
    digests = [blob.digest for blob in (observed.spilled, *observed.files) if blob is not None]
    return Act(
        tool=call.tool,
        arguments=call.arguments,
        content=without_hints(call.tool, observed.content),
        is_error=observed.is_error,
        tried=status not in NEVER_RAN,
        polls=tool is not None and tool.polls,
        digest=" ".join([*digests, cut] if cut is not None else digests) or None,
        label=label(call),
    )
