"""MCP servers of a worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mainspring.schemas.mcp import McpServerSpec
from mainspring.schemas.tools import ToolDefinition

__all__ = ["Listed", "McpServers"]


@dataclass(frozen=True, slots=True)
class Listed:
    """What all servers offer."""

    tools: tuple[ToolDefinition, ...] = ()
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


class McpServers:
    """Skeleton; sessions follow."""

    def __init__(
        self,
        specs: Mapping[str, McpServerSpec],
        *,
        secrets: Callable[[str], str],
        activity: str | None = None,
    ) -> None:
        self.specs = dict(specs)

    async def listed(self) -> Listed:
        """What all servers offer."""
        return Listed()

    def spill_bytes(self, server: str, tool: str) -> int | None:
        """What the configuration declares for that tool."""
        return None

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close all sessions."""
