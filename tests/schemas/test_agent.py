from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

from mainspring.schemas.agent import AgentSpec, BudgetPatch, BudgetSpec, LimitSpec, ModelSettings, Overrides
from mainspring.schemas.base import Closed, unwire, wire

HISTORIC: dict[str, Any] = {
    "instructions": "Be brief.",
    "model": "deep",
    "tools": ["files/*"],
    "budgets": {"turns": 30, "tokens": 100_000, "dollars": 1.0, "wall": 600.0, "calls": 100},
    "settings": {"temperature": 0.0},
    "output_schema": {"type": "object"},
    "guard": {"nudge_after": 3, "stall_after": 5, "max_reflections": 1},
    "routing": {"threshold": 24, "top": 12, "pin": [], "sticky": False},
    "gates": {"profile": "auto", "max_blocks": 2, "verification": "optional", "stop_hooks": []},
    "context": {"history_tokens": None, "low_water": 0.6, "compaction": "none"},
    "limits": {"parallel_calls": 8, "spill_bytes": 16384, "strict_tools": False, "completion": "implicit"},
    "intents": {"money": {"phrases": ["pay"], "domains": ["billing"]}},
}


def test_agent_spec_reads_the_documented_shape() -> None:
    """The shape of the interfaces page is read, and what is at its default is not written again."""
    spec = unwire(AgentSpec, HISTORIC)
    written = wire(spec)
    assert set(written) == {
        "instructions",
        "model",
        "tools",
        "budgets",
        "settings",
        "output_schema",
        "intents",
    }
    assert unwire(AgentSpec, written) == spec


def test_agent_spec_of_nothing_is_an_agent() -> None:
    """Every field has a default: 50 turns, no other ceiling."""
    assert wire(AgentSpec()) == {}
    assert AgentSpec().budgets == BudgetSpec(turns=50)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (BudgetSpec, {"turns": 0}),
        (BudgetSpec, {"turns": 100_001}),
        (BudgetSpec, {"turns": 1.5}),
        (BudgetSpec, {"turns": None}),
        (BudgetSpec, {"tokens": 0}),
        (BudgetSpec, {"tokens": 10**16}),
        (BudgetSpec, {"dollars": 0}),
        (BudgetSpec, {"dollars": float("nan")}),
        (BudgetSpec, {"dollars": float("inf")}),
        (BudgetSpec, {"dollars": 1e300}),
        (BudgetSpec, {"wall": 0}),
        (BudgetSpec, {"wall": "10q"}),
        (BudgetSpec, {"wall": float("inf")}),
        (BudgetSpec, {"calls": 0}),
        (BudgetSpec, {"budget": 1}),
        (BudgetPatch, {"turns": 0}),
        (BudgetPatch, {"dollars": -1}),
        (LimitSpec, {"model_timeout": float("inf")}),
        (LimitSpec, {"model_timeout": "99999999999d"}),
        (LimitSpec, {"idle_timeout": 0}),
        (LimitSpec, {"cancel_grace": 61}),
        (LimitSpec, {"parallel_calls": 0}),
        (LimitSpec, {"message_bytes": 1_000_001}),
        (ModelSettings, {"temperature": 2.1}),
        (ModelSettings, {"temperature": float("nan")}),
        (ModelSettings, {"top_p": 0}),
        (AgentSpec, {"instructions": "漢" * 87_382}),
        (AgentSpec, {"tools": "files/*"}),
        (Overrides, {"model": 5}),
    ],
    ids=count(),
)
def test_what_would_harm_a_run_is_refused(kind: type[Closed], fields: dict[str, Any]) -> None:
    """A bound that no run could keep, or that no clock could hold, is refused before anything is paid for."""
    with pytest.raises(ValidationError) as caught:
        unwire(kind, fields)
    assert next(iter(fields)) in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (BudgetSpec, {"turns": 1}),
        (BudgetSpec, {"turns": 100_000, "tokens": 1, "dollars": 0.01, "wall": "1ms", "calls": 1}),
        (LimitSpec, {"cancel_grace": 0, "model_timeout": "10m"}),
        (ModelSettings, {"temperature": 0}),
        (ModelSettings, {"temperature": 2}),
        (AgentSpec, {"instructions": "漢" * 87_381}),
        (AgentSpec, {"output_schema": False}),
    ],
    ids=count(),
)
def test_what_stands_at_its_bound_is_taken(kind: type[Closed], fields: dict[str, Any]) -> None:
    """A bound is the last value that is allowed."""
    assert unwire(kind, wire(unwire(kind, fields))) == unwire(kind, fields)
