from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import time
import uuid
from collections import namedtuple
from collections.abc import Callable
from itertools import count
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mainspring.workflows.values import (
    DEPTH_MAX,
    INTEGER_MAX,
    Malformed,
    Parsed,
    bounded,
    clip,
    nesting,
    parse_json,
    preview,
    render,
    safe_text,
    safe_value,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.binary(max_size=8)
    | st.decimals()
    | st.datetimes()
    | st.complex_numbers()
)
KEYS = ANY_TEXT | st.integers() | st.none() | st.booleans() | st.floats() | st.tuples(st.integers())
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.frozensets(ANY_TEXT | st.integers() | st.tuples(ANY_TEXT), max_size=4)
    ),
    max_leaves=12,
)


def strict(value: object) -> Any:
    """The value after a round trip through the strictest JSON there is."""
    return json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8"))


def _depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth_of, value), default=0)
    return 0


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def _seconds_of(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


# -- safe_text, clip, render, preview --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("", ""),
        ("plain é 漢 🍸", "plain é 漢 🍸"),
        ("\ud83c\udf78", "🍸"),
        ("\ud83c", "\ufffd"),
        ("\udf78\ud83c", "\ufffd\ufffd"),
        ("a\ud83cb", "a\ufffdb"),
        ("a\x00b", "a\ufffdb"),
        ("\x00\ud800", "\ufffd\ufffd"),
    ],
)
def test_safe_text_table(text: str, safe: str) -> None:
    """Lone surrogates and NULs become U+FFFD, a split pair its character, and nothing else changes."""
    assert safe_text(text) == safe


@given(ANY_TEXT)
def test_safe_text_is_encodable_and_stable(text: str) -> None:
    """The result encodes as UTF-8, holds no NUL, and making it safe again changes nothing."""
    safe = safe_text(text)
    safe.encode("utf-8")
    assert "\x00" not in safe
    assert safe_text(safe) == safe


@given(ANY_TEXT, st.integers(0, 40))
def test_clip_is_one_short_line(text: str, limit: int) -> None:
    """Whatever the text, the result has one line, no control character, at most `limit` characters."""
    line = clip(text, limit)
    line.encode("utf-8")
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert not any(ord(character) < 32 for character in line)


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("short", 10, "short"),
        ("  kept  as it is ", 40, "  kept  as it is "),
        ("two\nlines", 40, "two lines"),
        ("two\r\nlines\u2028more\x85end", 40, "two lines more end"),
        ("a\x00b", 40, "a b"),
        ("pay\u202egnihton\u2066x", 40, "pay gnihton x"),
        ("0123456789", 10, "0123456789"),
        ("0123456789x", 10, "012345678…"),
        ("ab", 1, "…"),
    ],
)
def test_clip_table(text: str, limit: int, line: str) -> None:
    """Line breaks of every kind become spaces; what is cut ends in an ellipsis."""
    assert clip(text, limit) == line


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("as it is\n", "as it is\n"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
    ],
)
def test_render_table(content: Any, shown: str) -> None:
    """Text is shown as it is, anything else as compact JSON."""
    assert render(content) == shown


@given(ANY_TEXT, st.integers(0, 64))
def test_preview_is_bounded_and_whole(text: str, limit: int) -> None:
    """At most `limit` bytes of the text and one marker; what is left is its head and tail, unsplit."""
    shown = preview(text, limit=limit)
    if shown != text:
        head, marker, tail = shown.partition("\n[… ")[0], shown, shown.rpartition(" …]\n")[2]
        readable = text.encode("utf-8", "replace").decode()
        assert len(marker.encode()) <= limit + 60
        assert readable.startswith(head)
        assert readable.endswith(tail)


@pytest.mark.parametrize("character", ["a", "é", "漢", "🍸"])
@pytest.mark.parametrize("limit", [30, 31, 32, 33])
def test_preview_counts_what_it_leaves_out(character: str, limit: int) -> None:
    """The marker's bytes and those shown add up to the whole."""
    raw = len((character * 100).encode())
    shown = preview(character * 100, limit=limit)
    head, tail = shown.split("\n")[0], shown.split("\n")[-1]
    kept = len(head.encode()) + len(tail.encode())
    assert f"{raw - kept} of {raw} bytes" in shown
    assert kept > limit - 8


def test_preview_keeps_what_fits() -> None:
    """A text of exactly `limit` bytes is not touched, and one byte more is."""
    assert preview("x" * 100, limit=100) == "x" * 100
    assert preview("x" * 101, limit=100, note=", see it").count(", see it") == 1


# -- safe_value ------------------------------------------------------------------------------------


@given(ANYTHING)
def test_safe_value_is_strict_json(value: object) -> None:
    """Any value becomes JSON that the strictest reader reads back as it is, within the depth."""
    safe = safe_value(value)
    assert strict(safe) == safe
    assert _depth_of(safe) <= DEPTH_MAX


@given(ANYTHING)
def test_safe_value_is_stable(value: object) -> None:
    """Made safe twice is made safe once."""
    safe = safe_value(value)
    assert safe_value(safe) == safe


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | st.text("aé漢🍸\n"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
        max_leaves=10,
    )
)
def test_safe_value_keeps_plain_json(value: object) -> None:
    """What is safe already comes back equal and of the same types."""
    assert repr(safe_value(value)) == repr(value)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(namedtuple("Point", "x y")):
    pass


@dataclasses.dataclass
class Box:
    inside: object = None


class Model(BaseModel):
    at: datetime.date
    odd: float = math.nan


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (INTEGER_MAX, INTEGER_MAX),
        (INTEGER_MAX + 1, "9007199254740993"),
        (-INTEGER_MAX - 1, "-9007199254740993"),
        (10**5000, "[integer of 16610 bits]"),
        (b"abc", "[3 bytes]"),
        (memoryview(b"abc"), "[3 bytes]"),
        ({3, 1, 2}, [1, 2, 3]),
        ({"b", "a"}, ["a", "b"]),
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "Colour.RED"),
        (Level.HIGH, 3),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Box({1}), {"inside": [1]}),
        (Model(at=datetime.date(2024, 1, 2)), {"at": "2024-01-02", "odd": "NaN"}),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), "2024-01-02T00:00:00+00:00"),
        ({None: 1, True: 2, 3: 4}, {"null": 1, "true": 2, "3": 4}),
        ({"\ud83c\udf78": "\ud83c"}, {"🍸": "\ufffd"}),
        (ValueError("no"), "no"),
    ],
    ids=count(),
)
def test_safe_value_table(value: object, safe: object) -> None:
    """Each kind of value has one spelling."""
    assert repr(safe_value(value)) == repr(safe)


@pytest.mark.parametrize(
    "scalar", ["int64(7)", "float32(0.5)", "bool_(True)", "array([1, 2])", "float64('nan')"]
)
def test_safe_value_reads_numpy(scalar: str) -> None:
    """A numpy value becomes the plain one."""
    numpy = pytest.importorskip("numpy")
    value = eval(f"numpy.{scalar}", {"numpy": numpy})
    assert safe_value(value) in (7, 0.5, True, [1, 2], "NaN")
    assert strict(safe_value(value)) == safe_value(value)


class _TextThatRaises(str):
    def __str__(self) -> str:
        raise ValueError("no text")

    def encode(self, *_: Any) -> bytes:
        raise ValueError("no bytes")


class _NumberThatRaises(int):
    def __int__(self) -> int:
        raise ValueError("no number")

    def __le__(self, other: object) -> bool:
        raise ValueError("no order")

    def __str__(self) -> str:
        raise ValueError("no text")


class _RealThatRaises(float):
    def __float__(self) -> float:
        raise ValueError("no number")


class _Silent:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Shut:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError("no attribute")


class _Mapless(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("no items")


class _Endless(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        number = 0
        while True:
            number += 1
            yield number, number


class _Liar:
    __class__ = property(lambda _: str)  # type: ignore[assignment]


class _Mirror:
    def tolist(self) -> object:
        return self


class _Grower:
    def isoformat(self) -> object:
        return _Grower()


def _released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        (_TextThatRaises("x"), "x"),
        (_NumberThatRaises(3), 3),
        (_RealThatRaises(0.5), 0.5),
        (_Silent(), "[_Silent]"),
        (_Mapless(a=1), "[_Mapless]"),
        (_Liar(), "[_Liar]"),
        (_Mirror(), "[left out: cycle]"),
        (_Grower(), "[left out: nested too deeply]"),
        (_released(), "[memoryview]"),
        ({_TextThatRaises("k"): 1, _NumberThatRaises(2): 2}, {"k": 1, "[_NumberThatRaises]": 2}),
        ([_Silent(), 1], ["[_Silent]", 1]),
    ],
    ids=count(),
)
def test_safe_value_survives_its_value(value: object, safe: object) -> None:
    """A value whose own methods raise, lie or never end harms nothing but itself."""
    assert safe_value(value) == safe


@pytest.mark.parametrize(
    "value", [_Shut(), mock.Mock(spec=str), mock.MagicMock(), _Liar, Box, object(), _Endless()], ids=count()
)
def test_safe_value_of_odd_objects_is_strict_json(value: object) -> None:
    """Mocks, classes and objects without attributes become JSON, too."""
    assert strict(safe_value(value, items=1_000)) == safe_value(value, items=1_000)


def test_safe_value_names_no_address() -> None:
    """Two equal objects look equal: no memory address makes them differ."""
    assert safe_value(object()) == safe_value(object()) == "<object object>"


@pytest.mark.parametrize("levels", [1, DEPTH_MAX, DEPTH_MAX + 1, 10_000])
def test_safe_value_bounds_depth(levels: int) -> None:
    """What lies deeper than the bound becomes a marker; at the bound nothing is lost."""
    safe = safe_value(_nested(levels))
    assert _depth_of(safe) == min(levels, DEPTH_MAX)
    assert ("nested too deeply" in json.dumps(safe)) == (levels > DEPTH_MAX)


def test_safe_value_marks_cycles() -> None:
    """A value inside itself is marked; the same value beside itself is not."""
    loop: dict[str, Any] = {"twice": [1]}
    loop["again"] = loop["twice"]
    loop["self"] = [loop]
    assert safe_value(loop) == {"twice": [1], "again": [1], "self": ["[left out: cycle]"]}


@pytest.mark.parametrize(
    "value",
    [
        list(range(5_000)),
        {n: n for n in range(5_000)},
        frozenset(range(5_000)),
        [[]] * 5_000,
        [{"a": {1}}] * 5_000,
    ],
)
def test_safe_value_bounds_items(value: object) -> None:
    """However many items there are, about `items` of them are kept and the rest is marked."""
    safe = json.dumps(safe_value(value, items=100))
    assert len(safe) < 3_000
    assert "left out: too many items" in safe


def test_safe_value_bounds_shared_structure() -> None:
    """A small structure that shares its parts does not expand without end."""
    shared: list[Any] = [0]
    for _ in range(40):
        shared = [shared, shared]
    assert _seconds_of(lambda: safe_value(shared)) < 5


@given(st.dictionaries(KEYS, st.integers(), max_size=8))
def test_safe_value_loses_no_key(value: dict[Any, int]) -> None:
    """Keys that become the same text are told apart."""
    safe = safe_value(value)
    assert isinstance(safe, dict)
    assert len(safe) == len(value)


def test_safe_value_tells_keys_of_the_same_text_apart() -> None:
    """Different keys that read alike keep their items, in order."""
    safe = safe_value({1: "a", "1": "b", "1 (1)": "c", "\x00": "d", "\ufffd": "e"})
    assert safe == {"1": "a", "1 (1)": "b", "1 (1) (2)": "c", "\ufffd": "d", "\ufffd (4)": "e"}


def test_safe_value_ignores_the_hash_seed(printed_by_seed: Callable[[str], set[str]]) -> None:
    """Sets come out in the same order in every process, also where the bound cuts them."""
    code = (
        "from mainspring.workflows.values import safe_value\n"
        "words = {f'w{n}' for n in range(50)}\n"
        "sets = frozenset(frozenset((w, w + 'x', 'y')) for w in words)\n"
        "print(safe_value([words, sets, {w: {w, 1} for w in sorted(words)}]))\n"
        "print(safe_value([sets], items=120))"
    )
    assert len(printed_by_seed(code)) == 1


# -- parse_json ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, "x", true, null]}', {"a": [1, 2.5, "x", True, None]}),
        (" 1 ", 1),
        ("-0", 0),
        ('"\\ud83c\\udf78"', "🍸"),
        ('"\\ud83c"', "\ufffd"),
        ('"\\u0000"', "\ufffd"),
        (str(INTEGER_MAX), INTEGER_MAX),
        (str(INTEGER_MAX + 1), "9007199254740993"),
        (str(-INTEGER_MAX - 1), "-9007199254740993"),
        ("1" * 900, "1" * 900),
        ("1" * 5_000, "[integer of 5000 digits]"),
        ("1e400", "1e400"),
        ("-1e400", "-1e400"),
        ('{"a":1,"A":2}', {"a": 1, "A": 2}),
        ('["[[[[", "]"]', ["[[[[", "]"]),
        ("[" * DEPTH_MAX + "]" * DEPTH_MAX, _nested(DEPTH_MAX)),
    ],
)
def test_parse_json_takes(text: str, value: object) -> None:
    """One strict JSON value, made safe."""
    parsed = parse_json(text)
    assert isinstance(parsed, Parsed)
    assert repr(parsed.value) == repr(value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('{"x": {"\\ud800": 1, "\\udfff": 2}}', "appears twice"),
        ('{"q": 1}{"q": 2}', "Extra data"),
        ('{"i": 1,,}', "line 1, column"),
        ("{'a': 1}", "line 1, column"),
        ("[1,]", "column"),
        ('"open', "Unterminated"),
        ('"a\nb"', "control character"),
        ("[" * 5_000, "deeper than 64"),
        ('{"x":' * 5_000, "deeper than 64"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "deeper than 64"),
        ("\ufeff1", "BOM"),
        ("1" * 4_000_001, "at most 4000000"),
    ],
)
def test_parse_json_refuses(text: str, why: str) -> None:
    """What is not one strict JSON value is refused, and the reason is short and says what."""
    parsed = parse_json(text)
    assert isinstance(parsed, Malformed)
    assert why in parsed.why
    assert len(parsed.why) <= 200


@given(ANY_TEXT | st.text('[]{}",:\\u0123eE.-+ntf'))
def test_parse_json_is_total(text: str) -> None:
    """Any text is parsed or refused; what is parsed is strict JSON."""
    parsed = parse_json(text)
    if isinstance(parsed, Parsed):
        assert strict(parsed.value) == parsed.value


@given(ANYTHING)
def test_parse_json_reads_what_is_safe(value: object) -> None:
    """What was made safe is read back as it is."""
    safe = safe_value(value, depth=DEPTH_MAX - 1)
    assert parse_json(json.dumps(safe)) == Parsed(safe)


@pytest.mark.parametrize(
    "text",
    [
        '"' * 1_000_000,
        '"' + "\\" * 1_000_001,
        '"' + '\\"' * 500_000,
        "[]" * 500_000,
        "]" * 1_000_000,
        "[" + "[]," * 330_000 + "1]",
        "[" + "1e309," * 160_000 + "1]",
        "1" * 1_000_000,
        "1" * 500_000 + ".5",
        "1e" + "9" * 1_000_000,
        " " * 1_000_000,
        '{"' + "a" * 1_000_000 + '":',
        "\ud800" * 500_000,
    ],
    ids=lambda text: text[:6].encode("unicode_escape").decode(),
)
def test_parse_json_is_linear(text: str) -> None:
    """A megabyte made to hurt takes about as long as any other."""
    assert _seconds_of(lambda: parse_json(text)) < 5


@given(st.text('[]{}"\\a', max_size=30), st.integers(0, 5))
def test_nesting_agrees_with_a_count(text: str, enough: int) -> None:
    """Brackets are counted outside of strings, up to one beyond what is enough."""
    level = deepest = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[]{}":
            level += 1 if character in "[{" else -1
            deepest = max(deepest, level)
    assert nesting(text, enough) == min(deepest, enough + 1)


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        ("x" * 512, True),
        ("x" * 513, False),
        ("漢" * 170, True),
        ("漢" * 171, False),
        ({"a": "x" * 504}, True),
        ({"a": "x" * 505}, False),
        ("x" * 1_000_000, False),
    ],
    ids=count(),
)
def test_bounded_keeps_head_and_tail(content: Any, whole: bool) -> None:
    """Up to its bound a content is whole; beyond, only head and tail of its text are kept."""
    kept = bounded(content, 512)
    assert (kept == content) == whole
    assert len(str(kept).encode()) < 600
