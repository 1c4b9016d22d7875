from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

from mainspring.schemas.base import unwire, wire
from mainspring.schemas.ledger import Attachment, Entry, EntryCall, LedgerRef, NewEntry, Plan, Thinking


@pytest.mark.parametrize(
    "content", [None, True, 0, 1.5, "", "x", [], [1], {}, {"a": [None, "b"]}], ids=count()
)
def test_entry_round_trips_any_content(content: Any) -> None:
    """An observation may be any JSON, and comes back of the same type."""
    entry = Entry(seq=0, kind="observation", role="tool", content=content)
    assert repr(unwire(Entry, wire(entry)).content) == repr(content)


def test_entry_carries_only_what_it_has() -> None:
    """A short message costs a few fields of history, not all of them."""
    assert set(wire(Entry(seq=3, kind="user", role="user", content="go"))) == {
        "seq",
        "kind",
        "role",
        "content",
    }


@pytest.mark.parametrize(
    "value",
    [
        Attachment(data="AA==", media_type="image/png", name="a.png"),
        EntryCall(id="c-1", tool="t", arguments={"a": {"b": [1]}}, raw="{"),
        Thinking(text="hm", signature="s", details={"k": 1}),
        LedgerRef(length=0, digest="0" * 16),
        NewEntry(seq=1, n=0, turn=0),
        NewEntry(seq=1, entry=Entry(seq=1, kind="user", role="user", content="x")),
        Plan(),
        Plan(ranges=()),
        Plan(ranges=((0, 3), (5, 9))),
    ],
    ids=count(),
)
def test_wire_form_stands_for_the_value(value: Any) -> None:
    """What is written is read back equal: no ranges and the whole are told apart, so are 0 and none."""
    assert unwire(type(value), wire(value)) == value


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Entry, {"seq": 0, "kind": "thought", "role": "user"}),
        (Entry, {"seq": 0, "kind": "user", "role": "system"}),
        (Entry, {"kind": "user", "role": "user"}),
        (LedgerRef, {"length": -1, "digest": "0"}),
        (Attachment, {"data": "A" * 131_073}),
        (Plan, {"ranges": [[0, 1, 2]]}),
    ],
    ids=count(),
)
def test_what_no_ledger_holds_is_refused(kind: Any, fields: dict[str, Any]) -> None:
    """Unknown kinds and roles, negative lengths and oversized attachments do not decode."""
    with pytest.raises(ValidationError):
        unwire(kind, fields)
