"""What tests of pure modules share: laws without deadlines, and the same code under several hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

settings.register_profile("laws", deadline=None, max_examples=100)
settings.load_profile("laws")


@pytest.fixture(scope="session")
def printed_by_seed() -> Callable[[str], set[str]]:
    """Run code in fresh processes that differ in their hash seed; all that they printed."""

    def printed(code: str) -> set[str]:
        seeds = ("0", "1", "4242")
        started = [
            subprocess.Popen(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in seeds
        ]
        outputs = {process.communicate(timeout=60)[0] for process in started}
        assert all(process.returncode == 0 for process in started)
        return outputs

    return printed
