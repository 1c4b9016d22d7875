from __future__ import annotations

from itertools import count
from typing import Any

import jsonschema
import pytest

from mainspring.workflows.catalog import INTRINSICS
from mainspring.workflows.intrinsics import DONE, SERVED, definitions

NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"child": {"$ref": "#/$defs/Node"}},
    "required": ["child"],
}


def _done(schema: Any) -> dict[str, Any]:
    (definition,) = definitions(["**"], schema)
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
        (("nika:*",), [DONE]),
        (("**", "!nika:done"), []),
        (("*",), []),
    ],
    ids=count(),
)
def test_definitions_are_offered_where_admitted(patterns: tuple[str, ...], offered: list[str]) -> None:
    """An intrinsic is offered only when the agent's patterns admit it."""
    assert [definition.name for definition in definitions(patterns, None)] == offered


def test_definitions_are_the_loops_own() -> None:
    """They have no effect and are marked as never dispatched."""
    (definition,) = definitions([DONE], None)
    assert (definition.declaration.source, definition.declaration.effects) == ("intrinsic", "none")


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
