"""BM25 over an inverted index, the same to the bit on any machine.

    score(document) = Σ over query tokens  idf · tf·(k1 + 1) / (tf + k1·(1 − b + b·length/average))
    idf             = ln((N − df + ½)/(df + ½) + 1)          k1 1.2, b 0.75; never negative

Every contribution is known when the index is made: idf by `decimal`, whose logarithm is correctly rounded,
the rest by single IEEE operations. Contributions are rounded to whole units of 2⁻³⁰ and their sums stay
below 2⁵³, so that adding them is exact, in whatever order. Pure.

Source: shared design, loop.md "Router".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mainspring.workflows.words import parts_of, runs, stem, telling

__all__ = ["K1", "UNIT", "B", "Index", "Term", "Text", "build", "idf"]

K1 = 1.2
B = 0.75

UNIT = 2.0**-30
"""Scores are whole numbers of it, held in floats."""

OCCURRENCES_MAX = 100_000
"""Of tokens in one query; beyond it, sums would no longer be exact."""

COMPOUND_MIN = 4
COMPOUND_MAX = 32
HALF_MIN = 3
"""Letters of a word that may be a compound, and of each half of one that no document writes apart."""

COMPOUNDS_KEPT = 4_096
BEGINNING = 5

WORK_MAX = 1_500_000
"""Of making one index, in the time that a known word takes (about 0.7 µs). A replaying workflow task may have
to make it, and has two seconds for all it does."""

SHARED_MOST = 1_000
"""Half of the work is shared out evenly; of the other half a document takes up to this: the first ones of a
catalog meet every word for the first time."""

NEW_WORD = 9
FOREIGN_CHARACTER = 5
"""What a word that was not seen before takes beyond its parts, and a character beyond ASCII, at worst."""

_EXACT = Context(prec=28)

Text = tuple[str, int]
"""A piece of a document, and how many times each of its tokens counts."""

Numbers = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Term:
    """A distinct word of a query.

    Args:
        token: Its stem.
        ways: Tokens that a document must have, all those of one way, to be about it.
    """

    token: str
    ways: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Index:
    """An inverted index, made by `build`.

    Args:
        size: Documents.
        vocabulary: Token → its number, in order of first occurrence.
        starts: Token's number → where its postings begin; one more at the end.
        documents: Postings: documents by number, ascending within a token.
        gains: Postings: what one occurrence in a query adds to the document's score, in units.
        masses: Token's number → its idf, in units.
        unknown: The idf of a token that no document has, in units: the greatest.
        written: Words as documents write them, folded and not stemmed.
        beginnings: The first letters of those: most pairs of words are no compound, and this says so at once.
        sequence: Numbers of all tokens as they follow each other; −1 where a text ends.
        places: Where each token stands in `sequence`, by token's number; begins at `place_starts`.
    """

    size: int
    vocabulary: dict[str, int]
    starts: Numbers
    documents: Numbers
    gains: Scores
    masses: Scores
    unknown: float
    written: frozenset[str]
    beginnings: frozenset[str]
    sequence: NDArray[np.int32]
    places: Numbers
    place_starts: Numbers
    _halves: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], repr=False)

    def mass(self, token: str) -> float:
        """A token's idf, in units."""
        number = self.vocabulary.get(token)
        return self.unknown if number is None else float(self.masses[number])

    def holders(self, token: str) -> Numbers:
        """The documents that have a token, ascending."""
        number = self.vocabulary.get(token)
        if number is None:
            return self.documents[:0]
        return self.documents[self.starts[number] : self.starts[number + 1]]

    def scores(self, bag: Mapping[str, int]) -> Scores:
        """Every document's score for tokens and their counts, in units: whole numbers, 0 for no overlap."""
        assert sum(bag.values()) <= OCCURRENCES_MAX, "a query is clipped before it is scored"
        asked = [
            (number, n) for token, n in bag.items() if (number := self.vocabulary.get(token)) is not None
        ]
        if not asked:
            return np.zeros(self.size, np.float64)
        token, count = np.array(asked, np.int64).T
        starts = self.starts[token]
        length = self.starts[token + 1] - starts
        ends = np.cumsum(length)
        postings = np.arange(ends[-1]) + np.repeat(starts - ends + length, length)
        gains = self.gains[postings] * np.repeat(count, length)
        return np.bincount(self.documents[postings], gains, self.size).astype(np.float64, copy=False)

    def bag(self, parts: Sequence[str]) -> dict[str, int]:
        """The tokens of a query and how often each counts, with what else documents may call them.

        Function words do not count beside others: a long prompt repeats them more than what it is about.
        A word written apart ("web page") adds the compound where a document has it; a compound adds its
        halves where a document writes them apart, or where no document has the compound.

        Args:
            parts: Words folded and not yet stemmed, in order, as `words.parts` gives them.
        """
        bag: dict[str, int] = {}
        for part in telling(parts):
            for token in (stem(part), *self.halves(part)):
                bag[token] = bag.get(token, 0) + 1
        for left, right in pairwise(parts):
            whole = self.compound(left, right)
            if whole is not None:
                bag[whole] = bag.get(whole, 0) + 1
        return bag

    def terms(self, parts: Sequence[str]) -> list[Term]:
        """The distinct words of a query, in order, with the ways in which a document may be about each."""
        ways: dict[str, dict[tuple[str, ...], None]] = {}
        for part in telling(parts):
            token = stem(part)
            ways.setdefault(token, {(token,): None})
            if halves := self.halves(part):
                ways[token][halves] = None
        for left, right in pairwise(parts):
            whole = self.compound(left, right)
            if whole is not None:
                for token in (stem(left), stem(right)):
                    if token in ways:
                        ways[token][(whole,)] = None
        return [Term(token, tuple(found)) for token, found in ways.items()]

    def compound(self, left: str, right: str) -> str | None:
        """The token of two words written as one, where a document has it."""
        joined = left + right
        if joined[:BEGINNING] not in self.beginnings or not _may_be_compound(joined):
            return None
        token = stem(joined)
        return token if token in self.vocabulary else None

    def halves(self, part: str) -> tuple[str, ...]:
        """The tokens of a compound's two halves; none where it is no compound here."""
        known = self._halves.get(part)
        if known is None:
            known = self._split(part)
            if len(self._halves) >= COMPOUNDS_KEPT:
                self._halves.clear()
            self._halves[part] = known
        return known

    def _split(self, part: str) -> tuple[str, ...]:
        if not _may_be_compound(part):
            return ()
        apart = stem(part) not in self.vocabulary
        likely: tuple[int, tuple[str, ...]] = (HALF_MIN - 1, ())
        for at in range(1, len(part)):
            if part[:at] not in self.written:
                continue
            left, right = stem(part[:at]), stem(part[at:])
            if right in self.vocabulary:
                if self.adjacent(left, right):
                    return left, right
                shorter = min(at, len(part) - at)
                if apart and shorter > likely[0]:
                    likely = (shorter, (left, right))
        return likely[1]

    def adjacent(self, left: str, right: str) -> bool:
        """Whether one token follows the other in any document."""
        number, following = self.vocabulary[left], self.vocabulary[right]
        places = self.places[self.place_starts[number] : self.place_starts[number + 1]]
        return bool((self.sequence[places + 1] == following).any())


def build(documents: Iterable[Sequence[Text]]) -> Index:
    """Index documents, each of one or more texts.

    Linear in the text but for sorting the tokens: about 10 µs a document of 30 words. The whole is bounded by
    `WORK_MAX`: a document is read as far as its share of that goes.
    """
    given = list(documents)
    left = shared = WORK_MAX // 2
    vocabulary: dict[str, int] = {}
    numbers: dict[str, list[int]] = {}
    written: set[str] = set()
    sequence: list[int] = []
    spans: list[tuple[int, int, int]] = []
    for document, texts in enumerate(given):
        own = left // (len(given) - document)
        share = granted = own + min(shared, SHARED_MOST)
        for text, weight in texts:
            began = len(sequence)
            if not text.isascii():
                text = text[: share // FOREIGN_CHARACTER]
                share -= len(text) * FOREIGN_CHARACTER
            foreign = not text.isascii()
            for run in runs(text):
                if share <= 0 and not foreign:
                    break
                run = run if foreign or len(run) <= share else run[:share]
                known = numbers.get(run)
                if known is None:
                    parts = parts_of(run)
                    written.update(parts)
                    known = [vocabulary.setdefault(stem(part), len(vocabulary)) for part in parts]
                    numbers[run] = known
                    share -= 0 if foreign else NEW_WORD
                share -= 0 if foreign else len(known)
                sequence += known
            spans.append((document, weight, len(sequence) - began))
            sequence.append(-1)
        used = granted - max(0, share)
        left, shared = left - min(used, own), shared - max(0, used - own)
    return _index(len(given), vocabulary, frozenset(written), np.array(sequence, np.int32), spans)


def _may_be_compound(word: str) -> bool:
    return COMPOUND_MIN <= len(word) <= COMPOUND_MAX and word.isascii() and word.isalpha()


def _index(
    size: int,
    vocabulary: dict[str, int],
    written: frozenset[str],
    sequence: NDArray[np.int32],
    spans: list[tuple[int, int, int]],
) -> Index:
    """Postings from the sequence of all tokens; `spans` tells each text's document, weight and tokens."""
    document, weight, count = np.array(spans, np.int64).reshape(-1, 3).T
    places = np.argsort(sequence, kind="stable")[len(spans) :]  # the −1 that end texts sort first
    token = sequence[places].astype(np.int64)
    text = np.repeat(np.arange(len(spans)), count + 1)[places]
    owner, counted = document[text], weight[text]
    place_starts = np.searchsorted(token, np.arange(len(vocabulary) + 1))
    length = np.bincount(document, weight * count, size)

    first = np.flatnonzero(np.diff(token * size + owner, prepend=-1))
    frequency = np.add.reduceat(counted, first) if len(first) else counted
    owners = owner[first]
    starts = np.searchsorted(token[first], np.arange(len(vocabulary) + 1))
    held = np.diff(starts)
    masses = _masses(size, held)

    average = float(length.sum()) / size if length.any() else 1.0
    norm = K1 * (1.0 - B + B * (length / average))
    gains = np.repeat(masses, held) * (frequency * (K1 + 1.0)) / (frequency + norm[owners])
    return Index(
        size=size,
        vocabulary=vocabulary,
        starts=starts,
        documents=owners,
        gains=np.rint(gains / UNIT),
        masses=np.rint(masses / UNIT),
        unknown=float(np.rint(idf(size, 0) / UNIT)),
        written=written,
        beginnings=frozenset(word[:BEGINNING] for word in written),
        sequence=sequence,
        places=places,
        place_starts=place_starts,
    )


def _masses(size: int, held: Numbers) -> Scores:
    """The idf of each token, from the number of documents that hold it; one logarithm for each number."""
    distinct, which = np.unique(held, return_inverse=True)
    return np.array([idf(size, int(df)) for df in distinct], np.float64)[which]


def idf(size: int, df: int) -> float:
    """`ln((N − df + ½)/(df + ½) + 1)`, the float nearest to it."""
    ratio = _EXACT.divide(Decimal(2 * size + 2), Decimal(2 * df + 1))
    return float(_EXACT.ln(ratio))
