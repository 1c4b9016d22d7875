"""What a process keeps of its runs is bounded, also where it never makes their model calls."""

from __future__ import annotations

import gc

from mainspring.activities.transcript import MADE_MAX, ProcessCache
from mainspring.schemas.tools import ToolOutcome


def _held() -> int:
    gc.collect()
    return sum(isinstance(item, ToolOutcome) and item.content == "held" for item in gc.get_objects())


def _put(cache: ProcessCache, workflow_id: str, number: int) -> None:
    cache.put(workflow_id, f"ab12cd34-{number}", ToolOutcome(content="held"))


def test_results_of_a_run_whose_model_is_called_elsewhere_are_bounded() -> None:
    """A process that only runs the tools of a long run keeps the newest of their results."""
    cache = ProcessCache()
    for number in range(10 * MADE_MAX):
        _put(cache, "one", number)
    assert _held() == MADE_MAX


def test_runs_whose_model_is_called_elsewhere_are_bounded() -> None:
    """A process that only runs tools keeps the newest of the runs that it ran them for."""
    cache = ProcessCache(chains_max=10)
    for number in range(100):
        _put(cache, f"run {number}", 1)
    assert _held() == 10
