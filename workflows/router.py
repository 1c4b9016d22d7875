"""The router: which tools the model is offered this turn.

    fewer than `threshold`       all of them, byte-identical each turn: a provider's prompt cache stays warm
    words that some tool shares  the best `top` by BM25 ∪ pinned ∪ recent, in universe order
    words that none shares       all of them: a blind model is worse than a crowded one
    sticky                       what the exchange already offers, and what is added to it; it only grows

Pinned are intrinsics, tools declared `core`, and the agent's `pin` globs. Equal scores go to the lower place
in the universe. Pure: an offer is a function of its arguments, to the bit.

Source: shared design, loop.md "Router"; field-faults.md I.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mainspring.schemas.agent import RoutingSpec
from mainspring.workflows import bm25
from mainspring.workflows.universe import Universe, counted, universe
from mainspring.workflows.words import parts

__all__ = [
    "Found",
    "Offer",
    "Ranked",
    "Universe",
    "everything",
    "query",
    "recent",
    "route",
    "search",
    "universe",
]

RECENT_TURNS = 2
"""A tool that was used stays offered for so many turns."""

DIRECTIVE_CHARACTERS = 2_048
LAST_TEXT_CHARACTERS = 1_024
OBSERVATION_CHARACTERS = 512
OBSERVATIONS_CHARACTERS = 1_024
"""Of a query: each part is cut by itself, so that a long prompt cannot push the observations out."""

WORDS_CHARACTERS = 16_384
SEARCH_CHARACTERS = 1_024
"""Of words that are ranked by, whoever made them."""

COVERED_LEAST = 0.3
COVERED_WELL = 0.5
"""Of a search's words, by idf: what a tool must share to be found, and the best one for a strong answer."""

_ASKING = frozenset(parts("find please tool tools use used uses using via want"))
"""What every search says: whether a tool shares it does not count."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A tool and its BM25 score."""

    name: str
    score: float


@dataclass(frozen=True, slots=True)
class Offer:
    """What is offered of the universe, and why.

    Args:
        names: In universe order; "all" is the whole of it.
        by_source: Of what is offered; the counts add up to `offered`.
        why: `small`: passed through; `ranked`; `no_overlap`: failed open; `sticky`: kept from earlier turns.
        ranked: The best matches and their scores, best first; empty where nothing was ranked.
        pinned: Names offered whatever their rank.
        recent: Names offered because they were used lately.
    """

    names: Literal["all"] | tuple[str, ...]
    offered: int
    universe: int
    by_source: dict[str, int]
    why: Literal["small", "ranked", "no_overlap", "sticky"] = "small"
    ranked: tuple[Ranked, ...] = ()
    pinned: tuple[str, ...] = ()
    recent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a search of the catalog came to.

    Args:
        tools: Those that share enough of the words, best first; maybe none.
        weak: Even the best shares too little: there is probably no such tool.
    """

    tools: tuple[Ranked, ...]
    weak: bool


# -- routing ---------------------------------------------------------------------------------------


def query(directive: str, last_text: str, observations: Sequence[str]) -> str:
    """The words that tools are ranked by.

    Args:
        directive: What the exchange works on.
        last_text: The last assistant text that is not empty.
        observations: Those of the last turn, in the order of the calls.
    """
    seen = ""
    for observation in observations:
        if len(seen) >= OBSERVATIONS_CHARACTERS:
            break
        clipped = observation[:OBSERVATION_CHARACTERS]
        seen = f"{seen} {clipped}" if seen else clipped
    asked, answered = directive[:DIRECTIVE_CHARACTERS], last_text[:LAST_TEXT_CHARACTERS]
    return " ".join(part for part in (asked, answered, seen[:OBSERVATIONS_CHARACTERS]) if part)


def recent(used: Mapping[str, int], turn: int) -> tuple[str, ...]:
    """The tools that were used lately, as seen from `turn`; `used` has each with the turn of its last use."""
    return tuple(name for name, last in used.items() if last >= turn - RECENT_TURNS)


def route(
    universe: Universe,
    spec: RoutingSpec,
    words: str,
    recent: Collection[str] = (),
    *,
    kept: Literal["all"] | Collection[str] | None = None,
    widen: bool = False,
) -> Offer:
    """What the model is offered this turn.

    Args:
        universe: What the agent may use.
        spec: The agent's.
        words: As `query` makes them.
        recent: Tools used within the last two turns; names of no tool are passed over.
        kept: Names of the exchange's last offer, where `spec.sticky`; the offer is new when there are none.
        widen: Also rank anew and add what is best, where an offer is kept.
    """
    if len(universe) < spec.threshold:
        return everything(universe)
    sticky = spec.sticky and bool(kept)
    pinned, used = universe.pinned(spec.pin), universe.places(recent)
    best = () if sticky and not widen else _best(universe, words, spec.top)
    if sticky:
        stays = range(len(universe)) if kept == "all" else universe.places(kept or ())
    else:
        stays = () if best else range(len(universe))
    return _offer(
        universe,
        {*stays, *pinned, *used, *(place for place, _ in best)},
        why="sticky" if sticky else "ranked" if best else "no_overlap",
        ranked=tuple(Ranked(universe.names[place], score) for place, score in best),
        pinned=tuple(universe.names[place] for place in pinned),
        recent=tuple(universe.names[place] for place in used),
    )


def everything(universe: Universe) -> Offer:
    """The whole universe, whatever its size."""
    return Offer("all", len(universe), len(universe), dict(universe.by_source))


def _offer(
    universe: Universe,
    places: set[int],
    *,
    why: Literal["ranked", "no_overlap", "sticky"],
    ranked: tuple[Ranked, ...],
    pinned: tuple[str, ...],
    recent: tuple[str, ...],
) -> Offer:
    size = len(universe)
    if len(places) == size:
        return Offer("all", size, size, dict(universe.by_source), why, ranked, pinned, recent)
    names = tuple(universe.names[place] for place in sorted(places))
    return Offer(names, len(names), size, counted(names), why, ranked, pinned, recent)


def _best(universe: Universe, words: str, limit: int) -> tuple[tuple[int, float], ...]:
    """Places and scores of the best tools, best first; only such as share a word."""
    index = universe.index
    return _top(index.scores(index.bag(parts(words[:WORDS_CHARACTERS]))), limit)


def _top(scores: bm25.Scores, limit: int) -> tuple[tuple[int, float], ...]:
    """The greatest scores above 0, greatest first; equal ones in the order of their places."""
    places = np.flatnonzero(scores > 0)
    if len(places) > limit:
        least = np.partition(scores[places], -limit)[-limit]
        places = places[scores[places] >= least]
    ordered = places[np.lexsort((places, -scores[places]))][:limit]
    return tuple((int(place), float(scores[place]) * bm25.UNIT) for place in ordered)


# -- searching -------------------------------------------------------------------------------------


def search(universe: Universe, words: str, limit: int = 5) -> Found:
    """The tools that a model asks for in its own words; intrinsics are not searched.

    One shared common word is no match: a tool is found when it shares enough of the words, weighed by how
    rare they are, where a word that no tool has weighs most. Best are those with the greatest score times
    share. A tool's exact name finds it first, also an intrinsic.
    """
    index = universe.index
    said = parts(words[:SEARCH_CHARACTERS])
    covered = _coverage(index, said)
    scores = index.scores(index.bag(said))
    merits = np.where((covered >= COVERED_LEAST) & universe.searched(), scores * covered, 0.0)
    named = universe.places([words.strip()])
    best = [*named, *(place for place, _ in _top(merits, limit) if place not in named)][:limit]
    weak = not named and not any(covered[place] >= COVERED_WELL for place in best)
    return Found(
        tuple(Ranked(universe.names[place], float(scores[place]) * bm25.UNIT) for place in best), weak
    )


def _coverage(index: bm25.Index, said: Sequence[str]) -> bm25.Scores:
    """For each tool, which share of the words it has, by idf: 0 to 1."""
    terms = index.terms([part for part in said if part not in _ASKING] or said)
    covered = np.zeros(index.size, np.float64)
    total = 0.0
    for term in terms:
        mass = index.mass(term.token)
        total += mass
        held = np.zeros(index.size, np.bool_)
        for way in term.ways:
            holds = np.ones(index.size, np.bool_)
            for token in way:
                has = np.zeros(index.size, np.bool_)
                has[index.holders(token)] = True
                holds &= has
            held |= holds
        covered[held] += mass
    return covered / total if total else covered
