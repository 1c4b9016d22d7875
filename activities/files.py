"""The built-in tools `files/list`, `files/read` and `files/search`: read-only, confined to one folder.

A path is resolved, must lie in the folder, and is then opened piece by piece without following a link, so
that swapping a folder for a link in between gains nothing. Only regular files are read: never a device, a
pipe or a socket. Everything is bounded: lines, bytes, entries visited, time.

Source: shared design, interfaces.md "Configuration" (`files/*`); context.md ("files/read pages by itself").
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mainspring.activities.functions import ToolContext, ToolError, ToolFunction, ToolOptions, define
from mainspring.activities.matching import BadPattern, LiteralMatcher, Matcher, RegexMatcher, TooSlow
from mainspring.activities.pages import PAGE_LINES, Search, read_page
from mainspring.workflows.catalog import matches
from mainspring.workflows.values import clip

__all__ = ["Folder", "file_tools"]

LISTED_MAX = 500
VISITED_MAX = 50_000
DEPTH_MAX = 32
FOUND_MAX = 200


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that nothing leads out of."""

    root: Path

    def resolve(self, path: str) -> Path:
        """Where a path of the model's leads, relative to the folder.

        Raises: ToolError, when it leads out of it or nowhere.
        """
        root = self.root.resolve()
        try:
            found = (root / path.strip()).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolError(f"{clip(path, 200)}: {_why(error)}", not_applied=True) from None
        if not found.is_relative_to(root):
            raise ToolError(f"{clip(path, 200)} lies outside of the folder", not_applied=True)
        return found.relative_to(root)

    @contextmanager
    def open_folder(self, relative: Path) -> Iterator[int]:
        """A descriptor of a resolved folder; no link is followed on the way."""
        descriptor = os.open(self.root.resolve(), os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in relative.parts:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                try:
                    inner = os.open(part, flags, dir_fd=descriptor)
                except OSError as error:
                    raise ToolError(f"{relative}: {_why(error)}", not_applied=True) from None
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def open_file(self, relative: Path) -> Iterator[BufferedReader]:
        """A resolved regular file, open for reading.

        Raises: ToolError, when it is no regular file, or may not be read.
        """
        with self.open_folder(relative.parent) as folder:
            try:
                # Without O_NONBLOCK, opening a pipe waits for a writer.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(relative.name or ".", flags, dir_fd=folder)
            except OSError as error:
                raise ToolError(f"{relative}: {_why(error)}", not_applied=True) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ToolError(f"{relative} is not a file", not_applied=True)
        with os.fdopen(descriptor, "rb") as opened:
            yield opened

    def walk(self, start: Path, depth: int, *, hidden: bool) -> Iterator[tuple[Path, str]]:
        """What lies below a resolved folder, sorted, each with its kind: `dir`, `file`, `link` or `other`.

        Links are named and never followed; folders that may not be read are passed over.
        """
        waiting = [(start, depth)]
        visited = 0
        while waiting:
            folder, left = waiting.pop()
            inner: list[tuple[Path, int]] = []
            for name, kind in self._entries(folder):
                visited += 1
                if visited > VISITED_MAX:
                    return
                if hidden or not name.startswith("."):
                    yield folder / name, kind
                    if kind == "dir" and left > 1:
                        inner.append((folder / name, left - 1))
            waiting.extend(reversed(inner))

    def _entries(self, folder: Path) -> list[tuple[str, str]]:
        with (
            suppress(OSError, ToolError),
            self.open_folder(folder) as descriptor,
            os.scandir(descriptor) as found,
        ):
            return sorted((entry.name, _kind(entry)) for entry in found)
        return []


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _why(error: Exception) -> str:
    """Why a path leads nowhere, without an absolute path of this machine."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return "not a path"


Depth = Annotated[int | None, Field(ge=1, le=DEPTH_MAX)]


def file_tools(root: Path) -> tuple[ToolFunction, ...]:
    """The three tools over one folder."""
    folder = Folder(root)

    def list_files(
        path: str = ".", glob: str | None = None, depth: Depth = None, hidden: bool = False
    ) -> str:
        """List files and folders, sorted; folders end with a slash, links with an @.

        Args:
            path: Folder to list, relative to the root.
            glob: Only what matches: * within a name, ** across folders; without a slash, names alone count.
            depth: How many levels; 1 unless a glob is given.
            hidden: Also names that begin with a dot.
        """
        return _listed(folder, path, glob, depth or (DEPTH_MAX if glob else 1), hidden)

    def read_file(
        path: str,
        offset: Annotated[int, Field(ge=1)] = 1,
        limit: Annotated[int, Field(ge=1, le=PAGE_LINES)] = PAGE_LINES,
        line_numbers: bool = False,
    ) -> str:
        """Read a text file, page by page; the last line says where the next page begins.

        Args:
            path: File, relative to the root.
            offset: Number of the first line, from 1.
            limit: Most lines.
            line_numbers: Put its number before each line.
        """
        relative = folder.resolve(path)
        with folder.open_file(relative) as opened:
            return read_page(opened, str(relative), offset, limit, line_numbers)

    def search_files(
        context: ToolContext,
        pattern: Annotated[str, Field(min_length=1, max_length=1_000)],
        path: str = ".",
        glob: str | None = None,
        regex: bool = False,
        ignore_case: bool = False,
        limit: Annotated[int, Field(ge=1, le=FOUND_MAX)] = 50,
    ) -> str:
        """Find lines in text files; each is given as path:line: text.

        Args:
            context: The call.
            pattern: Text to find, literally, or a regular expression (Python's).
            path: File or folder to search in, relative to the root.
            glob: Only files that match: * within a name, ** across folders.
            regex: Whether the pattern is a regular expression.
            ignore_case: Whether upper and lower case are the same.
            limit: Most lines.
        """
        kind = RegexMatcher if regex else LiteralMatcher
        try:
            matcher: Matcher = kind(pattern, ignore_case=ignore_case)
        except (BadPattern, TooSlow) as error:
            raise ToolError(f"{clip(pattern, 100)!r} is not a pattern: {error}", not_applied=True) from None
        try:
            return _searched(folder, path, glob, matcher, limit, context)
        finally:
            matcher.close()

    declared: ToolOptions = {"effects": "read", "observes": True, "idempotent": True}
    return (
        define(list_files, name="files/list", source="builtin", **declared),
        define(read_file, name="files/read", source="builtin", **declared),
        define(search_files, name="files/search", source="builtin", **declared),
    )


def _listed(folder: Folder, path: str, glob: str | None, depth: int, hidden: bool) -> str:
    start = folder.resolve(path)
    with folder.open_folder(start):
        pass  # a file, or a folder that may not be read, is an error and not an empty list
    lines: list[str] = []
    for found, kind in folder.walk(start, depth, hidden=hidden):
        if glob and not _matched(glob, found.relative_to(start)):
            continue
        if len(lines) == LISTED_MAX:
            lines.append(f"[more than {LISTED_MAX}; narrow it down with path or glob]")
            break
        lines.append(f"{found}{'/' if kind == 'dir' else '@' if kind == 'link' else ''}")
    return "\n".join(lines) or "[nothing]"


def _matched(glob: str, relative: Path) -> bool:
    name = str(relative) if "/" in glob else relative.name
    # `**/` also stands for no folder at all.
    return matches(glob, name) or ("**/" in glob and matches(glob.replace("**/", ""), name))


def _searched(
    folder: Folder, path: str, glob: str | None, matcher: Matcher, limit: int, context: ToolContext
) -> str:
    start = folder.resolve(path)
    search = Search(matcher, limit, context)
    for relative in _files(folder, start):
        if glob and relative != start and not _matched(glob, relative.relative_to(start)):
            continue
        with suppress(ToolError, OSError), folder.open_file(relative) as opened:
            search.file(opened, str(relative))
        if search.over:
            break
    return search.report()


def _files(folder: Folder, start: Path) -> Iterator[Path]:
    try:
        with folder.open_folder(start):
            pass
    except ToolError:
        yield start
        return
    for found, kind in folder.walk(start, DEPTH_MAX, hidden=False):
        if kind == "file":
            yield found
