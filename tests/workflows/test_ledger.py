from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.activities import ModelReply
from mainspring.schemas.base import unwire, wire
from mainspring.schemas.ledger import Attachment, Entry, Plan, Thinking
from mainspring.schemas.tools import BlobRef, ParsedCall, ToolOutcome
from mainspring.workflows.ledger import (
    GENESIS,
    AssistantMessage,
    Ledger,
    Message,
    Result,
    UserMessage,
    UserText,
    control_entry,
    digest_after,
    observation_entry,
    project,
    reply_entry,
    select,
    user_entry,
)

BLOB = BlobRef(digest="blake2b:00", size=3)


def _reply(seq: int, *calls: str, text: str = "") -> Entry:
    parsed = tuple(ParsedCall(tool="look", arguments={"id": call}) for call in calls)
    return reply_entry(seq, 1, seq, ModelReply(text=text, calls=parsed), calls)


def _saw(seq: int, call: str, content: Any = "seen") -> Entry:
    return observation_entry(seq, 1, seq, call, "look", ToolOutcome(content=content))


def _said(seq: int, text: str = "go") -> Entry:
    return user_entry(seq, 1, seq, text)


def _ledger(entries: list[Entry]) -> Ledger:
    ledger = Ledger()
    for entry in entries:
        ledger.append(entry)
    return ledger


@st.composite
def _runs(draw: st.DrawFn) -> list[Entry]:
    """A ledger as the loop writes it: words, and replies with up to three calls, each answered."""
    entries: list[Entry] = [_said(0)]
    for turn in range(draw(st.integers(0, 6))):
        calls = [f"c{turn}-{n}" for n in range(draw(st.integers(0, 3)))]
        entries.append(_reply(len(entries), *calls, text=draw(st.sampled_from(["", " \n", "text"]))))
        for call in calls:
            if draw(st.booleans()):
                entries.append(control_entry(len(entries), 1, turn, "interrupted", f"note {len(entries)}"))
            entries.append(_saw(len(entries), call))
        for _ in range(draw(st.integers(0, 2))):
            entries.append(_said(len(entries), f"words {len(entries)}"))
    return entries


@st.composite
def _cuts(draw: st.DrawFn) -> tuple[list[Entry], list[Entry]]:
    """A run's entries, and any of them that a plan may have left."""
    entries = draw(_runs())
    kept = draw(st.lists(st.booleans(), min_size=len(entries), max_size=len(entries)))
    return entries, [entry for entry, keep in zip(entries, kept, strict=True) if keep]


# -- project ---------------------------------------------------------------------------------------


@given(_cuts())
def test_project_sends_no_orphan(cut: tuple[list[Entry], list[Entry]]) -> None:
    """At any cut, each call is answered exactly once, in the next message, and each result has its call."""
    messages = project(cut[1])
    for before, message in zip([None, *messages], [*messages, None], strict=True):
        calls = [call.id for call in before.calls] if isinstance(before, AssistantMessage) else []
        results = [item.call_id for item in message.results] if isinstance(message, UserMessage) else []
        assert results == calls


@given(_cuts())
def test_project_merges_adjacent_user_entries(cut: tuple[list[Entry], list[Entry]]) -> None:
    """At any cut, no two messages of the user stand side by side, and none is empty."""
    messages = project(cut[1])
    for one, two in pairwise(messages):
        assert not (isinstance(one, UserMessage) and isinstance(two, UserMessage))
    assert all(m.results or m.texts for m in messages if isinstance(m, UserMessage))


@given(_cuts())
def test_project_sends_no_empty_reply(cut: tuple[list[Entry], list[Entry]]) -> None:
    """At any cut, each reply has visible text or a call, and no text is blank."""
    for message in project(cut[1]):
        if isinstance(message, AssistantMessage):
            assert message.text or message.calls
            assert message.text == "" or message.text.strip()


@given(_cuts())
def test_project_keeps_all_words_in_order(cut: tuple[list[Entry], list[Entry]]) -> None:
    """What people and the engine said is sent once, in order, whatever becomes of calls."""
    spoken = [item.text for m in project(cut[1]) if isinstance(m, UserMessage) for item in m.texts]
    assert spoken == [entry.content for entry in cut[1] if entry.role == "user"]


@given(_runs())
def test_project_of_a_whole_run_leaves_nothing_out(entries: list[Entry]) -> None:
    """Uncut, every call and every observation is sent, in the order of the ledger."""
    messages = project(entries)
    results = [item.call_id for m in messages if isinstance(m, UserMessage) for item in m.results]
    assert results == [entry.call_id for entry in entries if entry.role == "tool"]
    assert results == [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.calls]


@given(_cuts())
def test_project_is_deterministic(cut: tuple[list[Entry], list[Entry]]) -> None:
    """The same entries, read back from the wire, give the same messages."""
    assert project([unwire(Entry, wire(entry)) for entry in cut[1]]) == project(cut[1])


def _shape(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [
        ("assistant", message.text, *(call.id for call in message.calls))
        if isinstance(message, AssistantMessage)
        else ("user", [item.call_id for item in message.results], [said.text for said in message.texts])
        for message in messages
    ]


@pytest.mark.parametrize(
    ("entries", "shape"),
    [
        ([], []),
        ([_said(0, "a"), _said(1, "b")], [("user", [], ["a", "b"])]),
        ([_reply(0, text="hi")], [("assistant", "hi")]),
        ([_said(0, "a"), _reply(1), _said(2, "b")], [("user", [], ["a", "b"])]),
        ([_reply(0, "x"), _said(1, "now"), _saw(2, "x")], [("assistant", "", "x"), ("user", ["x"], ["now"])]),
        ([_said(0, "a"), _reply(1, "x"), _said(2, "b")], [("user", [], ["a", "b"])]),
        ([_reply(0, "x", "y", text="t"), _saw(1, "y")], [("assistant", "t", "y"), ("user", ["y"], [])]),
        ([_reply(0, "x", text="t")], [("assistant", "t")]),
        ([_saw(0, "x")], []),
        ([_reply(0, "x"), _saw(1, "x"), _saw(2, "x")], [("assistant", "", "x"), ("user", ["x"], [])]),
        ([_reply(0, "x"), _reply(1, text="t"), _saw(2, "x")], [("assistant", "t")]),
    ],
)
def test_project_table(entries: list[Entry], shape: list[Any]) -> None:
    """Results come before words, drafts without anything visible vanish, orphans are never sent."""
    assert _shape(project(entries)) == shape


def test_project_keeps_what_belongs_to_a_message() -> None:
    """Attachments stay with their words, files and the error flag with their result, thinking as it was."""
    thinking = (Thinking(text="hm", signature="s"),)
    picture = (Attachment(media_type="image/png", data="AA=="),)
    reply = ModelReply(calls=(ParsedCall(tool="look"),), thinking=thinking)
    seen = ToolOutcome(content={"a": 1}, is_error=True, files=(BLOB,))
    entries = [
        user_entry(0, 1, 0, "see", picture),
        reply_entry(1, 1, 1, reply, ["x"]),
        observation_entry(2, 1, 1, "x", "look", seen),
    ]
    first, second, third = project(entries)
    assert first == UserMessage((), (UserText("see", picture),))
    assert isinstance(second, AssistantMessage)
    assert second.thinking == thinking
    assert third == UserMessage((Result("x", "look", {"a": 1}, True, (BLOB,)),), ())


# -- select ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "shown"),
    [
        (None, [0, 1, 2, 3]),
        ((), []),
        (((0, 4),), [0, 1, 2, 3]),
        (((0, 1), (3, 4)), [0, 3]),
        (((2, 99),), [2, 3]),
        (((2, 2),), []),
    ],
)
def test_select_table(ranges: Any, shown: list[int]) -> None:
    """A plan's half-open ranges of `seq`, in order; no ranges is the whole."""
    entries = [_said(seq) for seq in range(4)]
    assert [entry.seq for entry in select(entries, Plan(ranges=ranges))] == shown


# -- digests ---------------------------------------------------------------------------------------


@given(_runs())
def test_digest_chain_is_of_the_content(entries: list[Entry]) -> None:
    """The same entries, read back from the wire, have the same digests at every length."""
    again = [unwire(Entry, json.loads(json.dumps(wire(entry)))) for entry in entries]
    ledger = _ledger(entries)
    assert ledger.digests == _ledger(again).digests
    assert ledger.digests[0] == GENESIS
    assert len(set(ledger.digests)) == len(entries) + 1


_FULL = Entry(
    seq=0,
    kind="observation",
    role="tool",
    exchange=2,
    turn=3,
    content={"a": 1},
    calls=(),
    files=(BLOB,),
    spilled=BLOB,
    call_id="c",
    tool="t",
    control_kind="k",
    tokens_estimate=4,
    meta={"m": 1},
)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "user"},
        {"role": "user"},
        {"exchange": 3},
        {"turn": 4},
        {"content": {"a": 1.0}},
        {"content": {"a": "1"}},
        {"content": {"a": True}},
        {"content": {"a": 1, "b": None}},
        {"content": '{"a": 1}'},
        {"content": ""},
        {"content": None},
        {"thinking": ({"text": "x"},)},
        {"attachments": ({"name": "x"},)},
        {"calls": ({"id": "c", "tool": "t"},)},
        {"files": ()},
        {"spilled": None},
        {"call_id": "d"},
        {"tool": "u"},
        {"is_error": True},
        {"control_kind": None},
        {"tokens_estimate": 5},
        {"meta": {}},
    ],
    ids=str,
)
def test_digest_changes_with_any_field(change: dict[str, Any]) -> None:
    """Whatever field of an entry changes, its digest does."""
    changed = unwire(Entry, {**_FULL.model_dump(), **change})
    assert digest_after(GENESIS, changed) != digest_after(GENESIS, _FULL)


def test_digest_changes_with_what_was_before() -> None:
    """A digest is of the whole prefix, not of its last entry."""
    assert digest_after(GENESIS, _FULL) != digest_after("1" * 16, _FULL)


def test_digest_ignores_the_order_of_keys() -> None:
    """Key order is not content, at any depth; array order is."""
    one = _saw(0, "c", {"a": {"x": 1, "y": [1, 2]}, "b": 2})
    two = _saw(0, "c", {"b": 2, "a": {"y": [1, 2], "x": 1}})
    three = _saw(0, "c", {"b": 2, "a": {"y": [2, 1], "x": 1}})
    assert digest_after(GENESIS, one) == digest_after(GENESIS, two) != digest_after(GENESIS, three)


def test_digest_ignores_the_hash_seed(printed_by_seed: Callable[[str], set[str]]) -> None:
    """Every process computes the same digest."""
    code = (
        "from mainspring.workflows.ledger import *\n"
        "entry = user_entry(0, 1, 0, 'go', source='prompt', b=1, a={'x': 1, 'y': 2})\n"
        "print(digest_after(GENESIS, entry), project([entry]))"
    )
    assert len(printed_by_seed(code)) == 1


# -- entries ---------------------------------------------------------------------------------------


def test_entries_of_each_kind() -> None:
    """Each maker sets kind, role and what it was given, and estimates what the model will read."""
    said = user_entry(1, 2, 3, "four", source="steer")
    told = control_entry(1, 2, 3, "empty_reply", "[stop-guard] five")
    assert (said.kind, said.role, said.meta, said.tokens_estimate) == ("user", "user", {"source": "steer"}, 1)
    assert (told.kind, told.role, told.control_kind, told.tokens_estimate) == (
        "control",
        "user",
        "empty_reply",
        5,
    )
    assert (said.seq, said.exchange, said.turn) == (told.seq, told.exchange, told.turn) == (1, 2, 3)


def test_reply_entry_pairs_ids_with_calls() -> None:
    """The run's ids go to the calls in order; another number of ids is a defect of ours."""
    calls = (ParsedCall(tool="a", arguments={"x": 1}), ParsedCall(tool="b", raw="{{"))
    entry = reply_entry(0, 1, 1, ModelReply(text="t", calls=calls, text_blob=BLOB), ["r-1", "r-2"])
    assert [(call.id, call.tool, call.raw) for call in entry.calls] == [
        ("r-1", "a", None),
        ("r-2", "b", "{{"),
    ]
    assert (entry.role, entry.spilled) == ("assistant", BLOB)
    with pytest.raises(ValueError, match="longer"):
        reply_entry(0, 1, 1, ModelReply(calls=calls), ["r-1"])


@pytest.mark.parametrize(("text", "kept"), [(" \n\t", ""), ("", ""), (" a ", " a "), ("\u3000", "")])
def test_reply_entry_holds_no_blank_text(text: str, kept: str) -> None:
    """Blank text is no text: providers refuse it when it is sent back."""
    assert reply_entry(0, 1, 1, ModelReply(text=text), []).content == kept


# -- Ledger ----------------------------------------------------------------------------------------


def test_ledger_refuses_an_entry_out_of_sequence() -> None:
    """`seq` counts from 0 without gaps; anything else is a defect of ours."""
    ledger = _ledger([_said(0)])
    for seq in (0, 2):
        with pytest.raises(AssertionError, match=f"entry {seq} after 1"):
            ledger.append(_said(seq))
    assert ledger.length == 1


@given(_runs(), st.integers(0, 40))
def test_ledger_cut_is_as_if_never_appended(entries: list[Entry], length: int) -> None:
    """After a cut, entries, digests and reference are those of the prefix alone."""
    ledger = _ledger(entries)
    ledger.cut(length)
    prefix = _ledger(entries[:length])
    assert (ledger.entries, ledger.digests, ledger.ref) == (prefix.entries, prefix.digests, prefix.ref)


@given(_runs(), st.integers(1, 5), st.integers(1, 2_000))
def test_ledger_pages_hold_every_entry_once(entries: list[Entry], limit: int, bytes_max: int) -> None:
    """Paging on from what a page brought reads the whole, in order, whatever the bounds."""
    ledger = _ledger(entries)
    read: list[dict[str, Any]] = []
    while page := ledger.page(len(read), limit, bytes_max):
        assert len(page) <= limit
        read += page
    assert [unwire(Entry, item) for item in read] == entries


def test_ledger_page_is_bounded_in_bytes() -> None:
    """A page stops before its bytes exceed the bound, counted in UTF-8; one large entry still comes."""
    ledger = _ledger([_said(seq, "漢" * 1_000) for seq in range(10)])
    assert len(ledger.page(0, 100, 10_000)) == 3
    assert len(ledger.page(0, 100, 10)) == 1
    assert ledger.page(-5, 2) == ledger.page(0, 2)
    assert ledger.page(10, 5) == ledger.page(0, 0) == ledger.page(0, -1) == []
