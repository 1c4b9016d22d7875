from __future__ import annotations

import dataclasses
import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.activities import Armed, ModelReply
from mainspring.schemas.agent import AgentSpec, BudgetSpec, GuardSpec, ModelSpec
from mainspring.schemas.base import wire
from mainspring.schemas.ledger import Plan
from mainspring.schemas.run import RunInput
from mainspring.schemas.tools import BlobRef, ParsedCall, ToolDeclaration, ToolDefinition, ToolOutcome
from mainspring.workflows import views
from mainspring.workflows.budget import Meter
from mainspring.workflows.events import Journal
from mainspring.workflows.guard import Guard, fresh
from mainspring.workflows.ledger import Ledger, observation_entry, reply_entry, user_entry
from mainspring.workflows.messages import FollowUp, Inbox, Steer
from mainspring.workflows.questions import Question, Questions
from mainspring.workflows.router import Offer, everything, universe
from mainspring.workflows.views import TurnRecord

QUERY_BYTES = 2_097_152
LOOK = ToolDefinition(declaration=ToolDeclaration(name="look", effects="read"))


@dataclasses.dataclass
class _Run:
    """What views read of a run."""

    input: RunInput | None = None
    armed: Armed | None = None
    tools: dict[str, ToolDeclaration] = dataclasses.field(default_factory=dict)
    budget: BudgetSpec = dataclasses.field(default_factory=BudgetSpec)
    meter: Meter = dataclasses.field(default_factory=Meter)
    ledger: Ledger = dataclasses.field(default_factory=Ledger)
    inbox: Inbox = dataclasses.field(default_factory=Inbox)
    journal: Journal = dataclasses.field(default_factory=Journal)
    turns: list[TurnRecord] = dataclasses.field(default_factory=list)
    exchange: int = 0
    offer: Offer | None = None
    status: str = "thinking"
    awaiting: str = "none"
    outcome: str | None = None
    last_text: str = ""
    paused: bool = False
    finishing: bool = False
    in_flight: dict[str, str] = dataclasses.field(default_factory=dict)
    questions: Questions = dataclasses.field(default_factory=Questions)
    guard: Guard | None = None


def _armed(**fields: Any) -> Armed:
    models = (ModelSpec(name="default"),)
    return Armed(
        **{
            "agent": "guide",
            "spec": AgentSpec(instructions="Be brief."),
            "models": models,
            "digest": "d" * 16,
            "tools": (LOOK,),
            **fields,
        }
    )


def _run(text: str = "seen") -> _Run:
    """A run after two turns: a call, its observation, an answer."""
    run = _Run(
        RunInput(agent="guide", prompt="go", metadata={"t": "1"}), _armed(), {"look": LOOK.declaration}
    )
    run.exchange, run.offer, run.last_text = 1, everything(universe(list(run.tools.values()))), "done"
    ledger = run.ledger
    ledger.append(user_entry(0, 1, 0, "go"))
    for turn in (1, 2):
        run.meter = run.meter.turn()
        run.turns.append(TurnRecord(turn, 1, ledger.ref, Plan(), run.offer, "default", [f"verdict {turn}"]))
        calls = (ParsedCall(tool="look"),) if turn == 1 else ()
        ledger.append(
            reply_entry(ledger.length, 1, turn, ModelReply(text="t", calls=calls), ["c0"][: len(calls)])
        )
        if calls:
            ledger.append(observation_entry(2, 1, 1, "c0", "look", ToolOutcome(content=text)))
    return run


# -- state -----------------------------------------------------------------------------------------


def test_state_of_a_run_that_has_not_begun() -> None:
    """The query answers before anything is known, with the same keys as later."""
    early = views.state(_Run())
    assert early.keys() == views.state(_run()).keys()
    assert (early["agent"], early["model"], early["turn"], early["last_text"]) == (None, None, 0, "")


def test_state_shows_the_run() -> None:
    """Status, spend, what is left, the offer, what is queued."""
    run = _run()
    run.inbox.put(FollowUp("later"))
    run.inbox.put(Steer("now"))
    state = views.state(run)
    assert (state["agent"], state["model"], state["turn"], state["exchange"]) == ("guide", "default", 2, 1)
    assert state["left"]["turns"] == 48
    assert state["offered"] == {"count": 1, "universe": 1, "why": "small", "names": "all"}
    assert [(item["number"], item["kind"]) for item in state["queued"]] == [(2, "steer"), (1, "follow_up")]


def test_state_is_bounded_and_plain_json() -> None:
    """However much was said and queued, the answer stays below what a query may return."""
    run = _run()
    run.last_text = "🍸" * 1_000_000
    for _ in range(1_000):
        run.inbox.put(Steer("漢" * 100_000))
        run.inbox.put(FollowUp("漢" * 100_000))
    assert len(json.dumps(views.state(run), allow_nan=False, ensure_ascii=False).encode()) < 200_000


@pytest.mark.parametrize(("request_agent", "name"), [("guide", "guide"), (AgentSpec(), "inline")])
def test_agent_name(request_agent: Any, name: str) -> None:
    """A configured agent has its name, an inline one has none."""
    assert views.agent_name(RunInput(agent=request_agent, prompt="go")) == name


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_with_wall_never_runs_back(before: int, later: int) -> None:
    """Wall time only grows, and nothing else changes."""
    meter = Meter(turns=3, wall_ms=before)
    assert views.with_wall(meter, later) == dataclasses.replace(meter, wall_ms=max(before, later))


# -- details ---------------------------------------------------------------------------------------


def test_details_say_where_the_run_is() -> None:
    """Status, what it waits for, turns, spend, the last text; short."""
    run = _run()
    run.status, run.awaiting = "waiting", "follow_up"
    run.meter = dataclasses.replace(run.meter, nano_dollars=12_300_000, output_tokens=7)
    run.last_text = "two\nlines " * 1_000
    details = views.details(run)
    assert details.startswith("**waiting** · waiting for follow_up")
    assert "turn 2 of 50 · 7 tokens, 0 calls, $0.0123" in details
    assert len(details) < 500


# -- arguments of queries --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5),
        (0, 0),
        (-3, 0),
        (2.9, 2),
        (True, 0),
        (None, 0),
        ("5", 0),
        ([], 0),
        (float("nan"), 0),
        (float("inf"), 10**15),
        (10**400, 10**15),
    ],
    ids=count(),
)
def test_number_table(value: Any, number: int) -> None:
    """A count from whatever a caller gave."""
    assert views.number(value) == number


@pytest.mark.parametrize(
    ("value", "window"),
    [
        (None, (0, 200)),
        (7, (7, 200)),
        ({}, (0, 200)),
        ({"from": 3}, (3, 200)),
        ({"from": 3, "limit": 4}, (3, 4)),
        ({"limit": -1}, (0, 0)),
    ],
    ids=count(),
)
def test_window_table(value: Any, window: tuple[int, int]) -> None:
    """A start and a limit, each with its default."""
    assert views.window(value) == window


def test_window_names_an_unknown_key() -> None:
    """A key that is not known is an error that names it."""
    with pytest.raises(ValueError, match=r"'from' and 'limit', not \['to'\]"):
        views.window({"from": 1, "to": 2})


# -- catalog ---------------------------------------------------------------------------------------


def test_catalog_serves_what_was_recorded() -> None:
    """The definitions under their digest, or without one; another digest is an error."""
    run = _run()
    assert views.catalog(run, None) == views.catalog(run, "d" * 16)
    assert views.catalog(run, None)["tools"] == [wire(LOOK)]
    with pytest.raises(ValueError, match="dddd"):
        views.catalog(run, "e" * 16)


def test_catalog_before_and_beyond() -> None:
    """Before arming there is none; one that is in the blob store is referred to."""
    assert views.catalog(_Run(), "any") == {"digest": None, "tools": []}
    blob = BlobRef(digest="blake2b:0", size=9)
    answer = views.catalog(_Run(armed=_armed(tools=None, catalog_blob=blob)), None)
    assert (answer["tools"], answer["blob"]) == (None, wire(blob))


# -- explain ---------------------------------------------------------------------------------------


def test_explain_rebuilds_a_turns_request() -> None:
    """What the turn's model call was sent, from the ledger as it was then, and its verdicts."""
    first, second = views.explain(_run(), 1), views.explain(_run(), None)
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert second["messages"][2]["results"][0]["content"] == "seen"
    assert (second["turn"], second["verdicts"], second["instructions"]) == (2, ["verdict 2"], "Be brief.")
    assert second["offered"]["names"] == ["look"]


@pytest.mark.parametrize(
    ("turns", "asked", "told"), [(0, None, "no turn"), (2, 3, "turns 1 to 2"), (2, "x", "no turn 'x'")]
)
def test_explain_names_what_is_known(turns: int, asked: Any, told: str) -> None:
    """A turn that is not there is an error that says which are."""
    run = _run()
    del run.turns[turns:]
    with pytest.raises(ValueError, match=told):
        views.explain(run, asked)


def test_explain_names_tools_of_a_catalog_in_the_blob_store() -> None:
    """The names offered are those of the run, wherever the definitions lie."""
    run = _run()
    run.armed = _armed(tools=None)
    assert views.explain(run, None)["offered"]["names"] == ["look"]


def test_explain_is_bounded() -> None:
    """The newest messages that fit, counted in UTF-8, and how many were left out."""
    run = _run(text="漢" * 600_000)
    run.tools = {f"{n:05}" + "n" * 250: LOOK.declaration for n in range(10_000)}
    run.armed = _armed(spec=AgentSpec(instructions="i" * 262_144))
    answer = views.explain(run, None)
    assert len(json.dumps(answer, ensure_ascii=False).encode()) < QUERY_BYTES
    assert (len(answer["messages"]), answer["left_out"]) == (0, 3)
    assert views.explain(_run(), None)["left_out"] == 0


def test_state_shows_what_the_run_asks() -> None:
    """A question that waits is in the state with its times, and in the details; an answered one is not."""
    questions = Questions()
    for id in ("q-1", "q-2"):
        questions.ask(Question(id, f"Which city? {id}", ("Oslo",), 0, 1_000_000_000))
    questions.answer("q-2", "Oslo", 1)
    run = _Run(questions=questions)
    assert views.state(run)["questions"] == [
        {
            "question_id": "q-1",
            "question": "Which city? q-1",
            "options": ["Oslo"],
            "asked": "1970-01-01T00:00:00.000+00:00",
            "expires": "1970-01-01T00:00:01.000+00:00",
        }
    ]
    assert "**asks:** Which city? q-1" in views.details(run)
    assert "q-2" not in views.details(run)


def test_state_shows_the_guard() -> None:
    """A run with a guard shows what it has seen; one that was armed before there was one shows none."""
    assert views.state(_Run())["guard"] is None
    shown = views.state(_Run(guard=fresh(GuardSpec(max_reflections=2))))["guard"]
    assert (shown["reflections_left"], shown["nudges"]) == (2, 0)
