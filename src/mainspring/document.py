"""A YAML document, read strictly: plain JSON values, and the place of each.

What other YAML readers guess, this one refuses with line and column: duplicate keys, tags, merge keys, keys
that are not text, cycles of aliases, several documents, NaN. Scalars are those of YAML 1.2's core schema:
only `true` and `false` are booleans; `on`, `off`, `yes`, `no`, `12:30:45` and dates are text. A byte order
mark and CRLF are accepted. All is bounded: bytes, depth, nodes, and nodes once aliases are expanded.

Source: shared design, field-faults.md K.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import JsonValue

__all__ = ["BYTES_MAX", "Document", "Fault", "Mark", "parse"]

BYTES_MAX = 1_000_000
DEPTH_MAX = 48
NODES_MAX = 20_000
EXPANDED_MAX = 40_000
INTEGER_MAX = 2**53

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a text, from 1."""

    line: int
    column: int


class Fault(Exception):
    """The text is not what is accepted; `mark` says where, as far as that is known."""

    def __init__(self, message: str, mark: Mark = Mark(1, 1)) -> None:
        super().__init__(message)
        self.message = message
        self.mark = mark


@dataclass(slots=True)
class _Node:
    """A scalar (`value`), a sequence (`items`) or a mapping (`pairs`) at its place. Aliases share nodes."""

    mark: Mark
    value: JsonValue = None
    items: list[_Node] | None = None
    pairs: dict[str, tuple[Mark, _Node]] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A value of plain JSON types, and where each part of it was written."""

    value: JsonValue
    _root: _Node

    def mark(self, path: Path, *, key: bool = False) -> Mark:
        """Where the part at `path` stands: its value, or its key; of a part that is not there, its parent."""
        node, found = self._root, self._root.mark
        for index, step in enumerate(path):
            below = _step(node, step)
            if below is None:
                break
            found = below.mark
            if key and index == len(path) - 1 and node.pairs is not None:
                found = node.pairs[str(step)][0]
            node = below
        return found

    def path(self, location: Path, *, missing: bool = False) -> Path:
        """The steps of a location that lead to something in the document.

        pydantic's locations also name branches of unions, which are no place in it. With `missing`, the last
        step is what is not there, and is kept.
        """
        steps, last = (location[:-1], location[-1:]) if missing else (location, ())
        node = self._root
        found: list[str | int] = []
        for step in steps:
            below = _step(node, step)
            if below is not None:
                node = below
                found.append(step)
        return (*found, *last)


def _step(node: _Node, step: str | int) -> _Node | None:
    if node.pairs is not None and isinstance(step, str) and step in node.pairs:
        return node.pairs[step][1]
    if node.items is not None and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None


def parse(raw: bytes) -> Document:
    """The one document in `raw`.

    Raises: Fault, and nothing else, whatever the bytes are.
    """
    if len(raw) > BYTES_MAX:
        raise Fault(f"it is {len(raw)} bytes large; at most {BYTES_MAX} are read")
    text = _text(raw)
    try:
        root = _Composer(yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as error:
        raise Fault(_plain(error), _mark(error.problem_mark or error.context_mark)) from error
    except yaml.reader.ReaderError as error:
        raise Fault(
            f"the character U+{error.character:04X} is not allowed", _at(text, error.position)
        ) from error
    except (ValueError, OverflowError) as error:  # an escape or a version beyond what Python can hold
        raise Fault(f"it holds a value that cannot be read: {_short(str(error))}") from error
    return Document(_value(root, _Count(EXPANDED_MAX), 0), root)


def _text(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        raise Fault("it is not UTF-8 text", Mark(before.count(b"\n") + 1, 1)) from error
    return text.replace("\r\n", "\n")


def _at(text: str, position: int) -> Mark:
    before = text[:position]
    return Mark(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


def _mark(mark: Any) -> Mark:
    return Mark(1, 1) if mark is None else Mark(mark.line + 1, mark.column + 1)


_TAB = "found character '\\t' that cannot start any token"


def _plain(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "this is not YAML"
    if problem == _TAB:
        return "a tab cannot indent or separate here; use spaces"
    return f"{problem} ({error.context})" if error.context else problem


class _Count:
    """Counts down; what is refused is refused where it runs out."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, what: str, mark: Mark) -> None:
        self._left -= 1
        if self._left < 0:
            raise Fault(f"there are too many {what}", mark)


@dataclass(slots=True)
class _Composer:
    """Makes a tree of the parser's events; depth, nodes and anchors are watched here."""

    events: Iterator[Any]
    anchors: dict[str, _Node] = field(default_factory=dict[str, _Node])
    open_anchors: set[str] = field(default_factory=set[str])
    count: _Count = field(default_factory=lambda: _Count(NODES_MAX))

    def document(self) -> _Node:
        next(self.events)
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise Fault("the file is empty")
        root = self._node(next(self.events), 0)
        next(self.events)
        further = next(self.events)
        if not isinstance(further, yaml.StreamEndEvent):
            raise Fault("a second document begins here; the file must hold one", _mark(further.start_mark))
        return root

    def _node(self, event: Any, depth: int) -> _Node:
        mark = _mark(event.start_mark)
        self.count.take(f"values; at most {NODES_MAX} are read", mark)
        if depth > DEPTH_MAX:
            raise Fault(f"it nests deeper than {DEPTH_MAX} levels", mark)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, mark)
        if event.tag is not None:
            raise Fault(f"the tag {event.tag!r} is not allowed; only plain values are read", mark)
        anchor = event.anchor
        if anchor in self.anchors or anchor in self.open_anchors:
            raise Fault(f"the anchor &{anchor} is defined twice", mark)
        if anchor is not None:
            self.open_anchors.add(anchor)
        node = self._content(event, mark, depth)
        if anchor is not None:
            self.open_anchors.discard(anchor)
            self.anchors[anchor] = node
        return node

    def _alias(self, anchor: str | None, mark: Mark) -> _Node:
        if anchor in self.open_anchors:
            raise Fault(f"*{anchor} stands inside of &{anchor}: a value cannot contain itself", mark)
        if anchor not in self.anchors:
            raise Fault(f"*{anchor} names no anchor before it", mark)
        return self.anchors[anchor]

    def _content(self, event: Any, mark: Mark, depth: int) -> _Node:
        if isinstance(event, yaml.ScalarEvent):
            return _Node(mark, value=_scalar(event, mark))
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[_Node] = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                items.append(self._node(event, depth + 1))
            return _Node(mark, items=items)
        pairs: dict[str, tuple[Mark, _Node]] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key_mark = _mark(event.start_mark)
            key = self._key(event, key_mark)
            if key in pairs:
                first = pairs[key][0]
                raise Fault(f"the key {_short(key)} appears twice; first on line {first.line}", key_mark)
            pairs[key] = (key_mark, self._node(next(self.events), depth + 1))
        return _Node(mark, pairs=pairs)

    def _key(self, event: Any, mark: Mark) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
            raise Fault("a key must be plain text", mark)
        if event.value == "<<" and event.implicit[0]:
            raise Fault("merge keys (<<) are not read; write the keys out", mark)
        key = _scalar(event, mark)
        if not isinstance(key, str):
            raise Fault(f"the key {_short(event.value)} is not text; write it in quotes if it is meant", mark)
        return key


_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def _scalar(event: Any, mark: Mark) -> JsonValue:
    """A scalar by YAML 1.2's core schema."""
    text: str = event.value
    if not event.implicit[0]:
        return _sound(text, mark)
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if len(text) <= 400 and text[0] in "+-.0123456789":
        return _number(text, mark)
    return _sound(text, mark)


def _number(text: str, mark: Mark) -> JsonValue:
    if _NOT_FINITE.fullmatch(text):
        raise Fault(f"{text} is not a number that JSON knows", mark)
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        number = int(text, 0) if _BASED.fullmatch(text) else int(text)
        if abs(number) > INTEGER_MAX:
            raise Fault(f"{_short(text)} is beyond 2^53; write it in quotes if text is meant", mark)
        return number
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise Fault(f"{_short(text)} is too large for a number", mark)
        return value
    return text


def _sound(text: str, mark: Mark) -> str:
    """The text, when it can be written as UTF-8; a pair of escapes, as JSON has them, is one character."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise Fault("a \\u escape spells half of a character (a lone surrogate)", mark) from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _value(node: _Node, count: _Count, depth: int) -> JsonValue:
    count.take(f"values once aliases are expanded; at most {EXPANDED_MAX} are read", node.mark)
    if depth > DEPTH_MAX:
        raise Fault(f"it nests deeper than {DEPTH_MAX} levels once aliases are expanded", node.mark)
    if node.items is not None:
        return [_value(item, count, depth + 1) for item in node.items]
    if node.pairs is not None:
        return {key: _value(item, count, depth + 1) for key, (_, item) in node.pairs.items()}
    return node.value
