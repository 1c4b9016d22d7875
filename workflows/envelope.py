"""Calls that a model wrote as text: explicit envelopes, and nothing else. Pure, in linear time.

An envelope is `<tool_call>{…}</tool_call>`, or a code fence labelled `tool_call` or `tool_use`, around a JSON
object that names a tool. A bare fence is never one, nor is JSON in prose: an answer may well be JSON.

What stands inside a closed `<think>` block only mentions a call and is ignored. A block that was never closed
is no reason to lose a call that follows it.

Source: shared design, loop.md "Text fallback".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mainspring.schemas.base import JsonValue
from mainspring.workflows.values import Malformed, parse_json

__all__ = ["Enveloped", "Thought", "calls_in_text", "split_thinking"]

ENVELOPES_MAX = 128
BODY_MAX = 1_500_000
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FENCES = ("```tool_call", "```tool_use")
_THINK, _UNTHINK = "<think>", "</think>"
_ARGUMENT_KEYS = ("arguments", "parameters", "input")
_NAME = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]{1,256})"')


@dataclass(frozen=True, slots=True)
class Enveloped:
    """A call found in a text. `arguments` is text where it, or the whole body, could not be parsed."""

    name: str
    arguments: JsonValue


@dataclass(frozen=True, slots=True)
class Thought:
    """A text without the thinking at its head."""

    text: str
    thinking: str | None = None
    closed: bool = True


def split_thinking(text: str) -> Thought:
    """Take a `<think>` block off the head of a text. Elsewhere the tag is part of what was said."""
    head = text.lstrip()
    if not head.startswith(_THINK):
        return Thought(text)
    end = head.find(_UNTHINK)
    if end < 0:
        return Thought("", head[len(_THINK) :].strip(), closed=False)
    return Thought(head[end + len(_UNTHINK) :].lstrip(), head[len(_THINK) : end].strip())


def calls_in_text(text: str, known: Callable[[str], bool]) -> tuple[str, tuple[Enveloped, ...]]:
    """The text without its envelopes, and the calls in them, in order; the text as it is when there are none.

    `known` says whether a name is a tool's: an envelope that names none is left in the text.
    """
    if _OPEN not in text and not any(fence in text for fence in _FENCES):
        return text, ()
    found: list[Enveloped] = []
    left: list[str] = []
    at = 0
    for start, body_start, body_end, end in _spans(text):
        call = _read(text[body_start:body_end], known)
        if call is not None and len(found) < ENVELOPES_MAX:
            found.append(call)
            left.append(text[at:start])
            at = end
    if not found:
        return text, ()
    left.append(text[at:])
    return "".join(left).strip(), tuple(found)


def _spans(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Start, start and end of the body, and end, of each envelope outside of closed `<think>` blocks.

    Each character is looked at a constant number of times: the four searches only ever move forward, and one
    that found nothing is not repeated.
    """
    search = _Search(text)
    at = 0
    while True:
        start, marker = search.first(at, (_OPEN, *_FENCES, _THINK))
        if start < 0:
            return
        after = start + len(marker)
        if marker == _THINK:
            closed = search.next(_UNTHINK, after)
            at = closed + len(_UNTHINK) if closed >= 0 else after
        elif marker == _OPEN:
            closed = search.next(_CLOSE, after)
            stop = closed if closed >= 0 else len(text)
            innermost = text.rfind(_OPEN, after, stop)
            body = after if innermost < 0 else innermost + len(_OPEN)
            at = stop + (len(_CLOSE) if closed >= 0 else 0)
            yield start, body, stop, at
        else:
            line = search.next("\n", after)
            body = len(text) if line < 0 else line + 1
            if text[after:body].strip():
                at = after
                continue
            closed = search.next("```", body)
            stop = closed if closed >= 0 else len(text)
            at = stop + (3 if closed >= 0 else 0)
            yield start, body, stop, at


class _Search:
    """Finds markers from ever later positions; remembers where each was seen last."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._seen: dict[str, int] = {}

    def next(self, marker: str, at: int) -> int:
        """Where `marker` stands next, at or after `at`; -1 when nowhere."""
        seen = self._seen.get(marker)
        if seen is None or 0 <= seen < at:
            seen = self._seen[marker] = self._text.find(marker, at)
        return seen

    def first(self, at: int, markers: tuple[str, ...]) -> tuple[int, str]:
        """The marker that stands first, and where; -1 when none does."""
        best, which = -1, ""
        for marker in markers:
            found = self.next(marker, at)
            if found >= 0 and (best < 0 or found < best):
                best, which = found, marker
        return best, which


def _read(body: str, known: Callable[[str], bool]) -> Enveloped | None:
    """The call in an envelope's body. One that names a tool but is no JSON keeps its text."""
    body = body.strip()
    if not body.startswith("{"):
        return None
    parsed = parse_json(body, size=BODY_MAX)
    if isinstance(parsed, Malformed):
        named = _NAME.match(body)
        return Enveloped(named[1], body) if named and known(named[1]) else None
    value = parsed.value
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    if not isinstance(name, str) or not known(name):
        return None
    for key in _ARGUMENT_KEYS:
        if key in value:
            return Enveloped(name, value[key])
    return Enveloped(name, {})
