"""What a gate is told and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mainspring.schemas.activities import ModelReply
from mainspring.schemas.run import Outcome

__all__ = ["Close", "Facts", "Gate", "Pass", "Redo"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the exchange when a reply wants to be its answer.

    Args:
        reply: The reply; it has no calls.
        redos: How often each gate has sent a reply back since the newest message of a person.
        schema_repairs: Bound of the repairs of an output, shared by text and `nika:done`.
        explicit: The agent completes by `nika:done`.
    """

    reply: ModelReply
    redos: Mapping[str, int] = field(default_factory=dict)
    schema_repairs: int = 2
    explicit: bool = False

    def left(self, gate: str, bound: int) -> int:
        """Redos that a gate has left of its bound."""
        return max(0, bound - self.redos.get(gate, 0))


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
