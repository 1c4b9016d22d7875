"""The catalog: which tools an agent's patterns admit, and what providers are told they are called.

Pure. Source: shared design, tools.md (globs), loop.md "Intrinsics" (names).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

__all__ = ["INTRINSICS", "WIRE_NAME_MAX", "admits", "matches", "near", "source_of", "wire_name"]

INTRINSICS: tuple[str, ...] = ("nika:done", "nika:compose", "nika:ask", "nika:find_tools", "nika:recall")
"""Tools that the loop itself serves. Any upstream definition of such a name is dropped."""

WIRE_NAME_MAX = 64
NAME_MAX = 256


@dataclass(frozen=True, slots=True)
class _Glob:
    """A glob as bits: bit n of each stands for its n-th token, a character or a star; runs of stars are one.

    Args:
        characters: For each character, the tokens that take it.
        steps: Stars that stop at `/` and `:`.
        crossing: Stars that do not.
        end: The bit beyond the last token.
    """

    characters: dict[str, int]
    steps: int
    crossing: int
    end: int


@lru_cache(maxsize=4_096)
def _glob(pattern: str) -> _Glob:
    characters: dict[str, int] = {}
    steps = crossing = 0
    bit = 1
    for token in re.findall(r"\*+|[^*]", pattern):
        if token[0] != "*":
            characters[token] = characters.get(token, 0) | bit
        elif len(token) > 1:
            crossing |= bit
        else:
            steps |= bit
        bit <<= 1
    return _Glob(characters, steps, crossing, bit)


def matches(pattern: str, name: str) -> bool:
    """Whether a glob matches the whole name: `*` stops at `/` and `:`, `**` crosses them.

    Linear in the name: all positions of the glob that may come next are carried at once, nothing is tried
    again.
    """
    glob = _glob(pattern)
    stars = glob.steps | glob.crossing
    at = 1 | (1 & stars) << 1
    for character in name:
        stays = at & (glob.crossing if character in "/:" else stars)
        at = stays | (at & glob.characters.get(character, 0)) << 1
        at |= (at & stars) << 1
        if not at:
            return False
    return bool(at & glob.end)


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
    if len(plain) <= WIRE_NAME_MAX and _one_to_one(name, segments):
        return plain
    mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    led = safe if re.match(r"[A-Za-z_]", safe) else f"_{safe}"
    return f"{led[: WIRE_NAME_MAX - 3 - len(mark)]}___{mark}"


def _one_to_one(name: str, segments: list[str]) -> bool:
    """Whether no other name has these segments, and each may stand in a provider's name as it is."""
    ours = segments[0] in ("nika", "mcp")
    if ours != (":" in name) or name.count(":") > 1 or (ours and not name.startswith(f"{segments[0]}:")):
        return False
    return name[:1].isalpha() and all(_PLAIN_SEGMENT.fullmatch(segment) for segment in segments)


def near(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The known names most like a wrong one, best first."""
    folded = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower()[:NAME_MAX], folded, n=limit, cutoff=0.5)
    return tuple(folded[item] for item in found)
