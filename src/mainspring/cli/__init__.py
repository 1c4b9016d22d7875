"""The command line, `mainspring`.

Data goes to standard output, progress to standard error; nothing is coloured in a pipe. Exit status: 0 done,
1 the run ended without an answer, 2 wrong use, 3 no server or no
worker answers, 130 interrupted.

Source: shared design, interfaces.md "Command line".
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

from mainspring.cli.interrupts import ends_quietly

__all__ = ["main"]

COMMANDS = {
    "begin": ("run", "start", "watch"),
    "talk": (
        "steer",
        "follow-up",
        "answer",
        "interrupt",
        "pause",
        "resume",
        "finish",
        "cancel",
        "extend-budget",
    ),
    "look": ("list", "state", "events", "transcript", "explain"),
    "offer": ("agents", "tools"),
    "check": ("config", "doctor"),
    "backtest": ("replay",),
    "serve": ("dev", "worker"),
}
"""Modules that register commands, in the order in which help lists them."""


def main() -> NoReturn:
    """Run the command line and end the process."""
    ends_quietly()
    # Only what may be meant is imported: a command that says one thing to a run should not load a worker.
    meant = [name for name, commands in COMMANDS.items() if set(commands) & set(sys.argv[1:])]
    for name in meant or COMMANDS:
        import_module(f"mainspring.cli.{name}")
    from mainspring.cli.app import run_app

    run_app()
