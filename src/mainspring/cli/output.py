"""Where output goes: data to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from mainspring.render import table, visible

__all__ = ["err", "note", "out", "print_answer", "print_json", "print_table", "problem", "width"]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


def width() -> int | None:
    """Columns of the terminal that data goes to; None for a pipe, whose lines are not broken."""
    return out.width if out.is_terminal else None


def note(text: str) -> None:
    """A line about what happens, for a person."""
    err.print(visible(text), markup=False, soft_wrap=True)


def problem(text: str) -> None:
    """What is wrong, for a person."""
    err.print(
        f"mainspring: {visible(text)}", style="red" if err.is_terminal else "", markup=False, soft_wrap=True
    )


def print_json(value: Any, *, lines: bool = False) -> None:
    """A value for a program; with `lines` in one line, for streams."""
    text = json.dumps(value, ensure_ascii=False, indent=None if lines else 2)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_answer(text: str) -> None:
    """An answer: rendered on a terminal, as it is in a pipe."""
    if out.is_terminal:
        out.print(Markdown(text), soft_wrap=False)
        return
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    drop: Sequence[str] = (),
    headed: bool = False,
) -> None:
    """A table on a terminal, without the columns `drop` where it is narrow; tab-separated lines in a pipe.

    `headed`: the headings are a line in a pipe too, since other lines stand around it.
    """
    if out.is_terminal:
        out.print(table(headings, rows, width=out.width, drop=drop), soft_wrap=False)
        return
    for row in [headings, *rows] if headed else rows:
        cells = ("" if cell is None else " ".join(str(cell).split()) for cell in row)
        sys.stdout.write("\t".join(cells) + "\n")
    sys.stdout.flush()
