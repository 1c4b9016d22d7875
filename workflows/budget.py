"""Budgets: what a run has spent, what is left, and what is exhausted.

Pure. Every total is an integer (dollars in billionths), so sums are exact in any order and on any machine. A
total that equals its ceiling is exhausted; what is left never goes below 0.

Source: shared design, loop.md "Budgets and the order of stopping".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from mainspring.schemas.activities import Usage
from mainspring.schemas.agent import COUNT_MAX, DOLLARS_MAX, TURNS_MAX, BudgetPatch, BudgetSpec
from mainspring.schemas.base import SECONDS_MAX
from mainspring.schemas.run import Spend

__all__ = ["Dimension", "Exhausted", "Meter", "Within", "check", "check_batch", "extend", "left", "wall_ms"]

Dimension = Literal["turns", "tokens", "dollars", "wall", "calls"]

NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Meter:
    """What a run has spent. `exchange_turns` counts the current exchange alone."""

    turns: int = 0
    exchange_turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    nano_dollars: int | None = None
    wall_ms: int = 0
    partial: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that count against the budget: those read from a provider's cache do not."""
        return max(0, self.input_tokens - self.cached_tokens) + self.output_tokens

    @property
    def dollars(self) -> float | None:
        """Dollars, None while no reply had a price."""
        return None if self.nano_dollars is None else self.nano_dollars / NANO

    def turn(self) -> Meter:
        """One more turn."""
        return replace(self, turns=self.turns + 1, exchange_turns=self.exchange_turns + 1)

    def exchange(self) -> Meter:
        """A new exchange: its turns count from 0."""
        return replace(self, exchange_turns=0)

    def reply(self, usage: Usage | None) -> Meter:
        """One model call. Unknown usage is not zero usage: the sums become a lower bound."""
        if usage is None:
            return replace(self, model_calls=self.model_calls + 1, partial=True)
        return replace(self.failed(usage), model_calls=self.model_calls + 1)

    def failed(self, usage: Usage | None) -> Meter:
        """A model call that gave no reply, and was billed all the same where its usage is known."""
        if usage is None:
            return self
        nano = self.nano_dollars
        if usage.dollars is not None:
            nano = (nano or 0) + _nano(usage.dollars)
        return replace(
            self,
            input_tokens=self.input_tokens + usage.input_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            # More read from a cache than read at all is a provider's slip; it must not give tokens back.
            cached_tokens=self.cached_tokens + min(usage.cached_tokens, usage.input_tokens),
            nano_dollars=nano,
        )

    def calls(self, count: int) -> Meter:
        """Tool calls that were dispatched."""
        return replace(self, tool_calls=self.tool_calls + count)

    def spend(self) -> Spend:
        """The totals as a person is shown them."""
        return Spend(
            turns=self.turns,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            dollars=self.dollars,
            wall_ms=self.wall_ms,
            partial=self.partial,
        )


@dataclass(frozen=True, slots=True)
class Within:
    """Nothing is exhausted."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A dimension is spent; `message` says how much of what."""

    dimension: Dimension
    message: str


def wall_ms(elapsed_ns: int, waited_ns: int) -> int:
    """Milliseconds of work, rounded up: waiting for a person is not billed, a call of 0.2 ms costs 1."""
    return max(0, -(-(elapsed_ns - waited_ns) // 1_000_000))


def _nano(dollars: float) -> int:
    return math.ceil(round(dollars * NANO, 3))


def _milliseconds(seconds: float) -> int:
    """A ceiling in the unit that is billed: 0.07 s are 70 ms, whatever floats say of 0.07 × 1000."""
    return math.ceil(round(seconds * 1000, 6))


def check_spend(budget: BudgetSpec, meter: Meter) -> Within | Exhausted:
    """What forbids anything more: tokens, dollars and wall of the run.

    `calls` is not here: a run that has used its calls may still answer.
    """
    if budget.tokens is not None and meter.tokens >= budget.tokens:
        return Exhausted("tokens", f"{meter.tokens} of {budget.tokens} tokens are spent")
    if budget.dollars is not None and (meter.nano_dollars or 0) >= _nano(budget.dollars):
        return Exhausted("dollars", f"${meter.dollars or 0:.4f} of ${budget.dollars:.4f} are spent")
    if budget.wall is not None and meter.wall_ms >= _milliseconds(budget.wall):
        return Exhausted("wall", f"{meter.wall_ms / 1000:.1f} of {budget.wall:.1f} s are spent")
    return Within()


def check(budget: BudgetSpec, meter: Meter) -> Within | Exhausted:
    """What forbids another turn: the spend of the run, then the turns of the exchange."""
    spent = check_spend(budget, meter)
    if isinstance(spent, Exhausted):
        return spent
    if meter.exchange_turns >= budget.turns:
        return Exhausted("turns", f"{meter.exchange_turns} of {budget.turns} turns are spent")
    return Within()


def check_batch(budget: BudgetSpec, meter: Meter, calls: int) -> Within | Exhausted:
    """What forbids this batch of calls. A batch that would exceed `calls` does not run at all."""
    if calls and budget.calls is not None and meter.tool_calls + calls > budget.calls:
        used = f"{meter.tool_calls} of {budget.calls} calls are spent"
        return Exhausted("calls", f"{used}; a batch of {calls} would exceed them")
    return check(budget, meter)


def left(budget: BudgetSpec, meter: Meter) -> dict[str, int | float | None]:
    """What is left of each dimension; None is no ceiling."""
    dollars = None if budget.dollars is None else max(0, _nano(budget.dollars) - (meter.nano_dollars or 0))
    wall = None if budget.wall is None else max(0, _milliseconds(budget.wall) - meter.wall_ms)
    return {
        "turns": max(0, budget.turns - meter.exchange_turns),
        "tokens": None if budget.tokens is None else max(0, budget.tokens - meter.tokens),
        "dollars": None if dollars is None else dollars / NANO,
        "wall": None if wall is None else wall / 1000,
        "calls": None if budget.calls is None else max(0, budget.calls - meter.tool_calls),
    }


def extend(budget: BudgetSpec, more: BudgetPatch) -> BudgetSpec:
    """The budget with `more` added to each dimension that has a ceiling, up to the most that one may be."""
    raised: dict[str, int | float] = {}
    for name, most in _MOST.items():
        ceiling, added = getattr(budget, name), getattr(more, name)
        if ceiling is not None and added is not None:
            raised[name] = min(most, ceiling + added)
    return budget.model_copy(update=raised)


_MOST: dict[Dimension, int | float] = {
    "turns": TURNS_MAX,
    "tokens": COUNT_MAX,
    "dollars": DOLLARS_MAX,
    "wall": SECONDS_MAX,
    "calls": COUNT_MAX,
}
