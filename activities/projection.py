"""Projections, made incrementally: a turn pays for its new entries, not for the run's old ones.

The messages before the newest reply never change while the ledger grows and the plan keeps its beginning, so
they are kept from call to call. What is kept dies with the ledger that it was made from.

Source: shared design, context.md "The transcript by reference", "Plan" (the prefix stays as it is).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.schemas.ledger import Entry, Plan
from mainspring.workflows.ledger import Message, project, select

__all__ = ["Projection", "Projections"]

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Projection:
    """The messages of a request, and about how many tokens they hold."""

    messages: list[Message]
    tokens: int


@dataclass(slots=True)
class _Kept:
    """The first `length` selected entries as messages. `last` is the last of these entries."""

    head: tuple[object, ...]
    last: weakref.ref[Entry]
    length: int
    tokens: int
    messages: list[Message]


class Projections:
    """The stable beginnings of the projections of this process's runs."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: Key, entries: Sequence[Entry], plan: Plan) -> Projection:
        """The same as `project(select(entries, plan))`, for the run `key`."""
        selected = select(entries, plan)
        head = _head(plan)
        kept = self._kept.get(key)
        if kept is None or not _begins(selected, head, kept):
            kept = None
        start = kept.length if kept else 0
        messages = kept.messages if kept else []
        tokens = kept.tokens if kept else 0
        cut = _newest_reply(selected, start)
        if cut > start:
            messages = messages + project(selected[start:cut])
            tokens += sum(entry.tokens_estimate for entry in selected[start:cut])
            self._keep(key, _Kept(head, _anchor(self, key, selected[cut - 1]), cut, tokens, messages))
        tail = selected[cut:]
        return Projection(messages + project(tail), tokens + sum(entry.tokens_estimate for entry in tail))

    def _keep(self, key: Key, kept: _Kept) -> None:
        self._kept[key] = kept

    def forget(self, key: Key, last: weakref.ref[Entry]) -> None:
        """Drop what was made from a ledger that is gone."""
        kept = self._kept.get(key)
        if kept is not None and kept.last is last:
            del self._kept[key]


def _anchor(owner: Projections, key: Key, entry: Entry) -> weakref.ref[Entry]:
    owned = weakref.ref(owner)

    def gone(last: weakref.ref[Entry]) -> None:
        if (projections := owned()) is not None:
            projections.forget(key, last)

    return weakref.ref(entry, gone)


def _head(plan: Plan) -> tuple[object, ...]:
    """What of a plan decides how the selection begins: all but where its last range ends."""
    if not plan.ranges:
        return ()
    return (*plan.ranges[:-1], plan.ranges[-1][0])


def _begins(selected: Sequence[Entry], head: tuple[object, ...], kept: _Kept) -> bool:
    """Whether the selection begins with what is kept: entries are shared, so identity decides."""
    return head == kept.head and len(selected) >= kept.length and selected[kept.length - 1] is kept.last()


def _newest_reply(selected: Sequence[Entry], start: int) -> int:
    """Index of the newest reply that is surely sent, so that nothing before it can join what follows it.

    `start`, when there is none after it.
    """
    for index in range(len(selected) - 1, start, -1):
        entry = selected[index]
        if entry.role == "assistant" and (
            entry.content != "" or _answered(entry, selected[index + 1 : index + 2])
        ):
            return index
    return start


def _answered(reply: Entry, following: Sequence[Entry]) -> bool:
    """Whether the entry after a reply answers one of its calls: a reply without words is dropped else."""
    return any(call.id == entry.call_id for entry in following for call in reply.calls)
