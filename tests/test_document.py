"""Strict YAML: what is read, what is refused and where, and that nothing else can happen."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.document import BYTES_MAX, DEPTH_MAX, Fault, Mark, parse

READ = [
    ("a: 1", {"a": 1}),
    ("a: on\nb: Off\nc: yes\nd: no", {"a": "on", "b": "Off", "c": "yes", "d": "no"}),
    ("on: 1\nno: 2", {"on": 1, "no": 2}),
    ("a: true\nb: False\nc: TRUE", {"a": True, "b": False, "c": True}),
    ("a: 12:30:45", {"a": "12:30:45"}),
    ("a: 2001-12-14", {"a": "2001-12-14"}),
    ("a: 0x1F\nb: 0o17\nc: 017\nd: +3\ne: -4", {"a": 31, "b": 15, "c": 17, "d": 3, "e": -4}),
    ("a: 0b11\nb: 1_000", {"a": "0b11", "b": "1_000"}),
    ("a: 1.5\nb: .5\nc: 1e3\nd: 5.", {"a": 1.5, "b": 0.5, "c": 1000.0, "d": 5.0}),
    ("a: '1'\nb: \"true\"", {"a": "1", "b": "true"}),
    ("a: ~\nb: null\nc:", {"a": None, "b": None, "c": None}),
    ("\ufeffa: 1", {"a": 1}),
    ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ("a: |\r\n  x\r\n  y\r\n", {"a": "x\ny\n"}),
    ("a: {b: [1, {c: d}]}", {"a": {"b": [1, {"c": "d"}]}}),
    ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
    ('"<<": 1', {"<<": 1}),
    ("'1': a", {"1": "a"}),
    ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
    ("# only\na: 1 # comments", {"a": 1}),
    ("null", None),
    ('"\\u00e9"', "é"),
    ('"\\ud83d\\ude00"', "😀"),
]


@pytest.mark.parametrize(("text", "value"), READ)
def test_text_is_read_as_yaml_1_2(text: str, value: object) -> None:
    """Scalars follow YAML 1.2's core schema, and types are exact: `1` is no boolean and no float."""
    assert json.dumps(parse(text.encode()).value) == json.dumps(value)


REFUSED = [
    ("a: 1\nb: 2\na: 3", Mark(3, 1), "'a' appears twice; first on line 1"),
    ("x:\n  - {k: 1, k: 2}", Mark(2, 12), "'k' appears twice"),
    ("a: &x {child: *x}", Mark(1, 15), "*x stands inside of &x"),
    ("a: &x [*x]", Mark(1, 8), "cannot contain itself"),
    ("a: *nowhere", Mark(1, 4), "*nowhere names no anchor"),
    ("a: &x 1\nb: &x 2", Mark(2, 4), "&x is defined twice"),
    ("b: {a: 1}\nc:\n  <<: {a: 1}", Mark(3, 3), "merge keys"),
    ("a: !!python/object/apply:os.system [echo]", Mark(1, 4), "tag"),
    ("a: !!str 1", Mark(1, 4), "tag"),
    ("!custom a: 1", Mark(1, 1), "a key must be plain text"),
    ("a: 1\n---\nb: 2", Mark(2, 1), "second document"),
    ("a:\n\tb: 1", Mark(2, 1), "tab"),
    ("1: a", Mark(1, 1), "'1' is not text"),
    ("true: a", Mark(1, 1), "'true' is not text"),
    ("null: a", Mark(1, 1), "not text"),
    ("? [x]\n: b", Mark(1, 3), "a key must be plain text"),
    ("{[x]: b}", Mark(1, 2), "a key must be plain text"),
    ("a: .nan", Mark(1, 4), ".nan is not a number"),
    ("a: -.inf", Mark(1, 4), "-.inf is not a number"),
    ("a: 1e999", Mark(1, 4), "too large"),
    ("a: 99999999999999999999", Mark(1, 4), "beyond 2^53"),
    ('a: "\\ud800"', Mark(1, 4), "surrogate"),
    ('a: "\\UFFFFFFFF"', Mark(1, 1), "cannot be read"),
    ("a: [1, 2", Mark(1, 9), "expected"),
    ("a: b: c", Mark(1, 5), "mapping values are not allowed"),
    ("a: 'x", Mark(1, 6), "end of stream"),
    ("a: \x07", Mark(1, 4), "U+0007"),
    ("", Mark(1, 1), "empty"),
    ("# nothing\n", Mark(1, 1), "empty"),
]


@pytest.mark.parametrize(("text", "mark", "words"), REFUSED)
def test_text_is_refused_where_it_is_wrong(text: str, mark: Mark, words: str) -> None:
    """What other readers guess is refused, with the place of it."""
    with pytest.raises(Fault) as raised:
        parse(text.encode())
    assert words in raised.value.message
    assert raised.value.mark == mark


def test_bytes_that_are_no_text_are_refused() -> None:
    """What is not UTF-8 is one clear fault on its line."""
    with pytest.raises(Fault, match="UTF-8") as raised:
        parse(b"a: 1\nb: \xff\xfe")
    assert raised.value.mark.line == 2


BOMBS = {
    "large": b"#" * (BYTES_MAX + 1),
    "deep": b"[" * 5_000,
    "deep mappings": b"{a: " * 5_000,
    "deep blocks": "".join(f"{' ' * n}a:\n" for n in range(1_000)).encode(),
    "many": b"[" + b"1," * 30_000 + b"]",
    "billion laughs": b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + b"".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n".encode() for n in range(9)
    ),
    "deep aliases": b"a0: &a0 1\n"
    + b"".join(f"a{n}: &a{n} {'[' * 40}*a{n - 1}{']' * 40}\n".encode() for n in range(1, 50)),
    "digits": b"a: " + b"9" * 5_000 + b"\nb: " + b"9" * 390,
    "version": b"%YAML 1." + b"9" * 5_000 + b"\n---\na: 1",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_time(name: str) -> None:
    """Bytes, depth, nodes and expansion are bounded; none of them costs more than seconds."""
    begun = time.perf_counter()
    with pytest.raises(Fault):
        parse(BOMBS[name])
    assert time.perf_counter() - begun < 20


def test_large_comment_is_read() -> None:
    """A comment of nearly a megabyte is no fault and takes bounded time."""
    begun = time.perf_counter()
    assert parse(b"a: 1 #" + b"x" * (BYTES_MAX - 100)).value == {"a": 1}
    assert time.perf_counter() - begun < 20


def test_depth_is_allowed_up_to_its_bound() -> None:
    """The deepest nesting that is allowed is read, and one level more is refused."""
    assert parse(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX).value is not None
    with pytest.raises(Fault, match="deeper"):
        parse(b"[" * (DEPTH_MAX + 2) + b"]" * (DEPTH_MAX + 2))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """Whatever the bytes are: a value that JSON can carry, or a Fault, and nothing else."""
    try:
        document = parse(raw)
    except Fault:
        return
    json.dumps(document.value, allow_nan=False).encode()


SIGNS = ["a", "b: ", "- ", "  ", "&x ", "*x", "? ", ": ", "{", "}", "[", "]", ",", "'", '"', ">", "#", "!t "]
SIGNS += [
    "<<: ",
    "\t",
    "~",
    "1",
    ".5",
    "on",
    "\\u",
    "\ufeff",
    "|",
    "\n",
    "\r\n",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
]
YAMLISH = st.lists(st.sampled_from(SIGNS), max_size=60).map("".join)


@settings(max_examples=500, deadline=None)
@given(YAMLISH)
def test_any_yaml_like_text_is_read_or_refused(text: str) -> None:
    """Text made of YAML's own signs meets no other exception either."""
    try:
        document = parse(text.encode())
    except Fault:
        return
    json.dumps(document.value, allow_nan=False).encode()


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_json_reads_as_itself(value: object) -> None:
    """JSON is YAML: what is written as JSON is read as that value."""
    assert parse(json.dumps(value).encode()).value == value


def test_place_of_every_part_is_known() -> None:
    """A path leads to the line and column of its value, of its key, or of what is nearest above it."""
    document = parse(b"a: 1\nb:\n  - x\n  - {c: 2, d: 3}\n")
    assert document.mark(("a",)) == Mark(1, 4)
    assert document.mark(("b", 1, "d")) == Mark(4, 15)
    assert document.mark(("b", 1, "d"), key=True) == Mark(4, 12)
    assert document.mark(("b", 1, "missing")) == Mark(4, 5)
    assert document.mark(("b", 7)) == Mark(3, 3)
    assert document.mark(()) == Mark(1, 1)
