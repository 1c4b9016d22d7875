"""`examples/tracing.py`, run as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "tracing.py"


def test_example_prints_the_trace_as_a_tree() -> None:
    """The example ends well and shows caller, run, turns, calls and the tools' own spans as a tree."""
    run = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    shown = run.stdout.partition("the trace:\n")[2].partition("\n\n")[0]
    lines = [(len(line) - len(line.lstrip()), line.strip().partition("  ")[0]) for line in shown.splitlines()]
    call = [(6, "execute_tool weather"), (8, "GET /forecast")]
    assert lines == [
        (2, "handle request"),
        (4, "invoke_agent weatherman"),
        (6, "chat scripted"),
        *call,
        *call,
        (6, "chat scripted"),
    ]
    assert "outcome=completed in=900 out=42" in run.stdout
    assert "the answer: In Bergen you do." in run.stdout
    assert any(line.split() == ["mainspring.runs", "1", "{run}"] for line in run.stdout.splitlines())
