"""An MCP server as configured: how it is reached, and what we say of its tools.

Source: shared design, tools.md "MCP"; interfaces.md "Configuration".
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from mainspring.schemas.base import Closed, Duration
from mainspring.schemas.tools import Claim, Effects

__all__ = ["DeclarationPatch", "McpServerSpec"]


class DeclarationPatch(Closed):
    """What the configuration says of tools that declare less, or otherwise: only what is given changes.

    `timeout` is for one call; starting the server comes on top of it.
    """

    effects: Effects | None = None
    idempotent: bool | None = None
    observes: bool | None = None
    executes: bool | None = None
    presents: str | None = None
    polls: bool | None = None
    domain: tuple[str, ...] | None = None
    claims: tuple[Claim, ...] | None = None
    approval: Literal["never", "always"] | None = None
    timeout: Duration | None = Field(default=None, gt=0)
    heartbeat: Duration | None = Field(default=None, gt=0)
    attempts: int | None = Field(default=None, ge=1, le=20)
    retry_safe: bool | None = None
    spill_bytes: int | None = Field(default=None, ge=512, le=500_000)
    core: bool | None = None
    description: str | None = None


class McpServerSpec(Closed):
    """One MCP server: a command to start (stdio), or an address (streamable HTTP).

    Args:
        command: Program and arguments; `args` is appended to it.
        env: Environment of the program beside the few variables it inherits (HOME, PATH …). A value may name
            a secret (`env:NAME`, `file:PATH`).
        headers: Sent with each request; a value may name a secret.
        timeout: Seconds for one call.
        start_timeout: Seconds to start or connect, and again to list the tools.
        tools: Globs over the server's own tool names; as everywhere, a leading `!` negates, the last wins.
        declare: Glob over the server's own tool names → what holds of them, whatever the server claims. The
            later of two that match wins.
        required: A run whose catalog lacks this server is refused; otherwise its tools are left out.
    """

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    timeout: Duration = Field(default=60.0, gt=0, allow_inf_nan=False)
    start_timeout: Duration = Field(default=20.0, gt=0, allow_inf_nan=False)
    tools: tuple[str, ...] = ("**",)
    declare: dict[str, DeclarationPatch] = Field(default_factory=dict)
    required: bool = False

    @model_validator(mode="before")
    @classmethod
    def _command_line(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("command"), str):
            return {**value, "command": (value["command"],)}
        return value

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> McpServerSpec:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server has either a command or a url")
        if self.url and (self.args or self.env or self.cwd):
            raise ValueError("args, env and cwd belong to a command, not to a url")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("url begins with http:// or https://")
        if self.command and self.headers:
            raise ValueError("headers belong to a url, not to a command")
        return self
