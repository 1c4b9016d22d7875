"""A worker that ends lets go of runs that wait, and says nothing about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mainspring.embedded import Server

SCRIPT = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from mainspring.testing import serving
from support.waiting import until

ASK = {"calls": [{"tool": "nika:ask", "arguments": {"question": "?"}}]}
CASES = {
    "follow_up": ([{"text": "ok"}], {}, "conversation"),
    "answer": ([ASK], {"tools": ["nika:ask"]}, "single"),
    "budget": ([{"text": ""}], {"budgets": {"turns": 1}, "limits": {"on_exhausted": "wait"}}, "single"),
}

async def main():
    for awaiting, (replies, agent, lifetime) in CASES.items():
        async with serving(sys.argv[1], replies=replies, agent=agent, replays=False, sandbox=False) as case:
            run = await case.start(lifetime=lifetime)
            await until(run, awaiting=awaiting)
            print(awaiting)

asyncio.run(main())
"""


def test_program_that_ends_while_runs_wait_prints_no_traceback(server: Server) -> None:
    """Runs that wait for a person are dropped with their worker; that is no error."""
    tests = str(Path(__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, server.address, tests], capture_output=True, text=True, timeout=120
    )
    assert ended.stdout.split() == ["follow_up", "answer", "budget"]
    assert "Exception ignored" not in ended.stderr
    assert "Traceback" not in ended.stderr
