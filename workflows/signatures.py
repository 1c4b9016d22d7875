"""What a turn did and what came of it, in eight bytes: two turns with the same signature changed nothing.

Pure. Source: shared design, loop.md "Guard (stalls)".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from mainspring.schemas.base import JsonValue

__all__ = ["Act", "Acted", "Held", "Turn", "signature"]


@dataclass(frozen=True, slots=True)
class Act:
    """One call of a turn with its observation, as the guard sees it.

    Args:
        tool: Its name, as the model asked for it.
        arguments: As they were parsed.
        content: The raw observation, without what the engine added to it.
        is_error: Its error flag.
        tried: It was dispatched, or the checks refused it (an unknown tool, malformed arguments); False for
            what never ran for another reason: interrupted, or the batch had ended.
        polls: The tool declares that it polls: its calls are left out of the signature.
        digest: Of a content that is shown only in part, and of files beside it.
        label: The call in short, for a person or the model: `read(path="a")`. Never part of the signature.
    """

    tool: str
    arguments: JsonValue
    content: JsonValue
    is_error: bool
    tried: bool = True
    polls: bool = False
    digest: str | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Acted:
    """A reply with calls. `directed`: a repair directive is given on this turn, in a nudge's place."""

    acts: tuple[Act, ...]
    directed: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A reply without calls that a gate sent back."""

    text: str
    gate: str


Turn = Acted | Held


def signature(turn: Turn) -> int | None:
    """What a turn did and what came of it, in 8 bytes; None when it signs nothing.

    Signed are the calls and their observations in the order of the calls, or the text and the gate that
    sent it back. Equal for equal values however their keys are ordered; `1`, `1.0`, `"1"` and `true`
    differ, and so do an observation and the same observation as an error.
    """
    parts = list(_parts(turn))
    if not parts:
        return None
    digest = blake2b(digest_size=8)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "big")


def _parts(turn: Turn) -> Iterator[str]:
    """What is signed of a turn: five parts a call, or the three of a held reply."""
    match turn:
        case Held(text, gate):
            yield from (text, gate, "held")
        case Acted(acts):
            for act in acts:
                if not act.polls:
                    yield act.tool
                    for value in (act.arguments, act.content, act.is_error, act.digest):
                        yield _canonical_json(value)


_canonical_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
"""JSON with sorted keys: its syntax tells types apart."""
