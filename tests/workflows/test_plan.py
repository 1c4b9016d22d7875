from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.ledger import Plan
from mainspring.workflows.ledger import select, user_entry
from mainspring.workflows.plan import plan


@given(st.integers(0, 50), st.integers(0, 10**9))
def test_plan_shows_everything(entries: int, tokens: int) -> None:
    """All entries are shown, and the composition says so."""
    planned = plan(entries, tokens)
    ledger = [user_entry(seq, 1, 0, "x") for seq in range(entries)]
    assert select(ledger, planned.plan) == ledger
    assert (planned.entries, planned.shown, planned.tokens) == (entries, entries, tokens)


def test_plan_is_constant_in_size() -> None:
    """The plan of a long run is as small as that of a short one."""
    assert plan(1, 1).plan == plan(10_000, 10**6).plan == Plan()
