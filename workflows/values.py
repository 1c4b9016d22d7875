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

__all__ = ["Malformed", "Parsed", "clip", "parse_json", "preview", "render", "safe_text", "safe_value"]

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
    """At most `limit` characters on one line, for a summary or a message."""
    line = " ".join(text.split()) if "\n" in text or "\t" in text else text
    return line if len(line) <= limit else line[: limit - 1] + "…"


def render(content: JsonValue) -> str:
    """What the model is shown of a content: text as it is, anything else as compact JSON."""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def preview(text: str, *, limit: int = PREVIEW_BYTES, note: str = "") -> str:
    """Head and tail of a long text, at most about `limit` bytes, with a marker of what is left out.

    Two thirds are head. Characters are never split.
    """
    raw = text.encode("utf-8")
    if len(raw) <= limit:
        return text
    head = raw[: limit * 2 // 3].decode("utf-8", "ignore")
    tail = raw[-(limit // 3) :].decode("utf-8", "ignore")
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
    if isinstance(value, str):
        return safe_text(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -INTEGER_MAX <= value <= INTEGER_MAX else _big(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    budget.left -= 1
    if budget.left < 0:
        return "[left out: too many items]"
    if id(value) in above:
        return "[left out: cycle]"
    if depth <= 0:
        return "[left out: nested too deeply]"
    return _container(value, depth - 1, budget, (*above, id(value)))


def _big(value: int) -> str:
    bits = value.bit_length()
    return str(value) if bits <= 4_096 else f"[integer of {bits} bits]"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _container(value: object, depth: int, budget: _Budget, above: tuple[int, ...]) -> JsonValue:
    if isinstance(value, Mapping):
        return {_key(key): _safe(item, depth, budget, above) for key, item in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, set | frozenset):
        members = [_safe(item, depth, budget, above) for item in value]
        return sorted(members, key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, list | tuple):
        return _sequence(value, depth, budget, above)
    plain = _plain(value)
    return safe_text(str(plain)) if isinstance(plain, str) else _safe(plain, depth, budget, above)


def _sequence(value: Iterable[object], depth: int, budget: _Budget, above: tuple[int, ...]) -> JsonValue:
    members: list[JsonValue] = []
    for item in value:
        budget.left -= 1
        if budget.left < 0:
            members.append("[left out: too many items]")
            break
        members.append(_safe(item, depth, budget, above))
    return members


def _key(key: object) -> str:
    if isinstance(key, str):
        return safe_text(str(key))
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    return safe_text(clip(str(key), 256))


def _plain(value: Any) -> object:
    """A value of a richer type, one step nearer to JSON; text when there is no such step."""
    for method in ("model_dump", "_asdict", "tolist", "isoformat"):
        step = getattr(value, method, None)
        if callable(step) and not isinstance(value, type):
            try:
                return step()
            except Exception:
                break
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {name: getattr(value, name, None) for name in fields}
    try:
        return clip(str(value), 1_000)
    except Exception:
        return f"[{type(value).__name__}]"


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

    Integers beyond 2**53 are kept as text. Duplicate keys are refused: which one was meant is unknown.
    """
    if len(text) > size:
        return Malformed(f"it has {len(text)} characters; at most {size} are read")
    deepest = nesting(text, depth)
    if deepest > depth:
        return Malformed(f"it nests deeper than {depth} levels")
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_int=_parse_int, object_pairs_hook=_unique
        )
    except json.JSONDecodeError as error:
        return Malformed(f"{error.msg} at line {error.lineno}, column {error.colno}")
    except (ValueError, RecursionError) as error:
        return Malformed(clip(str(error), 200))
    return Parsed(safe_value(value, depth=depth + 1))


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


def nesting(text: str, enough: int) -> int:
    """How deep brackets nest outside of strings; stops counting beyond `enough`. Linear."""
    deepest = level = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        level += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, level)
        if deepest > enough:
            break
    return deepest


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_int(digits: str) -> int | str:
    if len(digits) > 20:
        return digits if len(digits) <= 1_000 else f"[integer of {len(digits)} digits]"
    number = int(digits)
    return number if -INTEGER_MAX <= number <= INTEGER_MAX else digits


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = {key for key, _ in pairs}
    if len(keys) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {clip(twice, 60)!r} appears twice")
    return dict(pairs)
