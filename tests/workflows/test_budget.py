from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.activities import Usage
from mainspring.schemas.agent import COUNT_MAX, DOLLARS_MAX, TURNS_MAX, BudgetPatch, BudgetSpec
from mainspring.schemas.base import SECONDS_MAX, unwire, wire
from mainspring.workflows.budget import (
    Exhausted,
    Meter,
    Within,
    check,
    check_batch,
    extend,
    left,
    wall_ms,
)

COUNTS = st.integers(0, 10_000)
DOLLARS = st.floats(0, 100)
USAGES = st.none() | st.builds(
    Usage, input_tokens=COUNTS, output_tokens=COUNTS, cached_tokens=COUNTS, dollars=st.none() | DOLLARS
)
CEILINGS = {
    "turns": st.integers(1, TURNS_MAX),
    "tokens": st.none() | st.integers(1, COUNT_MAX),
    "dollars": st.none() | st.floats(0, DOLLARS_MAX, exclude_min=True),
    "wall": st.none() | st.floats(0, SECONDS_MAX, exclude_min=True),
    "calls": st.none() | st.integers(1, COUNT_MAX),
}
BUDGETS = st.builds(BudgetSpec, **CEILINGS)
PATCHES = st.builds(BudgetPatch, **{**CEILINGS, "turns": st.none() | CEILINGS["turns"]})
METERS = st.builds(
    Meter,
    exchange_turns=COUNTS,
    tool_calls=COUNTS,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cached_tokens=COUNTS,
    nano_dollars=st.none() | st.integers(0, 10**18),
    wall_ms=st.integers(0, 10**9),
)
STEPS: st.SearchStrategy[Callable[[Meter], Meter]] = (
    st.just(Meter.turn)
    | COUNTS.map(lambda count: lambda meter: meter.calls(count))
    | USAGES.map(lambda usage: lambda meter: meter.reply(usage))
)


# -- Meter -----------------------------------------------------------------------------------------


@given(METERS, STEPS, BUDGETS)
def test_spending_only_ever_lessens_what_is_left(meter: Meter, step: Any, budget: BudgetSpec) -> None:
    """Whatever happens, no dimension grows, and none falls below 0."""
    before, after = left(budget, meter), left(budget, step(meter))
    for dimension, rest in after.items():
        was = before[dimension]
        assert (rest is None) == (was is None)
        if rest is not None and was is not None:
            assert 0 <= rest <= was


@given(st.lists(STEPS, max_size=8))
def test_sums_are_exact_in_any_order(steps: list[Any]) -> None:
    """Integers throughout: the same steps in another order give the same totals."""
    forth = back = Meter()
    for step in steps:
        forth = step(forth)
    for step in reversed(steps):
        back = step(back)
    assert forth == back


def test_dollars_sum_exactly() -> None:
    """Ten times ten cents is one dollar, which is then exhausted."""
    meter = Meter()
    for _ in range(10):
        meter = meter.reply(Usage(dollars=0.1))
    assert meter.dollars == 1.0
    assert isinstance(check(BudgetSpec(dollars=1.0), meter), Exhausted)


def test_unknown_usage_is_not_zero_usage() -> None:
    """A reply without usage keeps the sums and marks them as a lower bound (H4)."""
    meter = Meter().reply(Usage(input_tokens=5, dollars=0.5)).reply(None).reply(Usage(output_tokens=2))
    assert (meter.model_calls, meter.tokens, meter.dollars, meter.partial) == (3, 7, 0.5, True)
    assert meter.spend().partial


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(input_tokens=100, output_tokens=10, cached_tokens=60), 50),
        (Usage(input_tokens=100, output_tokens=10, cached_tokens=100), 10),
        (Usage(input_tokens=100, output_tokens=10, cached_tokens=900), 10),
    ],
)
def test_cached_tokens_are_not_billed(usage: Usage, tokens: int) -> None:
    """Tokens read from a provider's cache do not eat the token budget, and never give any back."""
    assert Meter().reply(usage).tokens == tokens


def test_a_new_exchange_restarts_its_turns_alone() -> None:
    """Turns of the exchange restart; all else is the run's."""
    meter = Meter().turn().turn().calls(3).reply(Usage(input_tokens=4))
    again = meter.exchange()
    assert (again.exchange_turns, again.turns, again.tool_calls, again.tokens) == (0, 2, 3, 4)


def test_spend_shows_the_totals() -> None:
    """What a person is shown is what was counted."""
    usage = Usage(input_tokens=9, output_tokens=2, cached_tokens=3, dollars=0.25)
    spend = Meter(wall_ms=7).turn().calls(2).reply(usage).spend()
    assert spend.model_dump(exclude_defaults=True) == {
        "turns": 1,
        "model_calls": 1,
        "tool_calls": 2,
        "input_tokens": 9,
        "output_tokens": 2,
        "cached_tokens": 3,
        "dollars": 0.25,
        "wall_ms": 7,
    }


# -- wall ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elapsed", "waited", "milliseconds"),
    [
        (0, 0, 0),
        (1, 0, 1),
        (200_000, 0, 1),
        (1_000_000, 0, 1),
        (1_000_001, 0, 2),
        (5_000_000, 4_000_000, 1),
        (1, 2, 0),
    ],
)
def test_wall_rounds_up(elapsed: int, waited: int, milliseconds: int) -> None:
    """Whole milliseconds, rounded up; waiting for a person is free; never below 0."""
    assert wall_ms(elapsed, waited) == milliseconds


# -- check -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ceiling", "equal", "below"),
    [
        ({"tokens": 100}, Meter(input_tokens=60, output_tokens=40), Meter(output_tokens=99)),
        ({"dollars": 0.3}, Meter(nano_dollars=300_000_000), Meter(nano_dollars=299_999_999)),
        ({"wall": 0.07}, Meter(wall_ms=70), Meter(wall_ms=69)),
        ({"wall": 1.001}, Meter(wall_ms=1_001), Meter(wall_ms=1_000)),
        ({"turns": 3}, Meter(exchange_turns=3, turns=3), Meter(exchange_turns=2, turns=9)),
    ],
    ids=["tokens", "dollars", "wall", "wall_odd", "turns"],
)
def test_check_equal_is_exhausted(ceiling: dict[str, Any], equal: Meter, below: Meter) -> None:
    """A total equal to its ceiling is exhausted, one unit less is not; the verdict names the dimension."""
    verdict = check(BudgetSpec(**ceiling), equal)
    assert isinstance(verdict, Exhausted)
    assert verdict.dimension in ceiling
    assert isinstance(check(BudgetSpec(**ceiling), below), Within)


@given(BUDGETS, METERS)
def test_check_agrees_with_what_is_left(budget: BudgetSpec, meter: Meter) -> None:
    """Exhausted exactly when nothing is left of tokens, dollars, wall or turns."""
    rest = left(budget, meter)
    spent = [rest[name] for name in ("tokens", "dollars", "wall", "turns")]
    assert isinstance(check(budget, meter), Exhausted) == (
        0 in [value for value in spent if value is not None]
    )


@given(st.integers(1, 10**7))
def test_check_bills_every_millisecond_of_a_ceiling(milliseconds: int) -> None:
    """However a float writes it, a wall of n ms lasts exactly n ms."""
    budget = BudgetSpec(wall=milliseconds / 1000)
    assert isinstance(check(budget, Meter(wall_ms=milliseconds)), Exhausted)
    assert isinstance(check(budget, Meter(wall_ms=milliseconds - 1)), Within)


def test_check_names_the_run_before_the_exchange() -> None:
    """Tokens, dollars and wall outrank turns, in that order."""
    budget = BudgetSpec(tokens=1, dollars=1, wall=1, turns=1)
    meters = [
        Meter(input_tokens=1, nano_dollars=10**9, wall_ms=1_000, exchange_turns=1),
        Meter(nano_dollars=10**9, wall_ms=1_000, exchange_turns=1),
        Meter(wall_ms=1_000, exchange_turns=1),
        Meter(exchange_turns=1),
    ]
    verdicts = [check(budget, meter) for meter in meters]
    assert [v.dimension for v in verdicts if isinstance(v, Exhausted)] == [
        "tokens",
        "dollars",
        "wall",
        "turns",
    ]


def test_check_lets_a_run_without_calls_left_answer() -> None:
    """Spent calls do not forbid another model call."""
    assert isinstance(check(BudgetSpec(calls=2), Meter(tool_calls=2)), Within)


@pytest.mark.parametrize(
    ("used", "batch", "dimension"),
    [
        (5, 0, None),
        (6, 0, None),
        (5, 1, None),
        (5, 2, "calls"),
        (5, 8, "calls"),
        (6, 1, "calls"),
        (7, 1, "calls"),
    ],
)
def test_check_batch_runs_whole_or_not_at_all(used: int, batch: int, dimension: str | None) -> None:
    """A batch that would exceed `calls` does not run; one that just fits does (H1)."""
    verdict = check_batch(BudgetSpec(calls=6), Meter(tool_calls=used), batch)
    assert getattr(verdict, "dimension", None) == dimension


def test_check_batch_checks_the_rest_too() -> None:
    """Spent tokens forbid a batch as they forbid a model call."""
    verdict = check_batch(BudgetSpec(tokens=5), Meter(output_tokens=5), 1)
    assert isinstance(verdict, Exhausted)
    assert verdict == check(BudgetSpec(tokens=5), Meter(output_tokens=5))


# -- extend ----------------------------------------------------------------------------------------


@given(BUDGETS, PATCHES, METERS)
def test_extend_only_ever_gives(budget: BudgetSpec, more: BudgetPatch, meter: Meter) -> None:
    """No dimension has less left afterwards; what has no ceiling gets none; the budget stays valid."""
    extended = extend(budget, more)
    assert unwire(BudgetSpec, wire(extended)) == extended
    for name, rest in left(extended, meter).items():
        was = left(budget, meter)[name]
        assert (rest is None) == (was is None)
        assert rest is None or was is None or rest >= was


def test_extend_adds_to_each_given_dimension() -> None:
    """What is given is added, what is not stays."""
    budget = BudgetSpec(turns=5, tokens=10, wall=60)
    extended = extend(budget, BudgetPatch(turns=2, tokens=3, dollars=1.0))
    assert extended == BudgetSpec(turns=7, tokens=13, wall=60)
    assert extend(budget, BudgetPatch()) == budget


def test_extend_stops_at_the_most_there_may_be() -> None:
    """A ceiling extended again and again stays one that could have been configured."""
    budget = BudgetSpec(
        turns=TURNS_MAX, tokens=COUNT_MAX, dollars=DOLLARS_MAX, wall=SECONDS_MAX, calls=COUNT_MAX
    )
    assert extend(budget, BudgetPatch(turns=9, tokens=9, dollars=9.0, wall=9.0, calls=9)) == budget
