"""Processes of ours: what their log says of failures."""

from __future__ import annotations

import logging

import pytest
from temporalio.exceptions import ApplicationError

from mainspring.process import short_failures
from mainspring.schemas.errors import INVALID_INPUT


def _logged(caplog: pytest.LogCaptureFixture, error: Exception) -> logging.LogRecord:
    short_failures()
    about = {"activity_type": "mainspring.arm", "activity_id": "1", "workflow_id": "r"}
    logger = logging.getLogger("temporalio.activity")
    logger.warning("Completing activity as failed", exc_info=error, extra={"temporal_activity": about})
    return caplog.records[-1]


def test_foreseen_failure_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal of ours says what it is, at WARNING, without the stack that led to it."""
    record = _logged(caplog, ApplicationError("no such\nagent", type=INVALID_INPUT))
    assert record.levelno == logging.WARNING
    assert record.exc_info is None
    assert record.getMessage() == "mainspring.arm 1 of run r failed: invalid_input: no such agent"


def test_defect_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """What nobody foresaw needs its stack to be found."""
    assert _logged(caplog, ValueError("a bug")).exc_info
    assert _logged(caplog, ApplicationError("theirs", type="Theirs")).exc_info
