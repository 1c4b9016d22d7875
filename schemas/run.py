"""How a run starts and how it ends.

Source: shared design, loop.md "Arming", "Outcomes"; interfaces.md "On the wire".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from mainspring.schemas.agent import AgentSpec, Overrides
from mainspring.schemas.base import Closed, Duration, JsonValue
from mainspring.schemas.ledger import Attachment
from mainspring.schemas.tools import BlobRef

__all__ = ["CODES", "Outcome", "RunInput", "RunResult", "Spend", "Stall"]

Outcome = Literal[
    "completed",
    "done",
    "degraded",
    "max_turns",
    "budget",
    "forbidden_tool",
    "refused",
    "schema",
    "invalid_input",
    "catalog_unavailable",
    "stalled",
    "security",
    "unmetered",
    "unmet",
    "cancelled",
    "interrupted",
]

ANSWERED: frozenset[str] = frozenset({"completed", "done", "degraded"})
"""Outcomes that carry an answer and complete the workflow; the others fail it."""

CODES: dict[str, str] = {
    "max_turns": "NIKA-460",
    "budget": "NIKA-461",
    "forbidden_tool": "NIKA-462",
    "refused": "NIKA-463",
    "schema": "NIKA-464",
    "invalid_input": "NIKA-465",
    "catalog_unavailable": "NIKA-466",
    "stalled": "NIKA-467",
    "security": "NIKA-468",
    "unmetered": "NIKA-469",
}


MetadataText = Annotated[str, Field(max_length=2_048)]


class RunInput(Closed):
    """The one argument of `AgentRun`. `agent` is a configured name or an inline specification.

    `traceparent` (W3C Trace Context) makes the run part of a trace of the caller's.
    """

    agent: str | AgentSpec
    prompt: str
    lifetime: Literal["single", "conversation"] = "single"
    attended: bool = True
    attachments: tuple[Attachment, ...] = Field(default=(), max_length=32)
    criteria: tuple[JsonValue, ...] = ()
    overrides: Overrides = Overrides()
    metadata: dict[MetadataText, MetadataText] = Field(default_factory=dict, max_length=64)
    idle_timeout: Duration | None = Field(default=None, gt=0)
    traceparent: str | None = Field(default=None, max_length=256)

    @field_validator("prompt")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("the prompt is blank")
        return value


class Spend(Closed):
    """What a run has cost so far. `partial`: a reply came without usage, so the sums are a lower bound."""

    turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    dollars: float | None = None
    wall_ms: int = 0
    children: JsonValue = None
    partial: bool = False


class Stall(Closed):
    """What repeated until the guard ended the exchange: `steps` is one cycle of it, as text."""

    period: int
    repeats: int
    steps: tuple[str, ...] = ()


class RunResult(Closed):
    """How a run ended: the workflow's result, or the details of its failure."""

    outcome: Outcome
    code: str | None = None
    answer: str | None = None
    output: JsonValue = None
    partial: str = ""
    message: str | None = None
    spend: Spend = Spend()
    presentations: tuple[JsonValue, ...] = ()
    unmet: tuple[JsonValue, ...] = ()
    exchanges: int = 0
    answer_blob: BlobRef | None = None
    unanswered: tuple[str, ...] = ()
    stall: Stall | None = None
