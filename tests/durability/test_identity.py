"""Ids that leave a run: what they must tell apart."""

from __future__ import annotations

from typing import Any

from mainspring.embedded import Server
from support.invariants import serving, transcript_of
from support.tools import nap


async def test_second_run_of_one_id_has_idempotency_keys_of_its_own(server: Server) -> None:
    """A run started again at once under the id of one that has ended is not taken for it by any tool."""
    replies: list[dict[str, Any]] = [
        {"calls": [{"tool": "nap", "arguments": {"seconds": 0}}]},
        {"text": "ok"},
    ]
    keys = []
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        for _ in range(2):
            run = await case.start(id="the-same")
            await run.result()
            entries = await transcript_of(case, run)
            keys += [entry["content"] for entry in entries if entry["kind"] == "observation"]
    assert len(set(keys)) == 2
    assert all(key.startswith("the-same:") for key in keys)
