"""The command line, `mainspring`.

Data goes to standard output, progress to standard error; nothing is coloured in a pipe. Exit status: 0 done,
1 the run ended without an answer, 2 wrong use, 3 no server.

Source: shared design, interfaces.md "Command line".
"""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

__all__ = ["main"]

COMMANDS = ("begin", "talk", "look", "offer", "check", "serve")
"""Modules that register commands, in the order in which help lists them."""


def main() -> NoReturn:
    """Run the command line and end the process."""
    for name in COMMANDS:
        import_module(f"mainspring.cli.{name}")
    from mainspring.cli.app import run_app

    run_app()
