from __future__ import annotations

from itertools import count
from typing import Any

import jsonschema
import pytest

from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.catalog import INTRINSICS
from mainspring.workflows.intrinsics import (
    ASK,
    COMPOSE,
    DONE,
    DRAFT_BYTES_MAX,
    FIND_TOOLS,
    SERVED,
    definitions,
    draft,
    found,
)

NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"child": {"$ref": "#/$defs/Node"}},
    "required": ["child"],
}


def _done(schema: Any) -> dict[str, Any]:
    (definition,) = definitions([DONE], schema)
    return definition.input_schema


def _takes(schema: Any, result: object) -> bool:
    return bool(jsonschema.Draft202012Validator(_done(schema)).is_valid({"result": result}))


def test_served_intrinsics_are_known_names() -> None:
    """Whatever the loop serves, no upstream tool may be called."""
    assert set(SERVED) <= set(INTRINSICS)


@pytest.mark.parametrize(
    ("patterns", "offered"),
    [
        ((), []),
        (("files/*",), []),
        (("nika:done",), [DONE]),
        (("nika:*",), [DONE, COMPOSE, ASK, FIND_TOOLS]),
        (("**", "!nika:done"), [COMPOSE, ASK, FIND_TOOLS]),
        (("nika:*", "!nika:compose"), [DONE, ASK, FIND_TOOLS]),
        (("nika:find_tools", "nika:ask"), [ASK, FIND_TOOLS]),
        (("*",), []),
    ],
    ids=count(),
)
def test_definitions_are_offered_where_admitted(patterns: tuple[str, ...], offered: list[str]) -> None:
    """An intrinsic is offered only when the agent's patterns admit it."""
    assert [definition.name for definition in definitions(patterns, None)] == offered


def test_definitions_are_the_loops_own() -> None:
    """They have no effect and are marked as never dispatched."""
    for definition in definitions(["nika:*"], None):
        assert (definition.declaration.source, definition.declaration.effects) == ("intrinsic", "none")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (ASK, {"question": "Why?"}, {"question": ""}),
        (ASK, {"question": "Which?", "options": ["a", "b"]}, {"question": "Which?", "options": "a"}),
        (ASK, {"question": "x" * 4_000}, {"question": "x" * 4_001}),
        (FIND_TOOLS, {"query": "send mail"}, {}),
        (FIND_TOOLS, {"query": "send mail", "limit": 20}, {"query": "send mail", "limit": 21}),
        (COMPOSE, {"workflow": ""}, {"workflow": 1}),
        (COMPOSE, {"workflow": "nika: a"}, {}),
    ],
    ids=count(),
)
def test_definitions_say_what_they_take(name: str, good: Any, bad: Any) -> None:
    """Wrong arguments of an intrinsic are told to the model as those of any tool."""
    (definition,) = definitions([name], None)
    validator = jsonschema.Draft202012Validator(definition.input_schema)
    assert validator.is_valid(good)
    assert not validator.is_valid(bad)


def test_draft_is_judged_by_its_bytes() -> None:
    """262,144 bytes are taken, one more is refused as too large; a character may take several."""
    assert draft("x" * DRAFT_BYTES_MAX).stage == "unavailable"
    assert draft("x" * (DRAFT_BYTES_MAX + 1)).stage == "size"
    assert draft("é" * (DRAFT_BYTES_MAX // 2)).stage == "unavailable"
    assert draft("é" * (DRAFT_BYTES_MAX // 2) + "x").stage == "size"


def test_draft_that_was_not_checked_is_not_valid() -> None:
    """The model reads that nothing was checked and nothing was run."""
    verdict = draft("nika: a")
    assert verdict.outcome.is_error
    assert verdict.outcome.content == {
        "valid": None,
        "stage": "unavailable",
        "error": "checking workflow drafts is not installed here; the draft was not checked, "
        "and nothing of it was run",
    }


@pytest.mark.parametrize(
    ("tools", "weak", "words"),
    [((), False, "No tool does this"), ((1,), True, "Weak matches"), ((1,), False, "offered from your next")],
    ids=count(),
)
def test_found_says_what_to_make_of_it(tools: tuple[int, ...], weak: bool, words: str) -> None:
    """Nothing found, little in common, and a find read differently."""
    outcome = found([ToolDeclaration(name="mcp:mail/send") for _ in tools], weak=weak, left=3)
    assert isinstance(outcome.content, dict)
    assert words in str(outcome.content["note"])
    assert outcome.content["searches_left"] == 3


def test_found_tools_are_named_as_the_model_is_told_them() -> None:
    """The name that a search gives is the name to call."""
    outcome = found([ToolDeclaration(name="mcp:mail/send", description="d" * 500)], weak=False, left=0)
    assert isinstance(outcome.content, dict)
    (tool,) = outcome.content["tools"]
    assert tool["name"] == "mcp__mail__send"
    assert len(tool["description"]) == 300


@pytest.mark.parametrize("result", [None, 1, "text", [], {"a": 1}, False])
def test_done_takes_any_result_without_a_schema(result: object) -> None:
    """Without an output schema any JSON is a result, but there must be one, and nothing else."""
    validator = jsonschema.Draft202012Validator(_done(None))
    assert validator.is_valid({"result": result})
    assert not validator.is_valid({})
    assert not validator.is_valid({"result": result, "more": 1})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, 1, "1"),
        (True, 1, None),
        ({"$defs": {"A": {"type": "integer"}}, "$ref": "#/$defs/A"}, 1, "x"),
        ({"definitions": {"A": {"type": "integer"}}, "items": {"$ref": "#/definitions/A"}}, [1], ["x"]),
        ({"type": "object", "properties": {"child": {"$ref": "#"}}}, {"child": {"child": {}}}, {"child": 1}),
        ({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}, {"b": 1}, {"b": "x"}),
        ({"properties": {"$ref": {"type": "integer"}}}, {"$ref": 1}, {"$ref": "#"}),
        ({"enum": [{"$ref": "#"}]}, {"$ref": "#"}, {"$ref": "#/properties/result"}),
        (
            {"$id": "urn:x", "properties": {"child": {"$ref": "#"}}, "type": "object"},
            {"child": {}},
            {"child": 1},
        ),
        ({"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}, "type": "array"}]}, [1, [2]], ["x"]),
    ],
    ids=count(),
)
def test_done_takes_what_the_output_schema_takes(schema: Any, good: object, bad: object) -> None:
    """References of the schema mean below `result` what they meant at its root."""
    direct = jsonschema.Draft202012Validator(schema)
    assert _takes(schema, good) == direct.is_valid(good)
    assert _takes(schema, bad) == direct.is_valid(bad)
    assert _takes(schema, good)


def test_definitions_leave_the_schema_as_it_is() -> None:
    """The agent's schema is not changed by being offered."""
    schema = {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"}
    _done(schema)
    assert schema == {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"}
