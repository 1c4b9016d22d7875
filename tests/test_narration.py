"""Events as lines: what a person is told of a run."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest

from mainspring.narration import Narrator, line_of, repeated, stall_lines, why_offered
from mainspring.render import CallText
from mainspring.workflows import events
from mainspring.workflows.router import Offer

SAMPLES: dict[str, Any] = {
    "str": "text",
    "int": 3,
    "float": 0.5,
    "bool": True,
    "dict": {},
    "tuple": ("a note",),
}
KINDS: tuple[type[Any], ...] = get_args(events.Event)


def _event(kind: type[Any], *, whole: bool) -> dict[str, Any]:
    """An event as the query gives it: with every field, or with those alone that have no default."""
    given = {
        item.name: SAMPLES[str(item.type).partition("[")[0].partition(" ")[0]]
        for item in fields(kind)
        if whole or item.default is item.default_factory
    }
    return events.Journal().append(kind(**given), 1, "2026-01-01T00:00:00.000+00:00")


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "bare"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_line_of_takes_every_event(kind: type[Any], whole: bool) -> None:
    """Each event of a run has a line or none, also when what may be missing of it is missing."""
    line = line_of(_event(kind, whole=whole))
    assert line is None or line.strip()


def test_line_of_shows_an_event_of_a_later_version() -> None:
    """An event that this version does not know is shown with its fields."""
    event = {"seq": 1, "turn": 1, "at": "", "event": "Approved", "by": "somebody"}
    assert line_of(event) == "! Approved by=somebody"


CALLED: dict[str, Any] = {"seq": 4, "turn": 1, "at": "", "event": "ToolCompleted", "call_id": "a-1"}


@pytest.mark.parametrize(
    ("event", "call", "line"),
    [
        (
            {"tool": "files/read", "status": "ok", "ms": 18, "bytes": 1227},
            CallText({"path": "README.md"}, "# Mainspring"),
            "✓ files/read README.md · 18 ms · 1,227 bytes",
        ),
        (
            {"tool": "price", "status": "error", "ms": 3, "bytes": 30},
            CallText({"sku": "zz"}, "ValueError: no such\nsku: zz"),
            "✗ price: ValueError: no such sku: zz",
        ),
        (
            {"tool": "price", "status": "not_run", "ms": 0, "bytes": 1},
            CallText({"sku": "zz", "count": 2}),
            '– price {"sku": "zz", "count": 2} not run · 0 ms · 1 byte',
        ),
    ],
    ids=["ok", "error", "not run"],
)
def test_line_of_a_call_says_what_was_asked_and_why_it_failed(
    event: dict[str, Any], call: CallText, line: str
) -> None:
    """With the ledger's text at hand, a call's line has its arguments, and a failure's its reason."""
    assert line_of({**CALLED, **event}, call) == line


def _told(*events: dict[str, Any]) -> list[str]:
    narrator = Narrator()
    return [line for event in events for line in narrator.lines({"seq": 0, "turn": 1, "at": "", **event})]


FAILED = {"event": "ModelFailed", "model": "gpt", "error": "model_misconfigured", "message": "no key"}
ENDED = {"event": "ExchangeEnded", "exchange": 1, "outcome": "model", "message": "no key"}


def test_end_of_a_run_is_left_to_whoever_tells_its_result() -> None:
    """A single run that fails says nothing of it twice: not the call, nor its exchange, nor its end."""
    started = {"event": "RunStarted", "agent": "a", "model": "m", "lifetime": "single", "tools": 1}
    spent = {"event": "BudgetCheckpoint", "tokens": 0, "calls": 0}
    told = _told(started, FAILED, spent, ENDED, {"event": "Finished", "outcome": "model"})
    assert told == ["agent a · model m · 1 tool"]


def test_end_of_an_exchange_in_a_conversation_is_told_at_once() -> None:
    """A conversation goes on after an exchange that failed, so its one line must not be held back."""
    assert _told(FAILED, ENDED) == ["! exchange 1 ended: model: no key"]


def test_failure_with_more_to_come_is_told_before_it() -> None:
    """What was held back as a possible end is told, in order, when the run goes on after all."""
    assert _told(FAILED, {"event": "Paused"}) == ["✗ model gpt: model_misconfigured: no key", "! paused"]


def test_missing_agent_and_model_are_a_dash() -> None:
    """A run that was refused before it had a model does not show Python's None."""
    started = {"event": "RunStarted", "agent": None, "model": None, "tools": 0}
    assert _told(started) == ["agent – · model – · 0 tools"]


# --- the guard, the router, drafts ---


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {
                "event": "Nudged",
                "reason": "repeated_actions",
                "period": 2,
                "repeats": 3,
                "reflections_left": 0,
            },
            "! nudged: the same 2 turns came 3 times in a row",
        ),
        (
            {"event": "Nudged", "reason": "error_streak", "period": 0, "repeats": 2, "reflections_left": 1},
            "! nudged: every call of the last 2 turns failed",
        ),
        (
            {"event": "Stalled", "period": 2, "repeats": 5},
            "✗ stalled: the same 2 turns came 5 times in a row",
        ),
        (
            {"event": "ToolsSelected", "offered": 12, "universe": 1240, "by_source": {}},
            "offered 12 of 1,240 tools",
        ),
        ({"event": "ToolsSelected", "offered": 12, "universe": 12, "by_source": {}}, None),
        (
            {"event": "ComposeChecked", "call_id": "c", "bytes": 1200, "valid": True},
            "✓ draft valid · 1,200 bytes",
        ),
        (
            {"event": "ComposeChecked", "call_id": "c", "bytes": 9, "valid": False, "findings": 2},
            "✗ draft not valid · 2 findings · 9 bytes",
        ),
        (
            {"event": "ComposeChecked", "call_id": "c", "bytes": 9, "stage": "unavailable"},
            "? draft not checked (unavailable) · 9 bytes",
        ),
    ],
    ids=lambda value: value["event"] if isinstance(value, dict) else "",
)
def test_line_of_a_decision_says_what_was_seen(event: dict[str, Any], line: str | None) -> None:
    """What the engine decided is told in one line, with the counts that it went by."""
    assert line_of({"seq": 1, "turn": 1, "at": "", **event}) == line


def test_narrowed_offer_is_told_when_it_changes() -> None:
    """The same selection turn after turn is one line, and one that is wide again is none."""
    offers = [(12, 40), (12, 40), (13, 40), (40, 40), (12, 40)]
    told = _told(
        *(
            {"event": "ToolsSelected", "offered": offered, "universe": size, "by_source": {}}
            for offered, size in offers
        )
    )
    assert told == ["offered 12 of 40 tools", "offered 13 of 40 tools", "offered 12 of 40 tools"]


def test_stall_is_told_with_the_end_of_its_run() -> None:
    """What ended a run is said once, by whoever tells its result."""
    stalled = {"event": "Stalled", "period": 1, "repeats": 5}
    ended = {
        "event": "ExchangeEnded",
        "exchange": 1,
        "outcome": "stalled",
        "code": "NIKA-467",
        "message": "m",
    }
    started = {"event": "RunStarted", "agent": "a", "model": "m", "lifetime": "single", "tools": 1}
    assert _told(started, stalled, ended, {"event": "Finished", "outcome": "stalled"})[1:] == []
    assert _told(stalled, ended) == ["! exchange 1 ended: stalled (NIKA-467): m"]


def test_stall_lines_hold_period_repeats_and_each_step() -> None:
    """A person sees which turns came again, one a line."""
    assert repeated(1, 5) == "the same turn came 5 times in a row"
    assert stall_lines(2, 5, ("read a", "read b")) == (
        "the same 2 turns came 5 times in a row, with the same results:\n  read a\n  read b"
    )


def test_every_reason_of_the_router_has_words() -> None:
    """A reason that a person reads is a sentence; one of a later version is shown as it is."""
    reasons = get_args(get_type_hints(Offer)["why"])
    assert len(reasons) >= 4
    assert all(" " in why_offered(why) for why in reasons)
    assert why_offered("later") == "later"


# --- questions ---

ASKED: dict[str, Any] = {
    "event": "QuestionAsked",
    "question_id": "q",
    "question": "Which\ncolour?",
    "expires": "",
}


def _closed(status: str, call: str) -> list[dict[str, Any]]:
    shut = {"event": "QuestionClosed", "question_id": "q", "status": status, "waited_ms": 12_000}
    done = {
        "event": "ToolCompleted",
        "call_id": "q",
        "tool": "nika:ask",
        "status": call,
        "ms": 12_000,
        "bytes": 4,
    }
    return [ASKED, shut, done]


@pytest.mark.parametrize(
    ("status", "call", "line"),
    [
        ("answered", "ok", "✓ answered · after 12.0 s"),
        ("expired", "error", "! nobody answered in time · after 12.0 s"),
        ("withdrawn", "interrupted", "– question withdrawn · after 12.0 s"),
        ("unattended", "error", "! the question was put to nobody: the run is unattended"),
    ],
)
def test_question_and_what_became_of_it_are_a_line_each(status: str, call: str, line: str) -> None:
    """The event of the question and the observation of its call do not both tell its end."""
    assert _told(*_closed(status, call)) == ["? Which colour?", line]


def test_answer_is_shown_where_it_is_known() -> None:
    """Whoever looks on reads what somebody else has answered."""
    done = _closed("answered", "ok")[-1]
    line = line_of({"seq": 1, "turn": 1, "at": "", **done}, CallText({"question": "Which?"}, "blue"))
    assert line == "✓ answered: blue · after 12.0 s"


def test_question_that_could_not_be_asked_is_a_failed_call() -> None:
    """Arguments that the checks refuse are told as with any tool: no question was ever asked."""
    event = {**_closed("", "refused")[-1], "seq": 1, "turn": 1, "at": "", "ms": 0}
    assert (line_of(event) or "").startswith("✗ nika:ask refused")
