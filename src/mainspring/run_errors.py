"""Errors of talking to runs, by what the caller can do about them.

MainspringError
├── Unanswered        nobody answered; a message may yet be taken, `.update_id` repeats it without doubling it
│   ├── Unreachable   no Temporal server answers: start one, or correct the address
│   ├── NoWorker      no worker answers for the run: start one; nothing is lost
│   └── Wedged        the run's workflow task fails again and again: the worker's log says why
├── UnknownRun        the server has no run of that id
├── RunExists         a run of that id is open
├── RunClosed         the run has ended and takes no more messages
├── Refused           what was sent or asked is wrong; the text says what is allowed
│   └── UpdatesUsedUp the server lets the run take no more updates for now; signals still arrive
├── TooLarge          the text does not fit a message: attach it
├── ExchangeFailed    the message's exchange ended without an answer; the run may go on
└── RunFailed         the run ended without an answer; `.result` says how
    └── RunCancelled  … because a person cancelled it
"""

from __future__ import annotations

from mainspring.errors import MainspringError
from mainspring.schemas.run import RunResult

__all__ = [
    "ExchangeFailed",
    "NoWorker",
    "Refused",
    "RunCancelled",
    "RunClosed",
    "RunExists",
    "RunFailed",
    "TooLarge",
    "Unanswered",
    "UnknownRun",
    "Unreachable",
    "UpdatesUsedUp",
    "Wedged",
]


class Unanswered(MainspringError):
    """Nobody answered in time. Of an update it is not known whether it was or will be taken.

    Args:
        message: What is known, for a person.

    Attributes:
        update_id: Of the update that was sent; None when none was. Sent again under that id it is taken once,
            for as long as the run remembers it: its last 500 updates.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.update_id: str | None = None

    def __str__(self) -> str:
        """What is known, and how to repeat what was sent."""
        told = super().__str__()
        if self.update_id is None:
            return told
        under = f"the id {self.update_id!r} (`id=`, `--message-id`)"
        return f"{told}; what was sent may yet be taken: repeated under {under}, it is taken once"


class Unreachable(Unanswered):
    """No Temporal server answers at the address."""


class UnknownRun(MainspringError):
    """The server has no run of that id."""


class RunExists(MainspringError):
    """A run of that id is open."""


class RunClosed(MainspringError):
    """The run has ended and takes no more messages."""


class NoWorker(Unanswered):
    """No worker answered for the run. Nothing is lost: it goes on when one is back."""


class Wedged(Unanswered):
    """The run's workflow task fails and is retried: a defect of ours, or a worker of another version."""


class Refused(MainspringError):
    """The run, or our own check, refused what was sent or asked."""


class UpdatesUsedUp(Refused):
    """The server lets one execution take so many updates (2,000) and this one has had them.

    A signal still arrives, and updates do again once the run has continued as new.
    """


class TooLarge(MainspringError):
    """What was to be sent does not fit one message."""


class ExchangeFailed(MainspringError):
    """The exchange of a message ended without an answer.

    Args:
        outcome: As in `RunResult`.
        code: The outcome's code, when it has one.
        message: What is known, for a person.
    """

    def __init__(self, outcome: str, code: str | None, message: str | None) -> None:
        super().__init__(f"{outcome}{f' ({code})' if code else ''}{f': {message}' if message else ''}")
        self.outcome = outcome
        self.code = code
        self.message = message


class RunFailed(MainspringError):
    """The run ended without an answer.

    Args:
        message: What is known, for a person.
        result: How it ended; None when the server ended it (terminated, timed out).
    """

    def __init__(self, message: str, result: RunResult | None) -> None:
        super().__init__(message)
        self.result = result


class RunCancelled(RunFailed):
    """A person cancelled the run."""
