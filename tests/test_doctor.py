"""The doctor: what it makes of what it sees."""

from __future__ import annotations

import pytest

from mainspring.doctor import worker_check


@pytest.mark.parametrize(
    ("seconds", "ok", "told"),
    [
        (None, None, "no worker serves task queue q"),
        (1.0, True, "task queue q is served"),
        (42.0, True, "task queue q: a worker asked 42 s ago, as an idle one does once a minute"),
        (90.0, None, "no worker serves task queue q; the last one asked 90 s ago"),
    ],
)
def test_worker_check_does_not_trust_what_is_long_ago(
    seconds: float | None, ok: bool | None, told: str
) -> None:
    """The server remembers a worker for minutes; an idle one asks every minute, so a later one is gone."""
    check = worker_check("worker", "q", seconds, "start one")
    assert (check.ok, check.told) == (ok, told)
    assert check.advice == (None if ok else "start one")
