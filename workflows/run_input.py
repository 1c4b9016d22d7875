"""A run's argument, read: whatever a client sent becomes a `RunInput`, or a sentence that says what is wrong.

Pure. Source: shared design, loop.md "Arming"; temporal-facts.md 3 and 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from mainspring.schemas.base import problems, unwire
from mainspring.schemas.run import RunInput
from mainspring.workflows.catalog import near
from mainspring.workflows.messages import Rejected
from mainspring.workflows.values import clip, safe_text

__all__ = ["read_input"]

DEPTH_MAX = 100
"""Short of the 200 levels that can be read back, since what is recorded nests what was given."""


def read_input(args: Sequence[object]) -> RunInput | Rejected:
    """The run's input, or why it is none: the field, the value and what is allowed."""
    if len(args) != 1 or not isinstance(args[0], dict):
        kinds = ", ".join(type(arg).__name__ for arg in args) or "none"
        return Rejected(
            f"AgentRun takes one JSON object, for example {{'agent': …, 'prompt': …}}; given: {kinds}"
        )
    unfit = _unfit(args[0])
    if unfit is not None:
        return Rejected(unfit)
    try:
        return unwire(RunInput, args[0])
    except ValidationError as error:
        return Rejected(safe_text(problems(_told(error))))


def _unfit(value: Mapping[str, object]) -> str | None:
    """What no JSON reader would read back: a number that is none, nesting without a bottom."""
    level: list[tuple[str, object]] = [("", value)]
    for _ in range(DEPTH_MAX):
        deeper: list[tuple[str, object]] = []
        for where, item in level:
            for step, inner in _inside(item):
                if isinstance(inner, float) and not math.isfinite(inner):
                    return f"{_path(where, step)}: {inner} is not a number that JSON can carry"
                if isinstance(inner, dict | list):
                    deeper.append((_path(where, step), inner))
        if not deeper:
            return None
        level = deeper
    return f"{level[0][0]}: it nests deeper than {DEPTH_MAX} levels"


def _inside(value: object) -> Iterable[tuple[object, object]]:
    return value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())


def _path(where: str, step: object) -> str:
    return where if len(where) > 100 else f"{where}.{clip(str(step), 60)}" if where else clip(str(step), 60)


def _told(error: ValidationError) -> ValidationError:
    """The same errors; of an unknown key it is said which are known."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("told", "{told}", {"told": _message(item)}),
            loc=item["loc"],
            input=item.get("input"),
        )
        for item in _meant(error.errors(include_url=False))
    ]
    return ValidationError.from_exception_data(error.title, details)


def _meant(items: Sequence[Any]) -> Iterator[Any]:
    """Without the branches of a union that were not meant: an object is no misspelt name."""
    for item in items:
        if item["type"] == "string_type" and isinstance(item.get("input"), dict) and len(items) > 1:
            continue
        yield item


def _message(item: Any) -> str:
    if item["type"] != "extra_forbidden":
        return str(item["msg"]).removeprefix("Value error, ")
    known = sorted(_reached(item["loc"][:-1]).model_fields)
    close = near(clip(str(item["loc"][-1]), 80), known, 1)
    return f"unknown key; did you mean {close[0]!r}?" if close else f"unknown key; known: {', '.join(known)}"


def _reached(path: Iterable[object]) -> type[BaseModel]:
    """The model at a path of an error: indices, keys of mappings and names of branches lead no further."""
    reached: type[BaseModel] = RunInput
    for step in path:
        field = reached.model_fields.get(step) if isinstance(step, str) else None
        if field is not None:
            reached = next(_models(field.annotation), reached)
    return reached


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
