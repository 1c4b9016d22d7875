from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.workflows import events
from mainspring.workflows.events import Journal

AT = "2024-01-02T03:04:05.000+00:00"


def _journal(number: int, kept: int = 20_000, text: str = "x") -> Journal:
    journal = Journal(kept=kept)
    for turn in range(number):
        journal.append(events.SignalRejected("steer", text), turn, AT)
    return journal


def test_every_event_is_named_in_the_module() -> None:
    """The union, `__all__` and the classes of the module name the same events."""
    union = {kind.__name__ for kind in get_args(events.Event)}
    classes = {
        name for name, kind in vars(events).items() if dataclasses.is_dataclass(kind) and kind is not Journal
    }
    assert union == classes == set(events.__all__) - {"Journal", "Event", "instant"}


@pytest.mark.parametrize("kind", get_args(events.Event), ids=lambda kind: kind.__name__)
def test_every_event_is_frozen_and_documented(kind: type) -> None:
    """An event is a value, and says when it happens."""
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert kind.__doc__
    assert not kind.__doc__.startswith(kind.__name__)


def test_append_writes_the_record() -> None:
    """Number, turn, time and name, then the fields that are known; a tuple becomes a list."""
    record = Journal().append(events.RunStarted("guide", notes=("a", "b")), 0, AT)
    assert record == {
        "seq": 0,
        "turn": 0,
        "at": AT,
        "event": "RunStarted",
        "agent": "guide",
        "lifetime": "single",
        "tools": 0,
        "notes": ["a", "b"],
    }


def test_append_leaves_out_only_what_is_unknown() -> None:
    """None is left out; 0, False and the empty text are kept."""
    record = Journal().append(events.ToolCompleted("", "t", "ok"), 3, AT)
    assert record["call_id"] == ""
    assert (record["ms"], record["spilled"]) == (0, False)
    assert "code" not in Journal().append(events.Finished("completed"), 3, AT)


def test_append_bounds_what_an_event_says() -> None:
    """However much a model or a provider wrote, a record stays small."""
    started = events.RunStarted("x" * 100_000, notes=("n" * 100_000,) * 1_000)
    record = Journal().append(started, 0, AT)
    assert len(json.dumps(record)) < 500_000
    assert record["agent"].endswith("…")
    assert len(Journal().append(events.SignalRejected("s", "r" * 4_096), 0, AT)["reason"]) == 4_096


@given(st.integers(0, 60), st.integers(1, 20))
def test_journal_numbers_without_gaps_and_keeps_the_newest(number: int, kept: int) -> None:
    """Events count from 0; the newest `kept` of them can be read."""
    journal = _journal(number, kept)
    assert journal.next_seq == number
    assert [record["seq"] for record in journal.page(0)] == list(range(max(0, number - kept), number))


@given(st.integers(0, 40), st.integers(1, 20), st.integers(-5, 50), st.integers(1, 600))
def test_journal_pages_hold_every_kept_event_once(number: int, kept: int, start: int, bytes_max: int) -> None:
    """Reading on from the last event of a page reads all that are kept from `start`, in order."""
    journal = _journal(number, kept)
    read: list[int] = []
    at = start
    while page := journal.page(at, bytes_max):
        read += [record["seq"] for record in page]
        at = read[-1] + 1
    assert read == list(range(max(0, start, number - kept), number))


@pytest.mark.parametrize("text", ["x", "漢", "🍸"])
def test_journal_page_is_bounded_in_bytes(text: str) -> None:
    """A page stays below its bound counted in UTF-8, whatever the script; one large event still comes."""
    journal = _journal(1_000, text=text * 4_000)
    page = journal.page(0)
    assert len(json.dumps(page, ensure_ascii=False).encode()) < events.PAGE_BYTES + 2 * len(page)
    assert 1 < len(page) < 1_000
    assert len(journal.page(0, 1)) == 1


def test_journal_is_a_function_of_what_was_appended() -> None:
    """The same events, appended again, give the same records (replay)."""
    records: list[Any] = [_journal(5).page(0) for _ in range(2)]
    assert records[0] == records[1]
