"""Schemas are judged before they are used, and nothing is ever fetched for them."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.workflows.json_schema import SCHEMA_BYTES_MAX, compiled, schema_fault

SOUND: list[dict[str, object] | bool] = [
    {},
    True,
    False,
    {"type": "object", "properties": {"a": {"type": "integer"}}},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}},
    {"$ref": "#x", "$defs": {"q": {"$anchor": "x"}}},
    {
        "$id": "https://a.example/b",
        "properties": {"q": {"$ref": "item"}},
        "$defs": {"i": {"$id": "item", "type": "integer"}},
    },
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/a"}},
    },
    {"properties": {"$ref": {"type": "string"}}},
    {"const": {"$ref": "http://127.0.0.1:9/x"}},
    {"type": "object", "properties": {"child": {"$ref": "#"}}},
]


@pytest.mark.parametrize("schema", SOUND)
def test_sound_schema_passes(schema: dict[str, object] | bool) -> None:
    """References within the schema, by pointer, anchor or embedded id, are fine; so is data like one."""
    assert schema_fault(schema) is None


FAULTY: list[tuple[dict[str, object], str]] = [
    ({"type": "objekt"}, "not a valid JSON Schema: 'objekt'"),
    ({"properties": {"a": {"minimum": "x"}}}, "(at properties/a/minimum)"),
    ({"pattern": "("}, "'(' is not a 'regex'"),
    ({"$ref": 5}, "not a valid JSON Schema"),
    ({"$schema": 3}, "it cannot be compiled"),
    ({"$ref": "http://127.0.0.1:9/x"}, "leads out of the schema, and nothing is ever fetched"),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "leads out of the schema"),
    ({"$ref": "file:///etc/hostname"}, "$ref 'file:///etc/hostname' leads out"),
    ({"properties": {"a": {"items": {"$ref": "other.json"}}}}, "$ref 'other.json' leads out"),
    ({"$dynamicRef": "http://x/y"}, "$dynamicRef 'http://x/y' leads out"),
    ({"$ref": "http://[bad"}, "leads out"),
    ({"$defs": {"unused": {"$ref": "http://x"}}}, "leads out"),
    ({"$ref": "#/$defs/x"}, "$ref '#/$defs/x' leads nowhere"),
    ({"$ref": "#"}, "leads back to itself"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "leads back"),
    ({"enum": ["x" * SCHEMA_BYTES_MAX]}, "at most 262144 are allowed"),
    ({"default": float("nan")}, "not plain JSON"),
    ({"default": "\ud800"}, "not plain JSON"),
    ({"properties": {str(n): {} for n in range(20_001)}}, "more than 20000 parts"),
]


@pytest.mark.parametrize(("schema", "words"), FAULTY)
def test_faulty_schema_is_told_in_words(schema: dict[str, object], words: str) -> None:
    """Each fault is one line that says what and where."""
    fault = schema_fault(schema)
    assert fault is not None
    assert words in fault


def test_deep_schema_is_refused() -> None:
    """Depth is bounded, so no walk of it overflows."""
    schema: dict[str, object] = {}
    for _ in range(500):
        schema = {"items": schema}
    assert "deeper than 64" in str(schema_fault(schema))


def test_nothing_is_fetched() -> None:
    """A reference to a port on which somebody listens causes no connection."""
    heard: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        port = listener.getsockname()[1]

        def listen() -> None:
            try:
                heard.append(listener.accept())
            except TimeoutError:
                return

        ear = threading.Thread(target=listen)
        ear.start()
        schema = {"$ref": f"http://127.0.0.1:{port}/schema.json"}
        assert schema_fault(schema) is not None
        with pytest.raises(Exception, match="Unresolvable"):
            compiled(schema).validate({})
        ear.join()
    assert heard == []


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["object", "string", "#", "#/a", "http://x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["$ref", "$id", "$defs", "$schema", "properties", "items", "type", "allOf", "not", "a"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["$ref", "$id", "$defs", "properties", "type", "allOf"]), VALUES, max_size=4
    )
)
def test_any_schema_is_judged(schema: dict[str, object]) -> None:
    """Whatever is given as a schema is judged and never crashes; one that passes can be used."""
    if schema_fault(schema) is None:
        for value in ({}, [], "", 0, None):
            compiled(schema).is_valid(value)
