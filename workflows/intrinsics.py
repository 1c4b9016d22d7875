"""Tools that the loop itself serves: their definitions, never dispatched to a worker.

Pure. Source: shared design, loop.md "Intrinsics".
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.schemas.base import JsonValue
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition
from mainspring.workflows.catalog import admits

__all__ = ["DONE", "SERVED", "definitions"]

DONE = "nika:done"

SERVED: tuple[str, ...] = (DONE,)
"""Intrinsics of this version."""


def definitions(
    patterns: Iterable[str], output_schema: dict[str, JsonValue] | bool | None
) -> list[ToolDefinition]:
    """Definitions of the intrinsics that the agent's patterns admit."""
    return [_done(output_schema)] if admits(tuple(patterns), DONE) else []


def _done(output_schema: dict[str, JsonValue] | bool | None) -> ToolDefinition:
    result: JsonValue = {} if output_schema is None else _below(output_schema)
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"result": result},
        "required": ["result"],
        "additionalProperties": False,
    }
    return ToolDefinition(
        declaration=ToolDeclaration(
            name=DONE,
            description="Finish: hand over the result. Call it alone, when nothing is left to do.",
            source="intrinsic",
            effects="none",
            idempotent=True,
        ),
        input_schema=schema,
    )


def _below(schema: JsonValue) -> JsonValue:
    """The schema as it reads at `#/properties/result`: references to its own root follow it there.

    A schema with an `$id` is a root of its own, wherever it stands.
    """
    if isinstance(schema, list):
        return [_below(item) for item in schema]
    if not isinstance(schema, dict) or "$id" in schema:
        return schema
    moved: dict[str, JsonValue] = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[key] = f"#/properties/result{value[1:]}"
        else:
            moved[key] = value if key in _VALUES else _below(value)
    return moved


_VALUES = frozenset({"const", "default", "enum", "examples"})
