"""Secrets, named in the configuration and read only here, in an activity, at the moment they are needed.

A secret's value is never part of an input, a result, a failure, an event or a heartbeat.

Source: shared design, tools.md "Secrets".
"""

from __future__ import annotations

import os
from pathlib import Path

from mainspring.activities.faults import misconfigured
from mainspring.workflows.values import clip

__all__ = ["resolve"]

SECRET_BYTES = 64 * 1024


def resolve(reference: str) -> str:
    """The secret that `env:NAME` or `file:path` names; of a file, without the line break at its end.

    Raises: ApplicationError(MODEL_MISCONFIGURED), not retryable, which names the reference and no value.
    """
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        return _from_environment(name)
    if kind == "file" and name:
        return _from_file(name)
    # What stands there may be the secret itself: it is not shown.
    raise misconfigured("a secret is named as env:NAME or file:path; what is given is neither")


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        state = "not set" if value is None else "empty"
        raise misconfigured(f"the secret env:{clip(name, 100)} is {state} in the worker's environment")
    return value


def _from_file(name: str) -> str:
    shown = f"the secret file:{clip(name, 200)}"
    try:
        with Path(name).expanduser().open("rb") as file:
            content = file.read(SECRET_BYTES + 1)
    except OSError as error:
        raise misconfigured(f"{shown} cannot be read ({type(error).__name__})") from None
    if len(content) > SECRET_BYTES:
        raise misconfigured(f"{shown} is larger than {SECRET_BYTES} bytes")
    try:
        value = content.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise misconfigured(f"{shown} is not text") from None
    if not value:
        raise misconfigured(f"{shown} is empty")
    return value
