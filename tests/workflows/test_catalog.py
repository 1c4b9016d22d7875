from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.workflows.catalog import (
    INTRINSICS,
    WIRE_NAME_MAX,
    admits,
    matches,
    near,
    source_of,
    wire_name,
)

NAMES = st.text("ab_-:/.*é\n", max_size=12)
GLOBS = st.text("ab*/:\n", max_size=10)
TOOLS = st.text("abAB09_-:/.é", min_size=1, max_size=90) | st.sampled_from(
    [
        "nika:done",
        "nika/done",
        "nika__done",
        "mcp:a/b",
        "mcp/a/b",
        "mcp:a:b",
        "mcp__a__b",
        "a/b",
        "a:b",
        "a__b",
        "a_b",
    ]
)


def _oracle(pattern: str, name: str) -> bool:
    """The same as a regular expression, made step by step."""
    parts = [
        ".*" if part.startswith("**") else "[^/:]*" if part == "*" else re.escape(part)
        for part in re.findall(r"\*+|[^*]", pattern)
    ]
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None


# -- matches, admits -------------------------------------------------------------------------------


@given(GLOBS, NAMES)
def test_matches_agrees_with_the_oracle(pattern: str, name: str) -> None:
    """`*` stops at `/` and `:`, `**` crosses them, anything else is itself."""
    assert matches(pattern, name) == _oracle(pattern, name)


@given(GLOBS, st.data())
def test_matches_what_its_stars_were_filled_with(pattern: str, data: st.DataObject) -> None:
    """A name made by filling in the stars of a glob matches it."""
    crossing, step = st.text("ab/:", max_size=4), st.text("ab", max_size=4)
    filled = re.sub(r"\*+", lambda m: data.draw(crossing if len(m[0]) > 1 else step), pattern)
    assert matches(pattern, filled)


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        ("files/*", "files/read", True),
        ("files/*", "files/", True),
        ("files/*", "files/a/b", False),
        ("files/**", "files/a/b", True),
        ("*", "read", True),
        ("*", "files/read", False),
        ("*", "mcp:git", False),
        ("**", "mcp:git/log", True),
        ("mcp:*/log", "mcp:git/log", True),
        ("***", "mcp:git/log", True),
        ("mcp:git/*", "mcp:github/log", False),
        ("", "", True),
        ("", "a", False),
        ("a", "", False),
        ("*a*", "bab", True),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
    ],
)
def test_matches_table(pattern: str, name: str, matched: bool) -> None:
    """The whole name must match, and only stars are special."""
    assert matches(pattern, name) is matched


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 5_000 + "b", "a" * 20_000),
        ("**a" * 5_000 + "b", "a" * 20_000),
        ("**/" * 5_000 + "x", "/" * 20_000),
    ],
    ids=["steps", "crossing", "slashes"],
)
def test_matches_is_linear(pattern: str, name: str) -> None:
    """A pattern made to backtrack does not."""
    began = time.process_time()
    assert not matches(pattern, name)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("patterns", "name", "admitted"),
    [
        ([], "read", False),
        (["*"], "read", True),
        (["*", "!read"], "read", False),
        (["!read", "*"], "read", True),
        (["*", "!r*", "read"], "read", True),
        (["!read"], "write", False),
        (["files/*", "!files/write"], "files/read", True),
        (["files/*", "!files/write"], "files/write", False),
        (["!"], "", False),
    ],
)
def test_admits_table(patterns: list[str], name: str, admitted: bool) -> None:
    """Default deny; `!` negates; the last match wins."""
    assert admits(patterns, name) is admitted


# -- wire_name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("read", "read"),
        ("files/read_all", "files__read_all"),
        ("nika:done", "nika__done"),
        ("mcp:git/git_log", "mcp__git__git_log"),
        ("a-b/c-d", "a-b__c-d"),
        ("a" * 64, "a" * 64),
    ],
)
def test_wire_name_of_plain_names_is_readable(name: str, plain: str) -> None:
    """An ordinary name only has its separators changed."""
    assert wire_name(name) == plain


@given(st.sets(TOOLS, max_size=12))
def test_wire_name_is_unique(names: set[str]) -> None:
    """Different tools have different names, also those that look alike."""
    assert len({wire_name(name) for name in names}) == len(names)


def test_wire_name_tells_look_alikes_apart() -> None:
    """Separators, doubled underscores, case, prefixes and length never make two tools one."""
    alike = ["nika:done", "nika/done", "nika__done", "nika_/done", "nika/_done", "nika:done/", "nika::done"]
    alike += [
        "mcp:a/b",
        "mcp/a/b",
        "mcp:a:b",
        "mcp:a__b",
        "mcp__a__b",
        "mcp_a_b",
        "x" * 64,
        "x" * 65,
        "x" * 66,
    ]
    alike += ["é", "è", "_", "__", "", "a.b", "a b", "a_b", "A_b", "3d", "_3d"]
    assert len({wire_name(name) for name in alike}) == len(alike)


def test_wire_name_is_unique_among_thousands() -> None:
    """Long names that differ at the end, or in one separator, stay apart."""
    names = [f"mcp:server/{'x' * 60}{n}" for n in range(5_000)] + [f"mcp:a.{n}/b" for n in range(5_000)]
    assert len({wire_name(name) for name in names}) == len(names)


@given(TOOLS | st.text(st.characters(exclude_categories=())))
def test_wire_name_is_safe(name: str) -> None:
    """Any name becomes one that all providers take."""
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", wire_name(name))
    assert len(wire_name(name)) <= WIRE_NAME_MAX


def test_wire_name_ignores_order_and_hash_seed(printed_by_seed: Callable[[str], set[str]]) -> None:
    """It depends on the name alone."""
    code = (
        "from mainspring.workflows.catalog import near, wire_name\n"
        "names = {f'mcp:s{n}/odd tool {n}' for n in range(20)}\n"
        "print(sorted(map(wire_name, names)), near('mcp:s1/od tool', sorted(names)))"
    )
    assert len(printed_by_seed(code)) == 1


# -- source_of, near -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [
        *((name, "builtin") for name in INTRINSICS),
        ("files/read", "builtin"),
        ("mcp:git/log", "mcp"),
        ("files", "other"),
        ("mcp/log", "other"),
        ("billing/charge", "other"),
        ("nika", "other"),
    ],
)
def test_source_of_table(name: str, source: str) -> None:
    """Where a name is counted."""
    assert source_of(name) == source


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("files/reed", ("files/read",)),
        ("FILES/READ", ("files/read",)),
        ("fils/write", ("files/write",)),
        ("zzz", ()),
        ("", ()),
        ("\ud800", ()),
    ],
)
def test_near_table(name: str, found: tuple[str, ...]) -> None:
    """The names most like a wrong one, best first; none where none is like it."""
    assert near(name, ["nika:done", "files/read", "files/write"], 1) == found


def test_near_is_bounded() -> None:
    """No more than `limit` names, and a name of any length costs no more than a long one."""
    known = [f"tool_{n}" for n in range(200)]
    assert len(near("tool_1", known, 2)) == 2
    began = time.process_time()
    near("tool_" * 100_000, known)
    assert time.process_time() - began < 2
