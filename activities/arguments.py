"""The calls in a reply, parsed and checked before anything runs.

Nothing is guessed: a call that is cut short, malformed or against its tool's schema keeps its place with a
problem, in words that tell the model what is allowed.

Source: shared design, loop.md "Whole-batch checks"; field-faults.md B2 to B8, B15, B24, B25.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.activities.setup import Catalog, Offer
from mainspring.schemas.agent import LimitSpec
from mainspring.schemas.base import JsonValue
from mainspring.schemas.tools import CallProblem, ParsedCall, ToolDefinition
from mainspring.workflows.intrinsics import COMPOSE, COMPOSE_ARGUMENT_BYTES
from mainspring.workflows.values import Malformed, clip, parse_json, safe_text, safe_value

__all__ = ["CALLS_MAX", "RawCall", "parse_calls", "size_of"]

CALLS_MAX = 128
"""Providers refuse a longer list; what a reply has beyond is left out, and its last call says so."""
NAME_MAX = 256
RAW_MAX = 2_048
_KINDS = {"list": "a list", "str": "text", "bool": "true or false", "NoneType": "null"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as a provider sent it. `arguments` is text, or what a provider had parsed itself."""

    name: str
    arguments: object = None


def size_of(value: JsonValue) -> int:
    """Bytes that a value takes in a payload, at worst (with every character escaped that can be)."""
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return len(value) + value.count('"') + value.count("\\") + 2
    return len(json.dumps(value, separators=(",", ":")))


def parse_calls(
    calls: Sequence[RawCall],
    catalog: Catalog,
    offer: Offer,
    limits: LimitSpec,
    bytes_max: int,
    cut_short: bool,
) -> tuple[ParsedCall, ...]:
    """Every call of a reply, in order, each with its arguments or what is wrong with it.

    All arguments together may take `bytes_max`; the calls beyond get a problem. When the reply was
    `cut_short` at its length, none of its calls may run, whole as they may look.
    """
    parsed: list[ParsedCall] = []
    left = bytes_max
    for index, call in enumerate(calls[:CALLS_MAX]):
        item = _parse(call, catalog, offer, limits)
        if cut_short:
            item = _with_problem(item, "truncated", "the reply was cut off at its length limit; not run")
        elif index >= limits.batch_calls:
            message = (
                f"one reply may hold {limits.batch_calls} calls; call {index + 1} of {len(calls)} is not run"
            )
            item = _with_problem(item, "batch", message)
        size = size_of(item.arguments) + size_of(item.raw or "") + 200
        if size > left:
            message = f"the arguments of one reply's calls may take {bytes_max} bytes together; not run"
            item = ParsedCall(tool=item.tool, problem=CallProblem(kind="too_large", message=message))
        else:
            left -= size
        parsed.append(item)
    return tuple(parsed)


def _with_problem(call: ParsedCall, kind: str, message: str) -> ParsedCall:
    if call.problem is not None and call.problem.kind == "unknown_tool":
        return call
    problem = CallProblem.model_validate({"kind": kind, "message": message})
    return ParsedCall(tool=call.tool, arguments=call.arguments, problem=problem, raw=call.raw)


def _parse(call: RawCall, catalog: Catalog, offer: Offer, limits: LimitSpec) -> ParsedCall:
    definition = catalog.find(call.name)
    if definition is None:
        return _unknown(call, catalog, offer)
    return _checked(call, definition, catalog, limits)


def _unknown(call: RawCall, catalog: Catalog, offer: Offer) -> ParsedCall:
    name = safe_text(_CONTROL.sub("\ufffd", call.name))
    name = name if len(name) <= NAME_MAX else name[: NAME_MAX - 1] + "…"
    similar = ", ".join(catalog.near(name, offer))
    hint = f"did you mean: {similar}" if similar else "call one of the tools you are offered"
    message = f"there is no tool {clip(name, 80)!r}; {hint}"
    problem = CallProblem(kind="unknown_tool", message=message)
    return ParsedCall(tool=name or "unnamed", problem=problem, raw=_raw(call.arguments))


def _checked(call: RawCall, definition: ToolDefinition, catalog: Catalog, limits: LimitSpec) -> ParsedCall:
    name = definition.name
    if name == COMPOSE:  # the loop itself bounds a draft, by its own bytes and not by those of its escapes
        limits = limits.model_copy(update={"argument_bytes": COMPOSE_ARGUMENT_BYTES})
    read = _read(call.arguments, limits)
    if isinstance(read, CallProblem):
        return ParsedCall(tool=name, problem=read, raw=_raw(call.arguments))
    if problem := catalog.check(definition).problem(read):
        message = f"the arguments of {name} do not meet its schema: {problem}"
        return ParsedCall(tool=name, arguments=read, problem=CallProblem(kind="schema", message=message))
    return ParsedCall(tool=name, arguments=read)


def _read(arguments: object, limits: LimitSpec) -> dict[str, JsonValue] | CallProblem:
    """The arguments as an object. None and blank text are an empty one, which the schema may still refuse."""
    if arguments is None:
        return {}
    if not isinstance(arguments, str):
        return _object(safe_value(arguments, depth=limits.depth + 1), limits)
    if not arguments.strip():
        return {}
    size = len(arguments) if arguments.isascii() else len(arguments.encode("utf-8", "replace"))
    if size > limits.argument_bytes:
        return _too_large(size, limits)
    parsed = parse_json(arguments, depth=limits.depth)
    if isinstance(parsed, Malformed):
        return CallProblem(kind="malformed", message=_why(parsed, arguments))
    if isinstance(parsed.value, dict):
        return parsed.value
    return _object(parsed.value, limits)


def _object(value: JsonValue, limits: LimitSpec) -> dict[str, JsonValue] | CallProblem:
    if not isinstance(value, dict):
        given = _KINDS.get(type(value).__name__, "a number")
        return CallProblem(kind="malformed", message=f"arguments must be one JSON object, given {given}")
    size = size_of(value)
    return _too_large(size, limits) if size > limits.argument_bytes else value


def _too_large(size: int, limits: LimitSpec) -> CallProblem:
    message = f"the arguments take {size} bytes; at most {limits.argument_bytes} are allowed"
    return CallProblem(kind="too_large", message=message)


def _why(parsed: Malformed, arguments: str) -> str:
    """What is wrong, and what stands there: a model cannot mend what it cannot see."""
    shown = clip(safe_text(arguments[:400]), 120)
    several = " (several objects in a row: make one call for each)" if "Extra data" in parsed.why else ""
    return f"arguments are not one JSON object: {parsed.why}{several}; given {shown}"


def _raw(arguments: object) -> str | None:
    """What the model wrote, clipped to 2 KiB."""
    if arguments is None or arguments == {}:
        return None
    text = arguments if isinstance(arguments, str) else json.dumps(safe_value(arguments), ensure_ascii=False)
    raw = safe_text(text[:RAW_MAX]).encode()
    return raw[:RAW_MAX].decode("utf-8", "ignore")
