"""A run's argument, read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.agent import AgentSpec
from mainspring.schemas.run import RunInput
from mainspring.workflows.messages import Rejected
from mainspring.workflows.run_input import DEPTH_MAX, read_input

ASKED = {"agent": "a", "prompt": "go"}


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize("agent", ["a", {"instructions": "x"}])
def test_read_input_gives_what_was_asked(agent: Any) -> None:
    """A name stays a name, and an object becomes an inline specification."""
    read = read_input([{**ASKED, "agent": agent}])
    assert isinstance(read, RunInput)
    assert isinstance(read.agent, str if agent == "a" else AgentSpec)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"promt": 1}, "promt: unknown key; did you mean 'prompt'?"),
        ({"zzz": 1}, "zzz: unknown key; known: agent, attachments"),
        ({"overrides": {"modle": "x"}}, "overrides.modle: unknown key; did you mean 'model'?"),
        (
            {"overrides": {"budgets": {"turn": 1}}},
            "overrides.budgets.turn: unknown key; did you mean 'turns'?",
        ),
        ({"agent": {"toolz": []}}, "agent.AgentSpec.toolz: unknown key; did you mean 'tools'?"),
        (
            {"agent": {"limits": {"depht": 1}}},
            "agent.AgentSpec.limits.depht: unknown key; did you mean 'depth'?",
        ),
        (
            {"agent": {"intents": {"x": {"phrase": []}}}},
            "intents.x.phrase: unknown key; did you mean 'phrases'?",
        ),
        ({"attachments": [{"nam": "x"}]}, "attachments.0.nam: unknown key; did you mean 'name'?"),
        ({"criteria": [{"x": float("nan")}]}, "criteria.0.x: nan is not a number"),
        ({"overrides": {"settings": {"temperature": float("inf")}}}, "overrides.settings.temperature: inf"),
        ({"criteria": nested(DEPTH_MAX)}, f"it nests deeper than {DEPTH_MAX} levels"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_read_input_names_what_is_wrong_and_what_is_known(more: dict[str, Any], said: str) -> None:
    """One sentence with the place, and the key that was meant or those that there are."""
    read = read_input([{**ASKED, **more}])
    assert isinstance(read, Rejected)
    assert said in read.reason


def test_read_input_of_an_inline_agent_says_nothing_of_names() -> None:
    """An object is no misspelt name: the branch that was not meant is left out."""
    read = read_input([{**ASKED, "agent": {"toolz": []}}])
    assert isinstance(read, Rejected)
    assert "valid string" not in read.reason


def test_read_input_takes_nesting_up_to_its_bound() -> None:
    """The bound itself is allowed."""
    assert isinstance(read_input([{**ASKED, "criteria": nested(DEPTH_MAX - 1)}]), RunInput)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.lists(
        VALUES | st.fixed_dictionaries({"agent": VALUES, "prompt": VALUES, "overrides": VALUES}), max_size=2
    )
)
def test_read_input_is_total_and_brief(args: list[Any]) -> None:
    """Whatever is given, there is an input or a reason of bounded length."""
    read = read_input(args)
    assert isinstance(read, RunInput) or 0 < len(read.reason) < 4_000
