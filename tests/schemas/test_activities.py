from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

from mainspring.schemas.activities import Armed, ModelReply, ModelRequest, Usage
from mainspring.schemas.agent import AgentSpec, ModelSpec
from mainspring.schemas.base import unwire, wire
from mainspring.schemas.ledger import LedgerRef
from mainspring.schemas.tools import ParsedCall


def _request(length: int, turn: int) -> ModelRequest:
    ledger = LedgerRef(length=length, digest="d" * 16)
    return ModelRequest(armed="a" * 16, call=turn, turn=turn, ledger=ledger)


def test_model_request_is_constant_in_size() -> None:
    """A request on turn 10,000 costs a few digits more than one on turn 10."""
    small, large = (json.dumps(wire(_request(*at))) for at in ((20, 10), (20_000, 10_000)))
    assert len(large) - len(small) < 12
    assert len(large) < 200


@pytest.mark.parametrize(
    "value",
    [
        _request(0, 1),
        ModelReply(),
        ModelReply(text="t", calls=(ParsedCall(tool="t"),), usage=Usage(), output=0, output_problem=""),
        Usage(input_tokens=1, dollars=0.0),
        Armed(
            agent="a",
            spec=AgentSpec(),
            models=(ModelSpec(name="m"),),
            digest="d",
            tools=None,
            catalog_pages=2,
        ),
        Armed(agent="a", spec=AgentSpec(), models=(), digest="d"),
    ],
    ids=count(),
)
def test_wire_form_stands_for_the_value(value: Any) -> None:
    """What is written is read back equal: unknown and none, nothing and elsewhere are told apart."""
    assert unwire(type(value), wire(value)) == value


@pytest.mark.parametrize(
    "fields",
    [
        {"input_tokens": -1},
        {"dollars": -0.01},
        {"dollars": float("nan")},
        {"dollars": float("inf")},
        {"tokens": 5},
    ],
    ids=count(),
)
def test_usage_never_gives_anything_back(fields: dict[str, Any]) -> None:
    """A negative or endless bill does not decode: budgets only ever decrease."""
    with pytest.raises(ValidationError):
        unwire(Usage, fields)
