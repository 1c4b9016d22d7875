"""Tools in Python: the decorator, the context it injects, and what a tool may raise."""

from __future__ import annotations

from mainspring.activities.functions import (
    ToolContext,
    ToolError,
    ToolForbidden,
    ToolFunction,
    ToolUnavailable,
    tool,
)
from mainspring.activities.outcomes import Binary
from mainspring.schemas.tools import Claim

__all__ = [
    "Binary",
    "Claim",
    "ToolContext",
    "ToolError",
    "ToolForbidden",
    "ToolFunction",
    "ToolUnavailable",
    "tool",
]
