"""Values made safe: what may enter a ledger, a history or a provider's request, and nothing else.

Pure. Sanitised once, in the activity that produced the value; the workflow sanitises what no activity of
ours has seen (a person's message, a foreign activity's result).

Source: shared design, temporal-facts.md "Values"; loop.md "Whole-batch checks" (text is made safe on entry).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mainspring.schemas.base import JsonValue

__all__ = [
    "Malformed",
    "Parsed",
    "bounded",
    "clip",
    "parse_json",
    "preview",
    "render",
    "safe_text",
    "safe_value",
]

DEPTH_MAX = 64
ITEMS_MAX = 200_000
INTEGER_MAX = 2**53
PREVIEW_BYTES = 2_048


def safe_text(text: str) -> str:
    """The text without lone surrogates and NULs (each becomes U+FFFD); a split pair becomes its character."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clip(text: str, limit: int) -> str:
    """At most `limit` characters on one line, without control characters: for a summary or a message."""
    line = text if text.isprintable() else " ".join(safe_text(_CONTROL.sub(" ", text)).split())
    return line if len(line) <= limit else (line[: max(0, limit - 1)] + "…")[:limit]


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
"""Also what turns the direction of writing: a line would not read as what it says."""


def render(content: JsonValue) -> str:
    """What the model is shown of a content: text as it is, anything else as compact JSON."""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def bounded(content: JsonValue, limit: int, note: str = "") -> JsonValue:
    """The content, or head and tail of it where it takes more than `limit` bytes."""
    text = render(content)
    if len(text.encode("utf-8", "replace")) <= limit:
        return content
    return preview(text, limit=min(limit, PREVIEW_BYTES), note=note)


def preview(text: str, *, limit: int = PREVIEW_BYTES, note: str = "") -> str:
    """Head and tail of a long text, at most about `limit` bytes, with a marker of what is left out.

    Two thirds are head. Characters are never split.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    head = raw[: limit * 2 // 3].decode("utf-8", "ignore")
    tail = raw[len(raw) - limit // 3 :].decode("utf-8", "ignore")
    left_out = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {left_out} of {len(raw)} bytes left out{note} …]\n{tail}"


class _Budget:
    """Counts items, so that a small but widely shared structure cannot expand without end."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def safe_value(value: object, *, depth: int = DEPTH_MAX, items: int = ITEMS_MAX) -> JsonValue:
    """Any Python value as JSON that every reader can read.

    NaN and infinities are spelt, integers beyond 2**53 become text, sets are sorted, bytes become a
    placeholder, cycles and what lies deeper than `depth` become a marker. Never raises for a value.
    """
    return _safe(value, depth, _Budget(items), ())


def _safe(value: object, depth: int, budget: _Budget, above: tuple[int, ...]) -> JsonValue:
    try:
        if value is None or isinstance(value, str | int | float):
            return _scalar(value)
        budget.left -= 1
        if budget.left < 0:
            return _TOO_MANY
        if id(value) in above:
            return "[left out: cycle]"
        if depth <= 0:
            return "[left out: nested too deeply]"
        return _container(value, depth - 1, budget, (*above, id(value)))
    except Exception:  # the value's own methods may raise anything, and its class may lie
        return f"[{type(value).__name__}]"


_TOO_MANY = "[left out: too many items]"


def _scalar(value: str | int | float | None) -> JsonValue:
    """A scalar of its exact type: a subclass's own methods are not asked."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return safe_text(str.__str__(value))
    if isinstance(value, int):
        number = int.__int__(value)
        return number if -INTEGER_MAX <= number <= INTEGER_MAX else _big(number)
    real = float.__float__(value)
    return real if math.isfinite(real) else _not_finite(real)


def _big(value: int) -> str:
    bits = value.bit_length()
    return str(value) if bits <= 4_096 else f"[integer of {bits} bits]"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _container(value: object, depth: int, budget: _Budget, above: tuple[int, ...]) -> JsonValue:
    if isinstance(value, Mapping):
        return _mapping(value.items(), depth, budget, above)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, set | frozenset):
        return _members(value, depth, budget, above)
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return _sequence(value, depth, budget, above)
    return _safe(_plain(value), depth, budget, above)


def _mapping(
    items: Iterable[tuple[object, object]], depth: int, budget: _Budget, above: tuple[int, ...]
) -> JsonValue:
    """Keys that become the same text are told apart, so that no item is lost."""
    safe: dict[str, JsonValue] = {}
    for key, item in items:
        budget.left -= 1
        name = _key(key)
        while name in safe:
            name = f"{name} ({len(safe)})"
        if budget.left < 0:
            safe[name] = _TOO_MANY
            break
        safe[name] = _safe(item, depth, budget, above)
    return safe


def _sequence(value: Iterable[object], depth: int, budget: _Budget, above: tuple[int, ...]) -> JsonValue:
    members: list[JsonValue] = []
    for item in value:
        budget.left -= 1
        if budget.left < 0:
            members.append(_TOO_MANY)
            break
        members.append(_safe(item, depth, budget, above))
    return members


def _members(
    value: set[object] | frozenset[object], depth: int, budget: _Budget, above: tuple[int, ...]
) -> JsonValue:
    """A set's members, sorted. Each has the same share of the budget: their order is no one's business."""
    share = budget.left // max(1, len(value)) - 1
    if share < 0:
        return _TOO_MANY
    members: list[JsonValue] = []
    for item in value:
        own = _Budget(share)
        members.append(_safe(item, depth, own, above))
        budget.left -= 1 + share - max(0, own.left)
    return sorted(members, key=lambda item: json.dumps(item, sort_keys=True))


def _key(key: object) -> str:
    if type(key) is str:
        return safe_text(key)
    try:
        if isinstance(key, str):
            return safe_text(str.__str__(key))
        return json.dumps(key) if key is None or key is True or key is False else _text(key, 256)
    except Exception:
        return f"[{type(key).__name__}]"


def _text(value: object, limit: int) -> str:
    """The object's own text without its address, which would make equal results differ."""
    return safe_text(clip(_ADDRESS.sub("", str.__str__(str(value))), limit))


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def _plain(value: Any) -> object:
    """A value of a richer type, one step nearer to JSON; text when there is no such step."""
    for method in ("model_dump", "_asdict", "tolist", "isoformat"):
        try:
            step = getattr(value, method, None)
            if callable(step) and not isinstance(value, type):
                return step()
        except Exception:
            break
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {name: getattr(value, name, None) for name in fields}
    return _text(value, 1_000)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Text that was JSON, made safe."""

    value: JsonValue


@dataclass(frozen=True, slots=True)
class Malformed:
    """Text that was not, and why; `why` never quotes more than a few characters of it."""

    why: str


def parse_json(text: str, *, depth: int = DEPTH_MAX, size: int = 4_000_000) -> Parsed | Malformed:
    """Parse strictly and in bounded time and stack: no NaN, no bottomless nesting, no second value.

    Integers beyond 2**53 and numbers beyond a float are kept as text. Duplicate keys are refused: which one
    was meant is unknown.
    """
    if len(text) > size:
        return Malformed(f"it has {len(text)} characters; at most {size} are read")
    deepest = nesting(text, depth)
    if deepest > depth:
        return Malformed(f"it nests deeper than {depth} levels")
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
            object_pairs_hook=_unique,
        )
    except json.JSONDecodeError as error:
        return Malformed(f"{error.msg} at line {error.lineno}, column {error.colno}")
    except (ValueError, RecursionError) as error:
        return Malformed(clip(str(error), 200))
    return Parsed(safe_value(value, depth=depth + 1))


_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_PLAIN = re.compile(r"[^\[\]{}]+")


def nesting(text: str, enough: int) -> int:
    """How deep brackets nest outside of strings; stops counting beyond `enough`. Linear."""
    deepest = level = 0
    for bracket in _PLAIN.sub("", _STRING.sub("", text)):
        if bracket in "[{":
            level += 1
            if level > deepest:
                deepest = level
                if deepest > enough:
                    break
        else:
            level -= 1
    return deepest


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_int(digits: str) -> int | str:
    if len(digits) > 20:
        return digits if len(digits) <= 1_000 else f"[integer of {len(digits)} digits]"
    number = int(digits)
    return number if -INTEGER_MAX <= number <= INTEGER_MAX else digits


def _parse_float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else clip(digits, 1_000)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        name = safe_text(key)
        if name in unique:
            raise ValueError(f"the key {clip(name, 60)!r} appears twice")
        unique[name] = value
    return unique
