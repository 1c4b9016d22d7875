"""Whether a JSON Schema compiles, without ever fetching anything.

Pure. Source: shared design, field-faults.md K6: python-jsonschema would fetch a remote `$ref` by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

__all__ = ["SCHEMA_BYTES_MAX", "compiled", "schema_fault"]

SCHEMA_BYTES_MAX = 262_144
DEPTH_MAX = 64
NODES_MAX = 20_000

_EMPTY: Registry[Any] = Registry()
_SAMPLES: tuple[Any, ...] = ({}, [], "", 0, None)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def compiled(schema: Mapping[str, Any] | bool) -> Validator:
    """A validator that looks inside the schema for references; one that leads elsewhere is never fetched."""
    kind: Any = validator_for(schema, default=Draft202012Validator)
    validator: Validator = kind(schema, registry=_EMPTY)
    return validator


def schema_fault(schema: Mapping[str, Any] | bool) -> str | None:
    """Why the schema cannot be used; None when it can. Never raises, and needs no network."""
    if isinstance(schema, bool):
        return None
    fault = _bounds(schema)
    if fault is not None:
        return fault
    try:
        kind: Any = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
        return _dangling(schema) or _endless(schema)
    except SchemaError as error:
        where = "/".join(str(step) for step in error.absolute_path)
        message = error.message if len(error.message) <= 200 else error.message[:199] + "…"
        return f"it is not a valid JSON Schema: {message}" + (f" (at {where})" if where else "")
    except (
        Exception
    ) as error:  # a pattern that no regular expression engine reads, an unknown keyword's own fault
        return f"it cannot be compiled: {type(error).__name__}"
    return _dangling(schema)


def _bounds(schema: Mapping[str, Any]) -> str | None:
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except (ValueError, TypeError, RecursionError):
        return "it is not plain JSON"
    if size > SCHEMA_BYTES_MAX:
        return f"it is {size} bytes large; at most {SCHEMA_BYTES_MAX} are allowed"
    nodes = 0
    level: list[Any] = [schema]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in _children(node)]
        nodes += len(level)
        if not level:
            return None
        if nodes > NODES_MAX:
            return f"it has more than {NODES_MAX} parts"
    return f"it nests deeper than {DEPTH_MAX} levels"


def _children(node: Any) -> Iterator[Any]:
    inside = cast("Iterable[Any]", node.values() if isinstance(node, Mapping) else node)
    return (cast("Any", child) for child in inside if isinstance(child, Mapping | list))


def _dangling(schema: Mapping[str, Any]) -> str | None:
    """A reference that leads out of the schema, or nowhere."""
    resource: Resource[Any] = Resource.from_contents(schema, default_specification=_specification(schema))
    stack = [(resource, _EMPTY.resolver_with_root(resource))]
    while stack:
        current, resolver = stack.pop()
        for keyword in _REFERENCES:
            target = _keyword(current.contents, keyword)
            if not isinstance(target, str):
                continue
            try:
                resolver.lookup(target)
            except (Unresolvable, ValueError, LookupError):
                return _reference_fault(keyword, target)
        for below in current.subresources():
            stack.append((below, resolver.in_subresource(below)))
    return None


def _keyword(contents: Any, keyword: str) -> Any:
    """What a schema says under a keyword; `true` and `false` say nothing."""
    return contents.get(keyword) if hasattr(contents, "get") else None


def _endless(schema: Mapping[str, Any]) -> str | None:
    """A reference that leads to itself: validating anything against it would never end."""
    validator = compiled(schema)
    try:
        for sample in _SAMPLES:
            validator.is_valid(sample)
    except RecursionError:
        return "a $ref leads back to itself without reading anything"
    return None


def _specification(schema: Mapping[str, Any]) -> Any:
    named = schema.get("$schema")
    return specification_with(named, default=DRAFT202012) if isinstance(named, str) else DRAFT202012


def _reference_fault(keyword: str, target: str) -> str:
    shown = target if len(target) <= 120 else target[:119] + "…"
    if target.startswith("#"):
        return f"{keyword} {shown!r} leads nowhere in the schema"
    return f"{keyword} {shown!r} leads out of the schema, and nothing is ever fetched; put it under $defs"
