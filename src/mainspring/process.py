"""How a process of ours is asked to stop, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import NoReturn

__all__ = ["end_process", "stop_requested"]


def stop_requested() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask(number: signal.Signals) -> None:
        if stop.is_set():
            end_process(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
    return stop


def end_process(status: int) -> NoReturn:
    """End now, with everything written and without the interpreter's own shutdown, which may crash."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 1  # nobody reads any more
    os._exit(status)
