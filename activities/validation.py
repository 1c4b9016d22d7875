"""Values checked against JSON Schemas that others wrote: bounded, offline, and never a crash.

Draft 2020-12 where a schema does not say which it is. A `$ref` is resolved within the schema, nowhere else.

Source: shared design, field-faults.md J14, J15, K6.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, cast

from jsonschema import exceptions

from mainspring.schemas.base import JsonValue
from mainspring.workflows.json_schema import compiled
from mainspring.workflows.values import clip, render

__all__ = ["SchemaCheck"]

ERRORS_SHOWN = 3
ERRORS_READ = 50


class SchemaCheck:
    """One schema, compiled once."""

    def __init__(self, schema: dict[str, JsonValue] | bool) -> None:
        self._validator: Any = None
        self._defect: str | None = None
        try:
            validator: Any = compiled(schema)
            validator.check_schema(schema)
            self._validator = validator
        except Exception as error:  # an odd schema may raise anything
            self._defect = _defect(error)

    def problem(self, value: JsonValue) -> str | None:
        """Why the value does not meet the schema; None when it does.

        One line, at most about 1 KB: where, what was given, what is allowed. A schema that cannot be used is
        a problem too: what cannot be checked is not let through.
        """
        if self._validator is None:
            return self._defect
        try:
            errors: list[Any] = list(islice(self._validator.iter_errors(value), ERRORS_READ))
        except Exception as error:  # unresolvable or endless references, bad patterns
            return _defect(error)
        return _described(errors) if errors else None


def _defect(error: Exception) -> str:
    return f"the schema itself cannot be used ({type(error).__name__}: {clip(str(error), 200)})"


def _described(errors: list[Any]) -> str:
    lines = list(dict.fromkeys(_line(error) for error in errors))
    more = len(lines) - ERRORS_SHOWN
    shown = "; ".join(lines[:ERRORS_SHOWN])
    return f"{shown}; and {more} more" if more > 0 else shown


def _line(error: Any) -> str:
    """One error: the path, what was given, what is allowed."""
    error = cast("Any", exceptions).best_match([error]) or error
    where = _path(error.absolute_path)
    allowed: Any = error.validator_value
    given: Any = error.instance
    match error.validator:
        case "required":
            return f"{where}: {clip(error.message, 160)}"
        case "additionalProperties":
            known: dict[str, Any] = error.schema.get("properties", {})
            names = ", ".join(list(known)[:20]) or "none"
            return f"{where}: {clip(error.message, 120)}; known: {clip(names, 200)}"
        case "type" | "enum" | "const" | "minimum" | "maximum" | "pattern" | "format":
            return f"{where}: {error.validator} must be {clip(render(allowed), 200)}, given {_shown(given)}"
        case _:
            return f"{where}: {clip(error.message, 240)}"


def _shown(given: Any) -> str:
    return clip(json.dumps(given, ensure_ascii=False, separators=(",", ":")), 80)


def _path(parts: Iterable[str | int]) -> str:
    path = "$"
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return clip(path, 160)
