"""What every wire model shares: closed, frozen, compact, and safe to decode.

A model here is API: it appears in histories, and histories outlive versions. A field is added with a
default; it is never renamed and never removed.
"""

from __future__ import annotations

import re
import reprlib
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

__all__ = ["Closed", "Duration", "JsonValue", "problems", "unwire", "wire"]


class Closed(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


M = TypeVar("M")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def seconds(value: object) -> object:
    """Seconds of `90`, `"90s"`, `"10m"`, `"1.5h"` or `"250ms"`; anything else is left for pydantic.

    Raises: ValueError, naming the text and what is allowed.
    """
    if not isinstance(value, str):
        return value
    matched = _DURATION.fullmatch(value.strip())
    if matched is None:
        raise ValueError(f"{_given(value)} is not a duration; write for example 250ms, 90s, 10m, 2h or 1d")
    return float(matched[1]) * _SECONDS[matched[2]]


SECONDS_MAX = 10 * 365 * 86_400.0

Duration = Annotated[float, BeforeValidator(seconds), Field(le=SECONDS_MAX, allow_inf_nan=False)]
"""Seconds, at most ten years; also written as `"10m"`."""


def wire(model: BaseModel) -> dict[str, Any]:
    """The model as plain JSON without what is at its default: history pays for every byte."""
    return model.model_dump(mode="json", exclude_defaults=True)


_adapters: dict[Any, TypeAdapter[Any]] = {}


def unwire(kind: type[M], value: object) -> M:
    """Decode plain JSON into `kind`.

    Raises: pydantic.ValidationError.
    """
    adapter = _adapters.get(kind)
    if adapter is None:
        adapter = _adapters[kind] = TypeAdapter(kind)
    result: M = adapter.validate_python(value)
    return result


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_SHORT.maxlevel = 3


def _given(value: object) -> str:
    """A value as a person may recognise it; what is huge or bottomless is not written out first."""
    try:
        given = _SHORT.repr(value)
    except Exception:
        given = type(value).__name__
    return given if len(given) <= 60 else given[:57] + "..."


def problems(error: ValidationError, *, limit: int = 5) -> str:
    """One line for a person: which field, what was given, what is allowed. Never more than ~1 KB."""
    lines: list[str] = []
    for item in error.errors(include_url=False)[:limit]:
        where = ".".join(_SHORT.repr(part).strip("'") for part in item["loc"][:10]) or "value"
        message = item["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {message[:200]} (given {_given(item.get('input'))})")
    more = error.error_count() - limit
    if more > 0:
        lines.append(f"and {more} more")
    return "; ".join(lines)
