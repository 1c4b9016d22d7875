"""The person's terminal: the live view at its foot, a prompt in its place, and the lines typed there.

A terminal is read without stopping anything else: the process goes on following the run, and Ctrl-C stays
what it is. The terminal itself edits the line.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import suppress

from rich.console import RenderableType
from rich.live import Live

from mainspring.cli.output import err

__all__ = ["Foot", "attended", "typed"]

PROMPT = "› "
READ_BYTES = 65_536
PASTE_SECONDS = 0.05
"""What follows a line as fast as this was pasted with it, and belongs to it."""
_CLEAR_LINE = "\r\x1b[K"
_LOCAL_FLAGS, _CONTROL = 3, 6


def attended() -> bool:
    """Whether a person reads our standard error and types on our standard input, now."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty() and err.is_terminal):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return True  # without job control nobody is put in the background


class Foot:
    """What stands below the lines on a terminal: the live view, or the prompt while somebody is asked.

    Args:
        view: The live view; None for a command that has none.
    """

    def __init__(self, view: RenderableType | None = None) -> None:
        self._view = view
        self._live: Live | None = None
        self._prompting = False

    def show(self) -> None:
        """Let the live view stand there."""
        self._end_prompt()
        if self._view is not None and self._live is None:
            self._live = Live(self._view, console=err, refresh_per_second=10, transient=True)
            self._live.start()

    def hide(self) -> None:
        """Let nothing stand there."""
        self._end_prompt()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def prompt(self) -> None:
        """Let the prompt stand there; the person's words come after it."""
        self.hide()
        self._prompting = True
        err.print(PROMPT, end="")

    def entered(self) -> None:
        """The person has ended the line, which is below the prompt now."""
        self._prompting = False

    def print(self, line: RenderableType) -> None:
        """A line above it. What was typed at the prompt is kept, and not shown again."""
        if not self._prompting:
            err.print(line)
            return
        err.file.write(_CLEAR_LINE)
        err.print(line)
        err.print(PROMPT, end="")

    def _end_prompt(self) -> None:
        if self._prompting:
            self._prompting = False
            err.print()


async def typed(foot: Foot) -> str | None:
    """What the person enters at the prompt; None when they close the input (Ctrl-D) or are gone.

    One line, or all lines of a text that is pasted. Typed before the prompt is there, it cannot have been
    meant for what is asked now, and typed afterwards it must not reach the shell.
    """
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    entered: asyncio.Future[bytes] = loop.create_future()
    held = bytearray()

    def done() -> None:
        if not entered.done():
            entered.set_result(bytes(held))

    def read() -> None:
        try:
            more = os.read(terminal, READ_BYTES)
        except OSError:
            more = b""
        held.extend(more)
        if not more:
            done()
        elif more.endswith(b"\n"):
            _by_character(terminal)  # a pasted last line has no end of its own
            loop.call_later(PASTE_SECONDS, done)

    try:
        settings = termios.tcgetattr(terminal)
        termios.tcflush(terminal, termios.TCIFLUSH)
    except termios.error:
        return None
    foot.prompt()
    loop.add_reader(terminal, read)
    try:
        words = (await entered).decode(errors="replace")
    finally:
        loop.remove_reader(terminal)
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSAFLUSH, settings)
    return words or None


def _by_character(terminal: int) -> None:
    """Let what is typed be read before its line has ended."""
    settings = termios.tcgetattr(terminal)
    settings[_LOCAL_FLAGS] &= ~termios.ICANON
    settings[_CONTROL][termios.VMIN], settings[_CONTROL][termios.VTIME] = 1, 0
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
