"""The universe's index: made once, and in bounded work whatever the tools say.

Source: shared design, loop.md "Router".
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.bm25 import FOREIGN_CHARACTER, NEW_WORD, WORK_MAX, Index
from mainspring.workflows.universe import Universe, universe
from mainspring.workflows.words import tokens

TOOLS = 500


def described(*descriptions: str) -> Universe:
    """One tool for each description."""
    return universe(
        [ToolDeclaration(name=f"t{i}", description=said, source="mcp") for i, said in enumerate(descriptions)]
    )


def spelt(number: int) -> str:
    """A number in letters, one way only."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def test_index_is_made_once_by_all_who_ask_at_once() -> None:
    """Runs that replay at the same moment wait for one index, whichever of them came first."""
    tools = [ToolDeclaration(name=f"once{i}", description="word " * 50) for i in range(2_000)]
    together = Barrier(8)

    def ask(_: int) -> Index:
        together.wait()
        return universe(list(tools)).index

    with ThreadPoolExecutor(8) as threads:
        indexes = list(threads.map(ask, range(8)))
    assert all(index is indexes[0] for index in indexes)


@pytest.mark.parametrize(
    ("made", "work"),
    [
        (
            lambda i: "".join(chr(0x4E00 + (i * 4_099 + k * 7) % 20_000) for k in range(4_096)),
            FOREIGN_CHARACTER,
        ),
        (lambda i: "\ufdfa" * 4_096, FOREIGN_CHARACTER),
        (lambda i: "a" + "\u0301\u0323" * 2_048, FOREIGN_CHARACTER),
        (lambda i: " ".join(f"{spelt(i)}x{spelt(k)}" for k in range(600)), NEW_WORD + 1),
        (lambda i: "aB1" * 1_365, 1),
    ],
    ids=["chinese", "expanding", "combining", "new words", "one long word"],
)
def test_index_is_bounded_whatever_descriptions_say(made: Callable[[int], str], work: int) -> None:
    """No catalog makes more work than a replaying workflow task has time for; every tool has its share."""
    index = described(*(made(i) for i in range(TOOLS))).index
    assert len(index.vocabulary) * work <= WORK_MAX
    assert len(index.holders("t")) == TOOLS, "a name is left out"
    assert TOOLS - 1 in index.holders(tokens(made(TOOLS - 1)[:12])[0]), "the last tool has no share"


def test_index_takes_usual_catalogs_whole() -> None:
    """Ten thousand tools with a hundred words each lose none of them."""
    said = " ".join(f"word{chr(97 + k % 26)}{chr(97 + k // 26)}" for k in range(100))
    index = described(*(f"{said} last" for _ in range(10_000))).index
    assert len(index.holders("last")) == 10_000
