"""What the file tools show of an open file: a page of it, or the lines that match.

Source: shared design, context.md ("files/read pages by itself").
"""

from __future__ import annotations

import mimetypes
import os
import time
from collections.abc import Iterator
from io import BufferedReader

from mainspring.activities.functions import ToolContext, ToolError
from mainspring.activities.matching import Matcher, TooSlow
from mainspring.workflows.values import clip

__all__ = ["PAGE_LINES", "Search", "read_page"]

PAGE_BYTES = 14_000
"""A page stays below the default bound of an observation, so that reading a file never spills."""
PAGE_LINES = 2_000
LINE_MAX = 2_000
COUNTED_BYTES_MAX = 64 * 1024 * 1024
SNIFFED_BYTES = 8_192
CHUNK_BYTES = 1024 * 1024

SEARCH_SECONDS = 10.0
SEARCHED_FILE_MAX = 8 * 1024 * 1024
SHOWN_LINE_MAX = 300


def read_page(opened: BufferedReader, name: str, offset: int, limit: int, numbered: bool) -> str:
    """Lines from `offset`, as many as fit a page, and what follows them.

    Raises: ToolError, when there is no such line.
    """
    size = os.fstat(opened.fileno()).st_size
    if _is_binary(opened):
        kind = mimetypes.guess_type(name)[0] or "unknown type"
        return f"[binary file {name}: {kind}, {size:,} bytes]"
    page: list[str] = []
    room = PAGE_BYTES
    last = 0
    for number, line in enumerate(_lines(opened), start=1):
        if number < offset:
            last = number
            continue
        text = f"{number:>6}  {line}" if numbered else line
        room -= len(text.encode()) + 1
        if page and (room < 0 or len(page) == limit):
            return "\n".join([*page, _more(offset, last, opened)])
        page.append(text)
        last = number
    if not page and last:
        raise ToolError(f"{name} has {last} lines; there is no line {offset}", not_applied=True)
    if offset > 1:
        page.append(f"[lines {offset}-{last}; the end]")
    return "\n".join(page) or "[empty file]"


def _more(first: int, last: int, opened: BufferedReader) -> str:
    rest = _count(opened)
    total = f" of {last + 1 + rest}" if rest is not None else ""
    return f"[lines {first}-{last}{total}; go on with offset={last + 1}]"


def _count(opened: BufferedReader) -> int | None:
    """Lines from here to the end; None when that is too far to count."""
    counted, ending = 0, b"\n"
    for _ in range(COUNTED_BYTES_MAX // CHUNK_BYTES):
        chunk = opened.read(CHUNK_BYTES)
        if not chunk:
            return counted + (ending != b"\n")
        counted += chunk.count(b"\n")
        ending = chunk[-1:]
    return None


def _lines(opened: BufferedReader) -> Iterator[str]:
    """Lines without their ends; of a very long one, the head and how much was left out."""
    while raw := opened.readline(4 * LINE_MAX):
        left_out = 0
        while not raw.endswith(b"\n") and (more := opened.readline(CHUNK_BYTES)):
            left_out += len(more)
            if more.endswith(b"\n"):
                break
        text = raw.rstrip(b"\r\n").decode("utf-8", "replace").removeprefix("\ufeff")
        yield f"{text} [… {left_out:,} bytes of this line left out]" if left_out else text


def _is_binary(opened: BufferedReader) -> bool:
    head = opened.read(SNIFFED_BYTES)
    opened.seek(0)
    return b"\x00" in head


class Search:
    """Lines found so far, and whether it is time to stop."""

    def __init__(self, matcher: Matcher, limit: int, context: ToolContext) -> None:
        self._matcher = matcher
        self._limit = limit
        self._context = context
        self._deadline = time.monotonic() + SEARCH_SECONDS
        self._found: list[str] = []
        self._searched = 0
        self._ended = ""

    @property
    def over(self) -> bool:
        """Whether nothing more is to be searched."""
        if not self._ended and (time.monotonic() > self._deadline or self._context.cancelled):
            self._ended = f"stopped after {SEARCH_SECONDS:.0f} s; narrow it down with path or glob"
        return bool(self._ended)

    def file(self, opened: BufferedReader, name: str) -> None:
        """Search one file; a binary one is passed over, and of a huge one only the head is searched."""
        if _is_binary(opened):
            return
        self._searched += 1
        lines = opened.read(SEARCHED_FILE_MAX).decode("utf-8", "replace").split("\n")
        try:
            indices = self._matcher.find(lines)
        except TooSlow as error:
            self._ended = str(error)
            return
        for index in indices:
            if len(self._found) == self._limit:
                self._ended = f"more than {self._limit} lines match; narrow it down, or raise the limit"
                return
            self._found.append(f"{name}:{index + 1}: {clip(lines[index].strip(), SHOWN_LINE_MAX)}")

    def report(self) -> str:
        """What was found, and why the search ended early if it did."""
        nothing = [] if self._found else [f"[no line matches in {self._searched} files]"]
        return "\n".join([*self._found, *nothing, *([f"[{self._ended}]"] if self._ended else [])])
