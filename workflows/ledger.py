"""The ledger: how entries are made, how a prefix is digested, and which messages an entry becomes.

Pure. The workflow and the model activity both build entries with these functions, from the same inputs, so
that an activity that produced a reply or an observation need never be told it again. `digest` proves that
both hold the same.

Source: shared design, context.md "Ledger", "The transcript by reference"; loop.md (projection).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from mainspring.schemas.activities import ModelReply
from mainspring.schemas.base import JsonValue, wire
from mainspring.schemas.ledger import Attachment, Entry, EntryCall, LedgerRef, Plan, Thinking
from mainspring.schemas.tools import BlobRef, ToolOutcome
from mainspring.workflows.tokens import estimate
from mainspring.workflows.values import render

__all__ = [
    "GENESIS",
    "AssistantMessage",
    "Ledger",
    "Message",
    "Result",
    "UserMessage",
    "UserText",
    "control_entry",
    "digest_after",
    "observation_entry",
    "project",
    "reply_entry",
    "select",
    "user_entry",
]

GENESIS = "0" * 16
"""Digest of the empty ledger."""


def digest_after(digest: str, entry: Entry) -> str:
    """Digest of a prefix that ends with `entry`, given the digest of the prefix before it."""
    canonical = json.dumps(wire(entry), sort_keys=True, separators=(",", ":"))
    return blake2b(digest.encode() + canonical.encode(), digest_size=8).hexdigest()


def user_entry(
    seq: int, exchange: int, turn: int, text: str, attachments: tuple[Attachment, ...] = (), **meta: JsonValue
) -> Entry:
    """A person's message: the directive, a follow-up or steering."""
    return Entry(
        seq=seq,
        kind="user",
        role="user",
        exchange=exchange,
        turn=turn,
        content=text,
        attachments=attachments,
        tokens_estimate=estimate(text),
        meta=meta,
    )


def control_entry(seq: int, exchange: int, turn: int, kind: str, text: str) -> Entry:
    """A message that the engine wrote; known by its kind, never by its text."""
    return Entry(
        seq=seq,
        kind="control",
        role="user",
        exchange=exchange,
        turn=turn,
        content=text,
        control_kind=kind,
        tokens_estimate=estimate(text),
    )


def reply_entry(seq: int, exchange: int, turn: int, reply: ModelReply, call_ids: Sequence[str]) -> Entry:
    """A model's reply; `call_ids` are the run's ids of its calls, in order. Blank text is no text."""
    calls = tuple(
        EntryCall(id=call_id, tool=call.tool, arguments=call.arguments, raw=call.raw)
        for call_id, call in zip(call_ids, reply.calls, strict=True)
    )
    arguments = sum(estimate(render(call.arguments)) + estimate(call.tool) for call in calls)
    return Entry(
        seq=seq,
        kind="reply",
        role="assistant",
        exchange=exchange,
        turn=turn,
        content=reply.text if reply.text.strip() else "",
        calls=calls,
        thinking=reply.thinking,
        spilled=reply.text_blob,
        tokens_estimate=estimate(reply.text) + arguments,
    )


def observation_entry(
    seq: int, exchange: int, turn: int, call_id: str, tool: str, outcome: ToolOutcome
) -> Entry:
    """What the model is shown of a call's result; its bound was kept where the result was made."""
    content: JsonValue = outcome.content
    return Entry(
        seq=seq,
        kind="observation",
        role="tool",
        exchange=exchange,
        turn=turn,
        content=content,
        files=outcome.files,
        spilled=outcome.spilled,
        call_id=call_id,
        tool=tool,
        is_error=outcome.is_error,
        tokens_estimate=estimate(render(content)),
    )


@dataclass(slots=True)
class Ledger:
    """Entries and the digest of every prefix: `digests[n]` is that of the first n entries."""

    entries: list[Entry] = field(default_factory=list)
    digests: list[str] = field(default_factory=lambda: [GENESIS])

    def append(self, entry: Entry) -> Entry:
        """Append the next entry. An entry out of sequence is a defect of ours."""
        assert entry.seq == len(self.entries), f"entry {entry.seq} after {len(self.entries)} entries"
        self.digests.append(digest_after(self.digests[-1], entry))
        self.entries.append(entry)
        return entry

    def cut(self, length: int) -> None:
        """Drop everything from `length` on."""
        del self.entries[length:]
        del self.digests[length + 1 :]

    @property
    def length(self) -> int:
        """Number of entries, which is the next `seq`."""
        return len(self.entries)

    @property
    def ref(self) -> LedgerRef:
        """Reference to the whole."""
        return LedgerRef(length=self.length, digest=self.digests[-1])

    def newest_observations(self) -> list[str]:
        """What was observed after the newest reply, in order, as the model is shown it."""
        newest: list[str] = []
        for entry in reversed(self.entries):
            if entry.role == "assistant":
                break
            if entry.role == "tool":
                newest.append(render(entry.content))
        return newest[::-1]

    def page(self, start: int, limit: int, bytes_max: int = 900_000) -> list[dict[str, Any]]:
        """Entries from `start`: at most `limit` and about `bytes_max`, but at least one if there is one."""
        page: list[dict[str, Any]] = []
        size = 0
        for entry in self.entries[max(0, start) : max(0, start) + max(0, limit)]:
            item = wire(entry)
            size += len(json.dumps(item, ensure_ascii=False).encode("utf-8", "replace"))
            if page and size > bytes_max:
                break
            page.append(item)
        return page


@dataclass(frozen=True, slots=True)
class Result:
    """An observation in a message, by the call that it answers."""

    call_id: str
    tool: str
    content: JsonValue
    is_error: bool
    files: tuple[BlobRef, ...] = ()


@dataclass(frozen=True, slots=True)
class UserText:
    """A person's or the engine's words, with what is attached to them."""

    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class UserMessage:
    """One message of the user role: results first, then words."""

    results: tuple[Result, ...] = ()
    texts: tuple[UserText, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One reply of the model, as it is shown back to it."""

    text: str
    calls: tuple[EntryCall, ...] = ()
    thinking: tuple[Thinking, ...] = ()


Message = UserMessage | AssistantMessage


def select(entries: Sequence[Entry], plan: Plan) -> list[Entry]:
    """The entries that the plan shows, in order."""
    if plan.ranges is None:
        return list(entries)
    return [entry for start, end in plan.ranges for entry in entries[start:end]]


def project(entries: Iterable[Entry]) -> list[Message]:
    """The messages of a request: adjacent entries of the user role become one, results before words.

    A reply with neither text nor calls is left out (providers refuse it). An observation whose call is not in
    the reply before it is left out too, and a call without its observation likewise: no orphan can be sent.
    """
    messages: list[Message] = []
    results: list[Result] = []
    texts: list[UserText] = []

    def close() -> None:
        if results or texts:
            messages.append(UserMessage(tuple(results), tuple(texts)))
            results.clear()
            texts.clear()

    waiting: set[str] = set()
    for entry in entries:
        if entry.role == "assistant":
            if entry.content == "" and not entry.calls:
                continue
            close()
            waiting = {call.id for call in entry.calls}
            messages.append(AssistantMessage(str(entry.content), entry.calls, entry.thinking))
        elif entry.role == "tool":
            if entry.call_id in waiting:
                waiting.discard(entry.call_id)
                results.append(
                    Result(entry.call_id, entry.tool or "", entry.content, entry.is_error, entry.files)
                )
        else:
            texts.append(UserText(str(entry.content), entry.attachments))
    close()
    return _without_unanswered(messages)


def _without_unanswered(messages: list[Message]) -> list[Message]:
    """Drop calls that the next message does not answer; what then stands side by side becomes one."""
    kept: list[Message] = []
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.calls:
            after = messages[index + 1] if index + 1 < len(messages) else None
            answered = {item.call_id for item in after.results} if isinstance(after, UserMessage) else set()
            calls = tuple(call for call in message.calls if call.id in answered)
            if not calls and not message.text:
                continue
            message = AssistantMessage(message.text, calls, message.thinking)
        before = kept[-1] if kept else None
        if isinstance(message, UserMessage) and isinstance(before, UserMessage):
            kept[-1] = UserMessage(before.results + message.results, before.texts + message.texts)
            continue
        kept.append(message)
    return kept
