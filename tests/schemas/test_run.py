from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

from mainspring.schemas.agent import AgentSpec
from mainspring.schemas.base import problems, unwire, wire
from mainspring.schemas.run import RunInput, RunResult, Spend

DOCUMENTED: dict[str, Any] = {
    "agent": "guide",
    "prompt": "Which module owns retries?",
    "lifetime": "single",
    "attended": True,
    "attachments": [],
    "criteria": [],
    "overrides": {"model": "deep", "budgets": {"turns": 40}},
    "metadata": {"ticket": "OPS-17"},
}


def test_run_input_reads_the_documented_shape() -> None:
    """The shape of the interfaces page is read; only what differs from the default is carried."""
    request = unwire(RunInput, DOCUMENTED)
    assert set(wire(request)) == {"agent", "prompt", "overrides", "metadata"}
    assert unwire(RunInput, wire(request)) == request


def test_run_input_takes_an_inline_agent() -> None:
    """An agent is a configured name or a whole specification."""
    request = unwire(RunInput, {"agent": {"instructions": "Be brief."}, "prompt": "go"})
    assert request.agent == AgentSpec(instructions="Be brief.")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"prompt": ""}, "prompt: the prompt is blank"),
        ({"prompt": " \n\u3000"}, "prompt: the prompt is blank"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"agent": None}, "agent"),
        ({"agent": {"colour": 1}}, "colour"),
        ({"lifetime": "forever"}, "'single' or 'conversation'"),
        ({"overrides": {"budgets": {"turns": 0}}}, "overrides.budgets.turns"),
        ({"overrides": {"settings": {"temperature": 3}}}, "overrides.settings.temperature"),
        ({"attachments": [{}] * 33}, "attachments"),
        ({"metadata": {str(n): "" for n in range(65)}}, "metadata"),
        ({"metadata": {"a": "x" * 2_049}}, "metadata.a"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"prompts": "go"}, "prompts"),
    ],
    ids=count(),
)
def test_run_input_names_what_is_wrong(changed: dict[str, Any], named: str) -> None:
    """A wrong input is refused with the field, the value and what is allowed."""
    with pytest.raises(ValidationError) as caught:
        unwire(RunInput, {**DOCUMENTED, **changed})
    assert named in problems(caught.value)


def test_run_result_is_written_whole() -> None:
    """The result that other languages read has the documented keys, also those at their default."""
    written = RunResult(outcome="completed", answer="yes").model_dump(mode="json")
    documented = {"outcome", "code", "answer", "output", "partial", "message", "spend"}
    documented |= {"presentations", "unmet", "exchanges"}
    assert documented <= set(written)
    assert set(Spend().model_dump()) >= {
        "turns",
        "model_calls",
        "tool_calls",
        "dollars",
        "wall_ms",
        "children",
    }
    assert unwire(RunResult, written) == RunResult(outcome="completed", answer="yes")
