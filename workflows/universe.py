"""The universe: all tools of an agent, in order, and the index that they are ranked by.

A universe is found by the digest of its tools, so all runs of a process that have the same tools share one,
and one index, which is made when it is first asked for. Pure: what is kept is a function of the digest.

Source: shared design, loop.md "Router".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows import bm25
from mainspring.workflows.catalog import admits, source_of

__all__ = ["Universe", "counted", "universe"]

NAME_WEIGHT = 3
DESCRIPTION_CHARACTERS = 4_096
"""Of one description in the index; `bm25.WORK_MAX` bounds all of them together."""

_MAKER = ThreadPoolExecutor(1, thread_name_prefix="mainspring-index")
"""Makes indexes. A workflow task that waits too long is interrupted by Temporal and begins anew, but what it
waited for is made. Fifty runs that replay at once wait for one index, and do not make one each."""

UNIVERSES_KEPT = 32
PINS_KEPT = 64


class _Tool(NamedTuple):
    """What the router knows of a tool."""

    name: str
    description: str
    core: bool
    intrinsic: bool


@dataclass(slots=True, eq=False)
class Universe:
    """All tools of an agent, in order. One object for all runs of a process that have the same tools.

    Args:
        digest: 16 bytes over order, names, descriptions and declarations that the router reads.
        names: In universe order.
        by_source: How many there are of each source.
    """

    digest: bytes
    names: tuple[str, ...]
    by_source: dict[str, int]
    _tools: tuple[_Tool, ...] = field(repr=False)
    _places: dict[str, int] = field(repr=False)
    _pinned: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict, repr=False)
    _index: bm25.Index | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def index(self) -> bm25.Index:
        """The index over names and descriptions; made once, when first asked for."""
        if self._index is None:
            mine = _MAKER.submit(self._made)
            first = _making(self.digest).setdefault("index", mine)
            if first is not mine:
                mine.cancel()
            self._index = first.result()
        return self._index

    def _made(self) -> bm25.Index:
        return bm25.build(
            ((tool.name, NAME_WEIGHT), (tool.description[:DESCRIPTION_CHARACTERS], 1)) for tool in self._tools
        )

    def places(self, names: Iterable[str]) -> tuple[int, ...]:
        """Where these names stand, ascending; names of no tool are left out."""
        found = {place for name in names if (place := self._places.get(name)) is not None}
        return tuple(sorted(found))

    def pinned(self, pin: tuple[str, ...]) -> tuple[int, ...]:
        """Where the tools stand that are offered in every turn, with these globs of the agent's."""
        found = self._pinned.get(pin)
        if found is None:
            if len(self._pinned) >= PINS_KEPT:
                self._pinned.clear()
            found = self._pinned[pin] = tuple(
                place
                for place, tool in enumerate(self._tools)
                if tool.core or tool.intrinsic or (pin and admits(pin, tool.name))
            )
        return found

    def searched(self) -> NDArray[np.bool_]:
        """For each tool whether a search may find it: intrinsics are offered in every turn anyhow."""
        return np.array([not tool.intrinsic for tool in self._tools], np.bool_)


@lru_cache(maxsize=UNIVERSES_KEPT)
def _making(_: bytes) -> dict[str, Future[bm25.Index]]:
    """Where an index is being made, by its universe's digest: several threads may each have a universe."""
    return {}


def universe(tools: Sequence[ToolDeclaration]) -> Universe:
    """The universe of these tools, in the order given; the process's own one where it has it already."""
    known = tuple(_Tool(tool.name, tool.description, tool.core, tool.source == "intrinsic") for tool in tools)
    return _shared(_Listing(_digest(known), known))


@dataclass(frozen=True, slots=True)
class _Listing:
    """Tools under their digest, by which they are compared."""

    digest: bytes
    tools: tuple[_Tool, ...] = field(compare=False)


def _digest(tools: Sequence[_Tool]) -> bytes:
    told = "".join(
        f"{len(name)}:{name}{len(description)}:{description}{core:d}{intrinsic:d}"
        for name, description, core, intrinsic in tools
    )
    return blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@lru_cache(maxsize=UNIVERSES_KEPT)
def _shared(listing: _Listing) -> Universe:
    names = tuple(tool.name for tool in listing.tools)
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return Universe(listing.digest, names, counted(names), listing.tools, places)


def counted(names: Iterable[str]) -> dict[str, int]:
    """How many of these names there are of each source; the order of sources is always the same."""
    counts = {"builtin": 0, "mcp": 0, "other": 0}
    for name in names:
        counts[source_of(name)] += 1
    return counts
