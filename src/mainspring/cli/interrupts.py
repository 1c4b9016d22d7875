"""Ctrl-C before there is anything to be put in order. It imports nothing that takes time."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

__all__ = ["EXIT_INTERRUPTED", "ends_quietly", "raises"]

EXIT_INTERRUPTED = 130


def ends_quietly() -> None:
    """From now on Ctrl-C ends the process at once and says nothing: importing takes a second."""
    signal.signal(signal.SIGINT, _quit)


def raises() -> None:
    """From now on Ctrl-C is an exception again: there is something to end."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _quit(*_: object) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)
