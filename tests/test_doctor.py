"""The doctor: what it makes of what it sees."""

from __future__ import annotations

import pytest

from mainspring.doctor import deltas_check, worker_check
from mainspring.schemas.config import Config, DeltaSpec
from support.redis_server import redis_server


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


async def test_deltas_check_writes_to_the_configured_redis() -> None:
    """It serves, or it is gone: either is seen, and no address is shown."""
    async with redis_server() as redis:
        config = Config(deltas=DeltaSpec(redis=redis.url))
        check = await deltas_check(config)
        assert check is not None
        assert check.ok
        assert check.told.startswith("Redis ")
        redis.kill()
        gone = await deltas_check(config)
    assert gone is not None
    assert (gone.ok, gone.told) == (False, "Redis does not serve: ConnectionError")
    assert gone.advice is not None


async def test_deltas_check_is_silent_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of deltas that nobody configured; a secret that is missing is."""
    assert await deltas_check(Config()) is None
    monkeypatch.delenv("DELTAS_URL", raising=False)
    check = await deltas_check(Config(deltas=DeltaSpec(redis="env:DELTAS_URL")))
    assert check is not None
    assert (check.ok, "env:DELTAS_URL" in check.told) == (False, True)
