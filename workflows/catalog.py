"""The catalog: which tools an agent's patterns admit, and what providers are told they are called.

Pure. Source: shared design, tools.md (globs), loop.md "Intrinsics" (names).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

__all__ = ["INTRINSICS", "WIRE_NAME_MAX", "admits", "matches", "near", "source_of", "wire_name"]

INTRINSICS: tuple[str, ...] = ("nika:done", "nika:compose", "nika:ask", "nika:find_tools", "nika:recall")
"""Tools that the loop itself serves. Any upstream definition of such a name is dropped."""

WIRE_NAME_MAX = 64
NAME_MAX = 256

_CROSSING = "**"
_STEP = "*"


@lru_cache(maxsize=4_096)
def _tokens(pattern: str) -> tuple[str, ...]:
    """A glob as single characters and stars; runs of stars are one."""
    tokens: list[str] = []
    for part in re.findall(r"\*+|[^*]", pattern):
        tokens.append((_CROSSING if len(part) > 1 else _STEP) if part[0] == "*" else part)
    return tuple(tokens)


def matches(pattern: str, name: str) -> bool:
    """Whether a glob matches the whole name: `*` stops at `/` and `:`, `**` crosses them.

    Time is len(pattern) × len(name) at worst: a set of positions is carried, nothing is tried again.
    """
    tokens = _tokens(pattern)
    states = _spread(tokens, {0})
    for character in name:
        reached: set[int] = set()
        for at in states:
            if at == len(tokens):
                continue
            token = tokens[at]
            if token == _CROSSING or (token == _STEP and character not in "/:"):
                reached.add(at)
            elif token == character:
                reached.add(at + 1)
        states = _spread(tokens, reached)
        if not states:
            return False
    return len(tokens) in states


def _spread(tokens: Sequence[str], states: set[int]) -> set[int]:
    """The states and what is reached from them by letting stars match nothing."""
    spread = set(states)
    for at in states:
        while at < len(tokens) and tokens[at] in (_STEP, _CROSSING):
            at += 1
            spread.add(at)
    return spread


def admits(patterns: Iterable[str], name: str) -> bool:
    """Whether the patterns admit a tool: default deny, a leading `!` negates, the last match wins."""
    admitted = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        if matches(pattern[1:] if negated else pattern, name):
            admitted = not negated
    return admitted


def source_of(name: str) -> Literal["builtin", "mcp", "other"]:
    """Where a name belongs, for the counts of `ToolsSelected.by_source`."""
    if name.startswith(("nika:", "files/")):
        return "builtin"
    return "mcp" if name.startswith("mcp:") else "other"


_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")


@lru_cache(maxsize=65_536)
def wire_name(name: str) -> str:
    """The name that a provider sees: letters, digits, `_` and `-`, at most 64, one to one.

    It depends on the name alone, so it is stable in whatever order servers are listed. Separators become
    `__`; where that would not be one to one, or is too long, a digest of the name is appended.
    """
    segments = re.split(r"[:/]", name)
    plain = "__".join(segments)
    known_prefix = ":" not in name or (name.count(":") == 1 and name.startswith(("nika:", "mcp:")))
    if known_prefix and len(plain) <= WIRE_NAME_MAX and all(_PLAIN_SEGMENT.fullmatch(s) for s in segments):
        return plain
    mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", plain)[: WIRE_NAME_MAX - 3 - len(mark)]
    return f"{safe}___{mark}"


def near(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The known names most like a wrong one, best first."""
    folded = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower()[:NAME_MAX], folded, n=limit, cutoff=0.5)
    return tuple(folded[item] for item in found)
