"""Errors that a caller of ours can handle.

MainspringError
└── ConfigError     the configuration, or a file that it names, is wrong
"""

from __future__ import annotations

__all__ = ["ConfigError", "MainspringError"]


class MainspringError(Exception):
    """The root of every error of ours; its text says what happened and what to do."""


class ConfigError(MainspringError):
    """The configuration is wrong; the text lists every problem found: where, what was given, what is allowed.

    Args:
        message: The whole text for a person.
        where: `file:line:column` of the first problem; None where there is no file.
    """

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.where = where
