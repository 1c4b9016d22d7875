"""Processes of ours: where the SDK's core logs to, how they are asked to stop, and how they end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import NoReturn

from temporalio.exceptions import ApplicationError
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from mainspring.schemas import errors

__all__ = ["LOG_FORMAT", "end_process", "log_through_python", "short_failures", "stop_requested"]

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_FORESEEN = frozenset(value for name, value in vars(errors).items() if name.isupper())


def log_through_python() -> None:
    """Send what the SDK's core logs through `logging`; by itself it writes to standard output, among data.

    Contract: once a process, before the first client, worker or replayer.
    """
    warnings = TelemetryFilter(core_level="WARN", other_level="ERROR")
    forwarded = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    telemetry = TelemetryConfig(logging=LoggingConfig(filter=warnings, forwarding=forwarded))
    Runtime.set_default(Runtime(telemetry=telemetry))


def short_failures() -> None:
    """One line of the log for an activity's failure that we foresee; a defect keeps its traceback."""
    logger = logging.getLogger("temporalio.activity")
    if _shorten not in logger.filters:
        logger.addFilter(_shorten)


def _shorten(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if isinstance(error, ApplicationError) and error.type in _FORESEEN:
        told = " ".join(error.message.split())
        about = getattr(record, "temporal_activity", {})
        named = " ".join(str(about[key]) for key in ("activity_type", "activity_id") if key in about)
        record.msg = f"{named} of run {about.get('workflow_id')} failed: {error.type}: {told}"
        record.args = ()
        record.exc_info = record.exc_text = None
    return True


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
