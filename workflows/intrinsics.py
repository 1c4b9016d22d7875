"""Tools that the loop itself serves: their definitions, and what they answer. None is dispatched to a worker.

Pure. Source: shared design, loop.md "Intrinsics"; compose.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mainspring.schemas.base import JsonValue
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition, ToolOutcome
from mainspring.workflows.catalog import admits, wire_name
from mainspring.workflows.values import clip

__all__ = [
    "ASK",
    "COMPOSE",
    "COMPOSE_ARGUMENT_BYTES",
    "DONE",
    "DRAFT_BYTES_MAX",
    "FIND_TOOLS",
    "SERVED",
    "Draft",
    "definitions",
    "draft",
    "found",
    "without_hints",
]

DONE = "nika:done"
ASK = "nika:ask"
FIND_TOOLS = "nika:find_tools"
COMPOSE = "nika:compose"

SERVED: tuple[str, ...] = (DONE, COMPOSE, ASK, FIND_TOOLS)
"""Intrinsics of this version."""

DRAFT_BYTES_MAX = 262_144
COMPOSE_ARGUMENT_BYTES = 640_000
"""Of the arguments of `nika:compose` as JSON: room for the largest draft however it is escaped."""
QUESTION_CHARACTERS_MAX = 4_000
OPTIONS_MAX = 20
FOUND_MAX = 20
DESCRIPTION_CHARACTERS = 300


def definitions(
    patterns: Iterable[str], output_schema: dict[str, JsonValue] | bool | None
) -> list[ToolDefinition]:
    """Definitions of the intrinsics that the agent's patterns admit."""
    made: dict[str, Callable[[], ToolDefinition]] = {
        DONE: lambda: _done(output_schema),
        COMPOSE: _compose,
        ASK: _ask,
        FIND_TOOLS: _find_tools,
    }
    granted = tuple(patterns)
    return [made[name]() for name in SERVED if admits(granted, name)]


def _definition(
    name: str, description: str, required: str, properties: dict[str, JsonValue]
) -> ToolDefinition:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": properties,
        "required": [required],
        "additionalProperties": False,
    }
    declaration = ToolDeclaration(
        name=name, description=description, source="intrinsic", effects="none", idempotent=True
    )
    return ToolDefinition(declaration=declaration, input_schema=schema)


# --- nika:done ---


def _done(output_schema: dict[str, JsonValue] | bool | None) -> ToolDefinition:
    result: JsonValue = {} if output_schema is None else _below(output_schema)
    told = "Finish: hand over the result. Call it alone, when nothing is left to do."
    return _definition(DONE, told, "result", {"result": result})


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


# --- nika:ask ---


def _ask() -> ToolDefinition:
    told = (
        "Ask the person you work for one question and wait for the answer. Only where you cannot go on "
        "without it, and no other tool can tell."
    )
    text: JsonValue = {"type": "string", "minLength": 1, "maxLength": QUESTION_CHARACTERS_MAX}
    options: JsonValue = {
        "type": "array",
        "items": {"type": "string", "maxLength": 500},
        "maxItems": OPTIONS_MAX,
        "description": "Answers to choose from, where there are only a few; the person may answer otherwise.",
    }
    return _definition(ASK, told, "question", {"question": text, "options": options})


# --- nika:find_tools ---


def _find_tools() -> ToolDefinition:
    told = (
        "Search all tools that exist for you by what you want to do. You are offered a selection of them; "
        "those that are found are offered from your next turn on."
    )
    query: JsonValue = {
        "type": "string",
        "minLength": 1,
        "maxLength": 1_000,
        "description": "What the tool should do, in a few words.",
    }
    limit: JsonValue = {"type": "integer", "minimum": 1, "maximum": FOUND_MAX, "description": "Default 5."}
    return _definition(FIND_TOOLS, told, "query", {"query": query, "limit": limit})


def found(tools: Iterable[ToolDeclaration], *, weak: bool, left: int) -> ToolOutcome:
    """What a search answers: names as the model is told them, and what to make of it.

    Args:
        tools: Best first.
        weak: They meet only a little of what was asked for.
        left: Searches that the exchange has left.
    """
    shown: list[JsonValue] = [
        {"name": wire_name(tool.name), "description": clip(tool.description, DESCRIPTION_CHARACTERS)}
        for tool in tools
    ]
    if not shown:
        note = (
            "No tool does this. Asking again in other words finds only what other words describe; "
            "use what you are offered, or say that it cannot be done here."
        )
    elif weak:
        note = "Weak matches only: they share little with what you asked for, and may do something else."
    else:
        note = "They are offered from your next turn on."
    return ToolOutcome(content={"tools": shown, "note": note, "searches_left": left})


def without_hints(tool: str, content: JsonValue) -> JsonValue:
    """An observation as its call brought it, without what the loop has added to it.

    How many searches are left changes with each one: the guard would never see that they repeat.
    """
    if tool == FIND_TOOLS and isinstance(content, dict):
        return {key: value for key, value in content.items() if key != "searches_left"}
    return content


# --- nika:compose ---


def _compose() -> ToolDefinition:
    told = (
        "Check a workflow draft (Nika v1, the whole file as YAML text) and get the complete verdict. "
        "The draft is never run."
    )
    text: JsonValue = {"type": "string", "description": f"At most {DRAFT_BYTES_MAX} bytes."}
    return _definition(COMPOSE, told, "workflow", {"workflow": text})


@dataclass(frozen=True, slots=True)
class Draft:
    """A workflow draft's verdict: what the model is told, and what the event `ComposeChecked` says."""

    outcome: ToolOutcome
    bytes: int
    stage: str


def draft(text: str) -> Draft:
    """The verdict on a draft, as far as this version goes: its size is judged, its content is not."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > DRAFT_BYTES_MAX:
        stage, told = "size", f"the draft has {size} bytes; at most {DRAFT_BYTES_MAX} are checked"
    else:
        stage = "unavailable"
        told = "checking workflow drafts is not installed here; the draft was not checked"
    content: JsonValue = {"valid": None, "stage": stage, "error": f"{told}, and nothing of it was run"}
    return Draft(ToolOutcome(content=content, is_error=True), size, stage)
