"""Finding lines: a literal in this process, a regular expression in a process that can be ended.

A pattern of the model's may backtrack for ages, and Python's engine cannot be interrupted; so it runs in a
child with a limit on processor time and memory, which is given lines and answers with their indices.

Source: shared design, field-faults.md B23 (linear time on hostile input).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

__all__ = ["BadPattern", "LiteralMatcher", "Matcher", "RegexMatcher", "TooSlow"]

CHILD_SECONDS = 5
CHILD_BYTES = 1024 * 1024 * 1024
LINE_MAX = 2_000

_CHILD = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
def answer(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()
asked = json.loads(sys.stdin.readline())
try:
    search = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0).search
except (re.error, OverflowError, RecursionError, MemoryError) as error:
    answer(str(error) or type(error).__name__)
    sys.exit()
answer(None)
for line in sys.stdin:
    answer([at for at, text in enumerate(json.loads(line)) if search(text)])
""".replace("SECONDS", str(CHILD_SECONDS)).replace("BYTES", str(CHILD_BYTES))


class BadPattern(Exception):
    """Not a regular expression; the text says why."""


class TooSlow(Exception):
    """The search used up its time."""


class Matcher(Protocol):
    """Finds lines. To be closed."""

    def find(self, lines: Sequence[str]) -> list[int]:
        """Indices of the lines that match.

        Raises: TooSlow.
        """
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


class LiteralMatcher:
    """Lines that hold a text."""

    def __init__(self, text: str, *, ignore_case: bool) -> None:
        self._fold = ignore_case
        self._text = text.casefold() if ignore_case else text

    def find(self, lines: Sequence[str]) -> list[int]:
        """Indices of the lines that hold it."""
        if self._fold:
            return [at for at, line in enumerate(lines) if self._text in line.casefold()]
        return [at for at, line in enumerate(lines) if self._text in line]

    def close(self) -> None:
        """Nothing is held."""


class RegexMatcher:
    """Lines in which a pattern is found.

    Raises: BadPattern.
    """

    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        command = [sys.executable, "-I", "-S", "-c", _CHILD]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        # Processor time is the child's own limit; this one is for a child that is starved or stopped.
        self._alarm = threading.Timer(2 * CHILD_SECONDS, self._child.kill)
        self._alarm.daemon = True
        self._alarm.start()
        try:
            refused = self._ask({"pattern": pattern, "ignore_case": ignore_case})
            if refused is not None:
                raise BadPattern(str(refused))
        except BaseException:
            self.close()
            raise

    def find(self, lines: Sequence[str]) -> list[int]:
        """Indices of the lines in which it is found; only the head of a very long line is looked at.

        Raises: TooSlow.
        """
        found: list[int] = self._ask([line[:LINE_MAX] for line in lines])  # type: ignore[assignment]
        return found

    def close(self) -> None:
        """End the child."""
        self._alarm.cancel()
        self._child.kill()
        self._child.communicate()

    def _ask(self, asked: object) -> object:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(asked) + "\n")
            self._child.stdin.flush()
            answer = self._child.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise TooSlow("the pattern takes too long")
        return json.loads(answer)
