from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

from mainspring.schemas.base import unwire, wire
from mainspring.schemas.tools import BlobRef, ParsedCall, ToolDeclaration, ToolDefinition, ToolOutcome


def test_declaration_assumes_the_worst() -> None:
    """A tool that declares nothing may have any effect and is not to be repeated."""
    declared = ToolDeclaration(name="t")
    assert (declared.effects, declared.idempotent, declared.retry_safe, declared.local) == (
        "external",
        False,
        False,
        False,
    )
    assert (declared.approval, declared.attempts) == ("never", None)


@pytest.mark.parametrize(
    "value",
    [
        ToolDeclaration(name="t", effects="none", timeout=5, claims=({"argument": "path"},), domain=("a",)),
        ToolDefinition(declaration=ToolDeclaration(name="t")),
        ToolDefinition(declaration=ToolDeclaration(name="t"), input_schema={}),
        ParsedCall(tool="t", problem={"kind": "schema", "message": "m"}, raw="{"),
        ToolOutcome(content=None),
        ToolOutcome(content={"a": 1}, is_error=True, files=(BlobRef(digest="d", size=0),)),
    ],
    ids=count(),
)
def test_wire_form_stands_for_the_value(value: Any) -> None:
    """What is written is read back equal, an empty schema and an empty result too."""
    assert unwire(type(value), wire(value)) == value


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ToolDeclaration, {"name": "t", "effects": "many"}),
        (ToolDeclaration, {"name": "t", "timeout": 0}),
        (ToolDeclaration, {"name": "t", "timeout": float("inf")}),
        (ToolDeclaration, {"name": "t", "heartbeat": "9999999d"}),
        (ToolDeclaration, {"name": "t", "attempts": 0}),
        (ToolDeclaration, {"name": "t", "attempts": 21}),
        (ParsedCall, {"tool": "t", "problem": {"kind": "odd", "message": "m"}}),
        (ParsedCall, {"tool": "t", "arguments": [1]}),
        (BlobRef, {"digest": "d", "size": -1}),
        (ToolOutcome, {"content": "x", "ok": True}),
    ],
    ids=count(),
)
def test_what_no_tool_is_is_refused(kind: Any, fields: dict[str, Any]) -> None:
    """Unknown effects, times that no clock holds, arguments that are no object do not decode."""
    with pytest.raises(ValidationError):
        unwire(kind, fields)
