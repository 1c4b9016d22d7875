"""What goes to an activity of ours and comes back. None of it grows with the run.

Source: shared design, context.md "The transcript by reference".
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mainspring.schemas.agent import DOLLARS_MAX, AgentSpec, ModelSpec
from mainspring.schemas.base import Closed, JsonValue
from mainspring.schemas.ledger import LedgerRef, NewEntry, Plan, Thinking
from mainspring.schemas.run import RunInput
from mainspring.schemas.tools import BlobRef, ParsedCall, ToolDeclaration, ToolDefinition

__all__ = [
    "ArmRequest",
    "Armed",
    "CatalogPage",
    "FinishReason",
    "ModelReply",
    "ModelRequest",
    "Trace",
    "Usage",
]


class Trace(Closed):
    """The span `invoke_agent` of a run, which everything that it does hangs from.

    Args:
        traceparent: W3C Trace Context of that span.
        parent: The caller's, which that span hangs from; None when it is a root.
        exact: The span is made when the run ends, under the id named here, and so are those of its calls;
            False: it was made at arming, since this process's tracer chooses ids itself.
        began: When that span begins, as ISO time; a continued run still knows it.
    """

    traceparent: str
    parent: str | None = None
    exact: bool = True
    began: str | None = None


class ArmRequest(Closed):
    """Argument of `mainspring.arm`. `trace` is the run's own, where it was armed before: it keeps it."""

    input: RunInput
    trace: Trace | None = None


DECISIONS = 2
"""Which decisions a run armed by this version makes: 1 has neither guard nor router, 2 has both.

A run keeps those of its arming record for as long as it works with it, so that its history replays."""


class Armed(Closed):
    """What arming recorded, once; a changed configuration never changes a run in flight.

    Args:
        agent: The agent's name; `inline` for an inline specification.
        spec: The specification with the run's overrides applied.
        models: The model to use, then its fallbacks in order.
        digest: 16 hex digits over spec, models and catalog: the name of this record in every cache.
        tools: The catalog, up to 512 KiB; None when it lies in the blob store.
        catalog_blob: Where a larger catalog lies (JSON list of `ToolDefinition`).
        catalog_pages: Pages of declarations to fetch with `mainspring.catalog_page`, when in the blob store.
        search_attributes: Names of ours that the server has registered.
        notes: For the person: what was left out and why (a server that did not start, a bad schema).
        decisions: Which decisions the run makes, see `DECISIONS`.
        trace: The run's trace; None when the worker that armed it traces nothing.
    """

    agent: str
    spec: AgentSpec
    models: tuple[ModelSpec, ...]
    digest: str
    tools: tuple[ToolDefinition, ...] | None = ()
    catalog_blob: BlobRef | None = None
    catalog_pages: int = 0
    search_attributes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    decisions: int = 1
    trace: Trace | None = None


class CatalogPage(Closed):
    """Answer of `mainspring.catalog_page(blob, page)`: at most 512 KiB of declarations."""

    tools: tuple[ToolDeclaration, ...]


class ModelRequest(Closed):
    """Argument of `mainspring.call_model`: constant in size, on turn 10 and on turn 10,000.

    The run and its call-id prefix are read from the activity's own info. The reply's calls get the ids
    `<prefix>-<n+1>` …, where n is the number in this activity's id.

    Args:
        armed: Digest of the arming record; served by the query `armed` when no cache holds it.
        call: This is the call-th model call of the run, from 0.
        turn: Turn of the exchange, from 1.
        new: Entries since the last model call, by the activity that produced them.
        offered: Names offered, in order; "all" for the whole catalog.
        model: Index into the recorded models: 0, or a fallback.
    """

    armed: str
    call: int
    turn: int
    exchange: int = 1
    ledger: LedgerRef
    new: tuple[NewEntry, ...] = ()
    plan: Plan = Plan()
    offered: Literal["all"] | tuple[str, ...] = "all"
    model: int = 0


class Usage(Closed):
    """Tokens of one model call, all of its attempts that reported any. `dollars` is None without a price.

    `input_tokens` includes `cached_tokens` (read from a provider's cache).
    """

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    dollars: float | None = Field(default=None, ge=0, le=DOLLARS_MAX, allow_inf_nan=False)


FinishReason = Literal["stop", "length", "tool_call", "content_filter", "refusal", "error"]


class ModelReply(Closed):
    """Answer of `mainspring.call_model`.

    Args:
        text: Visible text, made safe, at most 512 KiB: beyond, head and tail, and `text_blob` has the whole.
        usage: None when the provider reported none.
        output: The parsed answer, when the agent has an output schema and the text meets it.
        output_problem: Why the text does not meet the output schema; None when it does or there is none.
        first_token_ms: Milliseconds to the first streamed token.
        model: What the provider says it ran.
    """

    text: str = ""
    calls: tuple[ParsedCall, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage | None = None
    output: JsonValue = None
    output_problem: str | None = None
    text_blob: BlobRef | None = None
    first_token_ms: int | None = None
    model: str | None = None
