"""Tools of the example agent: typed Python functions. The model sees their signatures and docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

from mainspring.tools import ToolError, tool

ROOT = Path(__file__).resolve().parents[1]
LINES_MAX = 200


@tool(name="repo/outline", effects="read", observes=True)
def outline(path: str) -> list[str]:
    """Classes and functions of a Python file, each with its line.

    Args:
        path: The file, relative to the repository.
    """
    tree = ast.parse(_source(path))
    found = [
        f"{node.lineno}: {'class' if isinstance(node, ast.ClassDef) else 'def'} {node.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(found, key=lambda line: int(line.partition(":")[0]))[:LINES_MAX]


@tool(name="repo/measure", effects="read", observes=True)
def measure(path: str) -> str:
    """How many lines a file has, and how many of them are blank.

    Args:
        path: The file, relative to the repository.
    """
    lines = _source(path).splitlines()
    blank = sum(not line.strip() for line in lines)
    return f"{path} has {len(lines)} lines, {blank} of them blank"


def _source(path: str) -> str:
    """The text of a file of the repository, and of no other."""
    file = (ROOT / path).resolve()
    if not file.is_relative_to(ROOT) or not file.is_file():
        raise ToolError(f"there is no file {path!r} in the repository")
    return file.read_text(encoding="utf-8", errors="replace")
