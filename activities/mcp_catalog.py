"""What an MCP server's tools are in the catalog: their names, their claims, and what the configuration says.

Annotations are claims and never proof: the configuration overrules them. A tool that cannot be used safely is
dropped with a note, and costs nobody but itself.

Source: shared design, tools.md "What a tool declares", "MCP"; field-faults.md I9, J14, J15, K6.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types as types
from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import validator_for

from mainspring.schemas.mcp import McpServerSpec
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition
from mainspring.workflows.catalog import admits, matches
from mainspring.workflows.values import clip, nesting, safe_value

__all__ = ["call_seconds", "declared", "define_tools"]

NAME_MAX = 128
SCHEMA_BYTES_MAX = 262_144
SCHEMA_DEPTH_MAX = 60
DESCRIPTION_MAX = 16_384
HEARTBEAT_SECONDS = 30.0
MARGIN_SECONDS = 5.0


def define_tools(
    server: str, spec: McpServerSpec, tools: Iterable[types.Tool], activity: str | None = None
) -> tuple[list[ToolDefinition], list[str]]:
    """The definitions of a server's tools in its own order, and notes on those that were dropped."""
    found: list[ToolDefinition] = []
    notes: list[str] = []
    for tool in tools:
        if not admits(spec.tools, tool.name):
            continue
        schema = safe_value(tool.input_schema)
        problem = _problem(tool.name, schema)
        if problem is None and isinstance(schema, dict):
            declaration = _declaration(server, spec, tool, activity)
            found.append(ToolDefinition(declaration=declaration, input_schema=schema))
        else:
            notes.append(f"{server}: tool {clip(repr(tool.name), 80)} dropped: {problem}")
    return found, notes


def declared(spec: McpServerSpec, tool: str) -> dict[str, Any]:
    """What the configuration says of a tool; the later of two patterns wins."""
    said: dict[str, Any] = {}
    for pattern, patch in spec.declare.items():
        if matches(pattern, tool):
            said |= {name: getattr(patch, name) for name in patch.model_fields_set}
    return said


def call_seconds(spec: McpServerSpec, tool: str) -> float:
    """Seconds for one call of a tool."""
    return float(declared(spec, tool).get("timeout") or spec.timeout)


def _declaration(server: str, spec: McpServerSpec, tool: types.Tool, activity: str | None) -> ToolDeclaration:
    said = declared(spec, tool.name)
    # An attempt may have to start the server first.
    seconds = call_seconds(spec, tool.name) + spec.start_timeout + MARGIN_SECONDS
    title = tool.annotations.title if tool.annotations else None
    values: dict[str, Any] = {
        "description": clip_text(tool.description or title or ""),
        "heartbeat": HEARTBEAT_SECONDS,
        **_claims(tool.annotations),
        **said,
        "timeout": seconds,
    }
    return ToolDeclaration(name=f"mcp:{server}/{tool.name}", source="mcp", activity=activity, **values)


def _claims(annotations: types.ToolAnnotations | None) -> dict[str, Any]:
    """What the server claims. Where it says nothing, the worst is assumed, as MCP has it."""
    if annotations is None:
        return {}
    if annotations.read_only_hint:
        return {"effects": "read", "observes": True, "idempotent": True}
    closed = annotations.open_world_hint is False
    return {
        "effects": "write" if closed else "external",
        "idempotent": annotations.idempotent_hint is True,
    }


def clip_text(text: str) -> str:
    """A description of bounded length, safe for a history."""
    made = safe_value(text)
    assert isinstance(made, str)
    return made if len(made) <= DESCRIPTION_MAX else made[: DESCRIPTION_MAX - 1] + "…"


def _problem(name: str, schema: Any) -> str | None:
    """Why a tool cannot be offered; None when it can."""
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable() or name != name.strip():
        return f"its name is empty, longer than {NAME_MAX} characters, or has characters that do not print"
    text = json.dumps(schema)
    if len(text) > SCHEMA_BYTES_MAX:
        return f"its schema has {len(text)} bytes; at most {SCHEMA_BYTES_MAX} are taken"
    if nesting(text, SCHEMA_DEPTH_MAX) > SCHEMA_DEPTH_MAX:
        return f"its schema nests deeper than {SCHEMA_DEPTH_MAX} levels"
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except (SchemaError, RecursionError) as error:
        return f"its schema is not one: {clip(getattr(error, 'message', str(error)), 200)}"
    return _reference_problem(schema, schema)


def _reference_problem(node: Any, root: Mapping[str, Any]) -> str | None:
    """The first reference that leads out of the schema, or nowhere."""
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str) and not _resolves(reference, root):
            return f"its schema refers to {clip(reference, 100)!r}, which is not in it"
        node = list(node.values())
    if isinstance(node, list):
        return next((found for item in node if (found := _reference_problem(item, root))), None)
    return None


def _resolves(reference: str, root: Mapping[str, Any]) -> bool:
    """Whether a reference leads to a place in the schema; nothing is ever fetched.

    An anchor, or a reference inside a part with an identifier of its own, is left to the validator.
    """
    if not reference.startswith("#"):
        return False
    if not reference.startswith("#/"):
        return True
    node: Any = root
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return False
    return True
