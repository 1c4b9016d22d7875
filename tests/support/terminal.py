"""A terminal with a program on it, for tests: what it shows, and what a person types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["Terminal", "on_terminal"]

PATIENCE_SECONDS = 40.0
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The person's side of a terminal.

    Args:
        ours: Its file descriptor.
        process: The program on it.
    """

    def __init__(self, ours: int, process: subprocess.Popen[bytes]) -> None:
        self._ours = ours
        self.process = process
        self._raw = b""

    @property
    def shown(self) -> str:
        """All that was shown until now, as text without controls."""
        return CONTROLS.sub("", self._raw.decode(errors="replace")).replace("\r", "")

    def until(self, text: str, times: int = 1) -> str:
        """Wait until this was shown, so many times; all that was shown.

        Raises: AssertionError, with what was shown.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.shown.count(text) < times:
            assert time.monotonic() < deadline, f"never {text!r}: {self.shown}"
            assert self._read(0.2) or self.process.poll() is None, f"ended without {text!r}: {self.shown}"
        return self.shown

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Wait until the program has ended; its exit status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"never ended: {self.shown}"
            self._read(0.2)
        while self._read(0.2):
            pass
        return self.process.returncode

    @property
    def edits_lines(self) -> bool:
        """Whether the terminal is as a shell needs it: a line at a time, and shown as it is typed."""
        flags = termios.tcgetattr(self._ours)[3]
        return bool(flags & termios.ICANON) and bool(flags & termios.ECHO)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            more = os.read(self._ours, 65_536)
        except OSError:  # nobody has it open any more
            return False
        self._raw += more
        return bool(more)


@contextlib.contextmanager
def on_terminal(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
) -> Iterator[Terminal]:
    """A program on a terminal of its own, which it controls; killed at the end if it has not ended."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        yield Terminal(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(theirs)
        os.close(ours)
