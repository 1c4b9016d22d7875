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
    result: JsonValue = {} if output_schema is None else output_schema
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"result": result},
        "required": ["result"],
        "additionalProperties": False,
    }
    definitions_of_schema = output_schema.get("$defs") if isinstance(output_schema, dict) else None
    if definitions_of_schema is not None:
        schema["$defs"] = definitions_of_schema
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
