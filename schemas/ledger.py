"""The ledger: entries, and a reference to a prefix of it.

Source: shared design, context.md "Ledger".
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mainspring.schemas.base import Closed, JsonValue
from mainspring.schemas.tools import BlobRef

__all__ = [
    "Attachment",
    "ControlKind",
    "Entry",
    "EntryCall",
    "EntryKind",
    "LedgerRef",
    "NewEntry",
    "Plan",
    "Thinking",
]

EntryKind = Literal["user", "reply", "observation", "control", "presentation"]

ControlKind = Literal[
    "schema_repair", "truncated_calls", "empty_reply", "explicit_completion", "interrupted", "nudge"
]
"""Which control message it is; later versions add more."""


class Attachment(Closed):
    """An image or a file beside a message: small ones inline (base64), larger ones in the blob store."""

    media_type: str = "application/octet-stream"
    name: str | None = None
    data: str | None = Field(default=None, max_length=131_072)
    blob: BlobRef | None = None


class EntryCall(Closed):
    """A call in a reply's entry: its id in the run, and what the model asked for."""

    id: str
    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    raw: str | None = None


class Thinking(Closed):
    """A reasoning block; kept byte for byte, since providers sign it."""

    text: str = ""
    signature: str | None = None
    id: str | None = None
    provider: str | None = None
    details: dict[str, JsonValue] | None = None


class Entry(Closed):
    """One entry of the ledger. `seq` counts from 0 without gaps.

    `role` is what the provider is told: `user`, `assistant` or `tool`. `content` is text, or any JSON for an
    observation.
    """

    seq: int
    kind: EntryKind
    exchange: int = 1
    turn: int = 0
    role: Literal["user", "assistant", "tool"]
    content: JsonValue = ""
    calls: tuple[EntryCall, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    files: tuple[BlobRef, ...] = ()
    spilled: BlobRef | None = None
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    control_kind: str | None = None
    tokens_estimate: int = 0
    meta: dict[str, JsonValue] = Field(default_factory=dict)


class LedgerRef(Closed):
    """A prefix of a ledger: how many entries, and their rolling digest (16 hex digits)."""

    length: int = Field(ge=0)
    digest: str


class NewEntry(Closed):
    """An entry that the model activity may not have seen: whole, or by the activity that produced it.

    `n` is the number in that activity's id (`<prefix>-<n>`): of the model call for a reply, of the tool call
    for an observation. `exchange` is the request's and `turn` the one before it, where they are None.
    """

    seq: int
    n: int | None = None
    exchange: int | None = None
    turn: int | None = None
    entry: Entry | None = None


class Plan(Closed):
    """Which entries the model sees: half-open ranges of `seq`; None is the whole prefix."""

    ranges: tuple[tuple[int, int], ...] | None = None
