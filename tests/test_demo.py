"""The demo, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def test_demo_survives_the_kill_and_does_nothing_twice() -> None:
    """With no key and no terminal it answers and proves that no completed call ran twice."""
    keyless = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, DEMO],
        env=keyless,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KILLED" in done.stdout
    assert "workflows/catalog.py` decides" in done.stdout
    assert "; repeated: 0" in done.stdout
    assert "attempt 2" in done.stdout
    assert "no completed call ran twice" in done.stdout
    assert "the run in the Temporal UI: http://127.0.0.1:" in done.stdout
