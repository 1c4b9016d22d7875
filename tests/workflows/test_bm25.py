from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from mainspring.workflows.bm25 import UNIT, Index, Term, build, idf
from mainspring.workflows.words import parts, tokens

VOCABULARY = [
    "search",
    "mail",
    "file",
    "read",
    "web",
    "page",
    "webpage",
    "東京",
    "x9",
    "naïve",
    "list",
    "git",
]
TEXTS = st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join)
DOCUMENTS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=12)
QUERIES = st.lists(st.sampled_from([*VOCABULARY, "unknown"]), max_size=8)


class Oracle(BM25Okapi):
    """rank_bm25's own BM25 with the k1, b and idf of the design; what it ranks is as it does."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        size = self.corpus_size
        self.idf = {word: math.log((size - df + 0.5) / (df + 0.5) + 1) for word, df in nd.items()}


def _index(documents: Sequence[tuple[str, str]]) -> Index:
    return build(((name, 3), (text, 1)) for name, text in documents)


def _oracle(documents: Sequence[tuple[str, str]]) -> Oracle:
    return Oracle([tokens(name) * 3 + tokens(text) for name, text in documents], k1=1.2, b=0.75)


def _counts(words: Sequence[str]) -> dict[str, int]:
    said = tokens(" ".join(words))
    return {token: said.count(token) for token in said}


# -- scores ----------------------------------------------------------------------------------------


@given(DOCUMENTS, QUERIES)
def test_scores_are_those_of_rank_bm25(documents: list[tuple[str, str]], words: list[str]) -> None:
    """With k1, b and idf set equal, an independent implementation gives the same scores, up to rounding."""
    assume(any(tokens(f"{name} {text}") for name, text in documents))
    ours = _index(documents).scores(_counts(words)) * UNIT
    theirs = _oracle(documents).get_scores(tokens(" ".join(words)))
    assert np.allclose(ours, theirs, rtol=1e-8, atol=1e-7)


@given(DOCUMENTS, QUERIES)
def test_scores_order_as_rank_bm25_does(documents: list[tuple[str, str]], words: list[str]) -> None:
    """Of two documents that the oracle tells apart, the same one is ahead."""
    assume(any(tokens(f"{name} {text}") for name, text in documents))
    ours = _index(documents).scores(_counts(words))
    theirs = _oracle(documents).get_scores(tokens(" ".join(words)))
    for one in range(len(documents)):
        for other in range(len(documents)):
            if theirs[one] > theirs[other] + 1e-6:
                assert ours[one] > ours[other]


@given(DOCUMENTS, QUERIES)
def test_scores_are_whole_and_exact_in_any_order(documents: list[tuple[str, str]], words: list[str]) -> None:
    """Scores are whole numbers of units, and the order in which a query names its tokens changes no bit."""
    index = _index(documents)
    counts = _counts(words)
    scores = index.scores(counts)
    assert (scores == np.rint(scores)).all()
    assert scores.max(initial=0) < 2**53
    reverse = index.scores(dict(reversed(counts.items())))
    single = sum((index.scores({token: count}) for token, count in counts.items()), np.zeros(index.size))
    assert scores.tobytes() == reverse.tobytes() == single.tobytes()


@given(DOCUMENTS, QUERIES)
def test_scores_are_positive_exactly_where_a_token_is_shared(
    documents: list[tuple[str, str]], words: list[str]
) -> None:
    """No token is so common that sharing it counts nothing, and nothing else counts."""
    scores = _index(documents).scores(_counts(words))
    asked = set(_counts(words))
    shared = [bool(asked & set(tokens(f"{name} {text}"))) for name, text in documents]
    assert (scores > 0).tolist() == shared
    assert (scores >= 0).all()


def test_scores_count_a_token_as_often_as_it_is_asked() -> None:
    """Asking twice is twice the score."""
    index = _index([("mail", "send mail"), ("file", "read a file")])
    assert (index.scores({"mail": 2}) == 2 * index.scores({"mail": 1})).all()


@pytest.mark.parametrize("documents", [[], [("", "")], [("", ""), ("", "…")]])
def test_scores_of_nothing_are_zero(documents: list[tuple[str, str]]) -> None:
    """An index without tokens, or without documents, scores and knows nothing."""
    index = _index(documents)
    assert index.scores({"mail": 1}).tolist() == [0.0] * len(documents)
    assert index.holders("mail").tolist() == []
    assert index.bag(["web", "page"]) == {"web": 1, "page": 1}


@pytest.mark.parametrize(
    ("size", "df"), [(1, 0), (1, 1), (10_000, 1), (10_000, 10_000), (7, 3), (123_456, 77)]
)
def test_idf_is_the_float_nearest_to_its_logarithm(size: int, df: int) -> None:
    """The formula to 60 digits, rounded once."""
    with localcontext(prec=60):
        half = Decimal("0.5")
        exact = ((size - df + half) / (df + half) + 1).ln()
        assert idf(size, df) == float(exact) > 0


@given(st.permutations(range(6)))
def test_scores_follow_their_documents(order: list[int]) -> None:
    """The order of documents moves scores and changes none."""
    documents = [
        (word, f"{word} a file of {other}")
        for word, other in zip(VOCABULARY[:6], VOCABULARY[6:], strict=True)
    ]
    asked = _counts(["mail", "file", "web", "git"])
    scores = _index(documents).scores(asked)
    moved = _index([documents[at] for at in order]).scores(asked)
    assert moved.tolist() == [scores[at] for at in order]


def test_index_is_the_same_in_every_process(printed_by_seed: Callable[[str], set[str]]) -> None:
    """Postings, gains and scores are equal to the byte whatever the hash seed."""
    code = (
        "from hashlib import blake2b\n"
        "from mainspring.workflows.bm25 import build\n"
        "texts = ((f'tool_{n} web{n % 7}', f'read page {n % 5} of list {n % 11}') for n in range(300))\n"
        "docs = [((name, 3), (text, 1)) for name, text in texts]\n"
        "index = build(docs)\n"
        "scores = index.scores(index.bag('webpage read list of 3 web pages'.split()))\n"
        "arrays = (index.starts, index.documents, index.gains, index.masses, index.places, scores)\n"
        "print([blake2b(array.tobytes()).hexdigest() for array in arrays], list(index.vocabulary))"
    )
    assert len(printed_by_seed(code)) == 1


# -- compounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "words", "bag"),
    [
        (["fetch a webpage"], "web page", {"web": 1, "page": 1, "webpag": 1}),
        (["fetch a webpage"], "web pages", {"web": 1, "page": 1, "webpag": 1}),
        (["fetch a web page"], "webpage", {"webpag": 1, "web": 1, "page": 1}),
        (["fetch a web page"], "webpages", {"webpag": 1, "web": 1, "page": 1}),
        (["a web page", "a webpage"], "webpage", {"webpag": 1, "web": 1, "page": 1}),
        (["a web", "a page", "a webpage"], "webpage", {"webpag": 1}),
        (["e-mail somebody"], "email", {"email": 1, "e": 1, "mail": 1}),
        (["an email"], "e-mail", {"e": 1, "mail": 1, "email": 1}),
        (["a GitHub issue"], "github", {"github": 1, "git": 1, "hub": 1}),
        (["log in"], "login", {"login": 1, "log": 1, "in": 1}),
        (["spread", "sheet"], "spreadsheet", {"spreadsheet": 1, "spread": 1, "sheet": 1}),
        (["read"], "spreadsheet", {"spreadsheet": 1}),
        (["a web page"], "東京web", {"東京": 1, "web": 1}),
    ],
)
def test_bag_meets_compounds_both_ways(documents: list[str], words: str, bag: dict[str, int]) -> None:
    """I4: written apart or as one, in the query or in a document, a compound is found; nothing is made up."""
    assert build([((text, 1),) for text in documents]).bag(parts(words)) == bag


def test_halves_do_not_reach_across_texts() -> None:
    """The last word of a name and the first of a description are not neighbours, nor those of two tools."""
    index = build([(("web", 3), ("page", 1)), (("web", 3),), (("page", 3),), (("webpage", 1),)])
    assert index.halves("webpage") == ()


def test_terms_tell_the_ways_to_be_about_a_word() -> None:
    """A word is met by itself, by its compound, or by both its halves; function words are not asked for."""
    index = build([(("fetch a webpage", 1),), (("a git hub", 1),)])
    assert index.terms(parts("the web page on github")) == [
        Term("web", (("web",), ("webpag",))),
        Term("page", (("page",), ("webpag",))),
        Term("github", (("github",), ("git", "hub"))),
    ]


def test_halves_remember_a_bounded_number_of_words() -> None:
    """However many words are asked for, what is remembered does not grow without end, nor change."""
    index = build([(("a web page", 1),)])
    found = {index.halves(f"webpage{'x' * (n % 20)}{chr(97 + n % 26)}") for n in range(200)}
    for n in range(10_000):
        index.halves(f"word{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676 % 26)}")
    assert len(index._halves) <= 4_096
    assert found == {()}
    assert index.halves("webpage") == ("web", "page")
