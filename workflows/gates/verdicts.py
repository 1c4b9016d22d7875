"""What a gate is told and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainspring.schemas.activities import ModelReply
from mainspring.schemas.run import Outcome

__all__ = ["Close", "Facts", "Gate", "Pass", "Redo"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the exchange when a reply wants to be its answer.

    Args:
        reply: The reply; it has no calls.
        repairs_left: Redos left for an output that does not meet its schema.
        empty_left: Redos left for a reply without visible text.
    """

    reply: ModelReply
    repairs_left: int
    empty_left: int


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing against it."""


@dataclass(frozen=True, slots=True)
class Redo:
    """Send it back with a control message. `bound_left` is what is left after this one."""

    gate: str
    kind: str
    reason: str
    text: str
    bound_left: int


@dataclass(frozen=True, slots=True)
class Close:
    """End the exchange with this outcome."""

    gate: str
    outcome: Outcome
    message: str


Gate = Callable[[Facts], Pass | Redo | Close]
