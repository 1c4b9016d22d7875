"""What a process keeps of its runs is bounded, also where it never makes their model calls."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from mainspring.activities.transcript import MADE_MAX, ProcessCache
from mainspring.schemas.activities import ModelRequest
from mainspring.schemas.ledger import LedgerRef, NewEntry
from mainspring.schemas.tools import ToolOutcome
from mainspring.workflows.ledger import user_entry


def _held() -> int:
    gc.collect()
    # by its exact type: a stand-in of Temporal's sandbox raises at being asked what it is
    return sum(type(item) is ToolOutcome and item.content == "held" for item in gc.get_objects())


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


def test_bytes_of_results_are_bounded() -> None:
    """Large results of many runs take what the cache may take, not what they have."""
    cache = ProcessCache(bytes_max=1_000_000)
    for number in range(200):
        cache.put(f"run {number}", "ab12cd34-1", ToolOutcome(content="x" * 20_000))
    assert 0 < cache.size <= 1_000_000


class _Failing:
    """A run that cannot be asked."""

    async def transcript(self, start: int, limit: int) -> list[dict[str, Any]]:
        raise ApplicationError("nobody there")

    async def armed(self) -> dict[str, Any]:
        raise ApplicationError("nobody there")


async def test_bytes_are_counted_right_when_a_run_cannot_be_asked() -> None:
    """A failed assembly leaves the count as it is: what is evicted later was counted."""
    cache = ProcessCache(chains_max=1)
    known = NewEntry(seq=0, entry=user_entry(0, 1, 0, "x" * 1_000))
    wanted = LedgerRef(length=5, digest="0" * 16)
    request = ModelRequest(armed="a" * 16, call=0, turn=1, ledger=wanted, new=(known,))
    with pytest.raises(ApplicationError, match="nobody"):
        await cache.entries("one", "ab12cd34", request, _Failing())
    cache.put("two", "ab12cd34-1", ToolOutcome(content="held"))
    cache.put("three", "ab12cd34-1", ToolOutcome(content="held"))
    assert 0 < cache.size < 1_000
