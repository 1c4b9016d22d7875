"""The configuration, `mainspring.yaml`, as typed values. Reading the file is `mainspring.config`.

A configuration may also be written in Python: `Config(models={"default": "openai:gpt-5-mini"})`. Paths in it
that are not absolute are then relative to the working directory.

Source: shared design, interfaces.md "Configuration".
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from mainspring.schemas.agent import AgentSpec, GateSpec, ModelSettings
from mainspring.schemas.base import Closed, Duration, JsonValue
from mainspring.schemas.mcp import McpServerSpec
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition

__all__ = [
    "ActivityTool",
    "AgentEntry",
    "Config",
    "DeltaSpec",
    "FilesSpec",
    "GateEntry",
    "GovernorSpec",
    "ModelEntry",
    "Switch",
    "TelemetrySpec",
    "ToolsSpec",
]


def _fields(entry: BaseModel, kind: type[BaseModel], **changed: Any) -> dict[str, Any]:
    """What an entry holds of the fields of the kind that it extends, some of them changed."""
    return {**{name: getattr(entry, name) for name in kind.model_fields}, **changed}


def _switch(value: object) -> object:
    """YAML 1.2 reads `on` and `off` as text; where a switch is meant they are one."""
    if value in ("on", "off"):
        return value == "on"
    return value


Switch = Annotated[bool, BeforeValidator(_switch)]
"""`true` or `false`, also written `on` or `off`."""


class GateEntry(GateSpec):
    """`gates:` as written: `GateSpec`, and a switch for each gate by its name. Source: gates.md."""

    steering_drift: Switch | None = None
    empty_reply: Switch | None = None
    freshness: Switch | None = None
    grounding: Switch | None = None
    fence: Switch | None = None
    duplicate_card: Switch | None = None
    presentation: Switch | None = None
    truncated: Switch | None = None
    verify: Switch | None = None
    unresolved_failure: Switch | None = None
    until_done: Switch | None = None

    @field_validator("switches")
    @classmethod
    def _known(cls, value: dict[str, bool]) -> dict[str, bool]:
        unknown = sorted(set(value) - set(GATES))
        if unknown:
            raise ValueError(f"unknown gate {unknown[0]!r}; known: {', '.join(GATES)}")
        return value

    def spec(self) -> GateSpec:
        """The switches under one name, as a run records them."""
        named = {name: on for name in GATES if (on := getattr(self, name)) is not None}
        return GateSpec(**_fields(self, GateSpec, switches={**self.switches, **named}))


GATES: tuple[str, ...] = tuple(name for name in GateEntry.model_fields if name not in GateSpec.model_fields)
"""The gates that can be switched, in the order in which they judge."""


class AgentEntry(AgentSpec):
    """One agent as written under `agents:`."""

    # Entries are frozen, so a narrower type is safe; pyright does not see that pydantic freezes them.
    gates: GateEntry = GateEntry()  # pyright: ignore[reportIncompatibleVariableOverride]

    def spec(self) -> AgentSpec:
        """The agent as a run records it."""
        return AgentSpec(**_fields(self, AgentSpec, gates=self.gates.spec()))


_SECRET = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")


def _names_a_secret(value: str) -> str:
    if not _SECRET.fullmatch(value):
        raise ValueError("a secret is named, never written here: env:NAME or file:PATH")
    return value


class ModelEntry(Closed):
    """One model as written under `models:`: a provider's (`model`) or a scripted one (`script`).

    Args:
        model: `<provider>:<model>`, as pydantic-ai names them.
        script: File of a scripted model's replies.
        window: Tokens that the model reads; None where its provider's figures are known.
        fallback: Names of models to use, in order, when this one fails for good.
    """

    model: str | None = Field(default=None, min_length=1, max_length=256)
    script: str | None = Field(default=None, min_length=1)
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    api_key: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    window: int | None = Field(default=None, ge=1_000)
    settings: ModelSettings = ModelSettings()
    fallback: str | Annotated[tuple[str, ...], Field(max_length=16)] = ()

    @field_validator("api_key")
    @classmethod
    def _key_is_named(cls, value: str | None) -> str | None:
        return value if value is None else _names_a_secret(value)

    @field_validator("headers")
    @classmethod
    def _headers_are_named(cls, value: dict[str, str]) -> dict[str, str]:
        return {name: _names_a_secret(secret) for name, secret in value.items()}

    @model_validator(mode="after")
    def _one_kind(self) -> ModelEntry:
        if (self.model is None) == (self.script is None):
            raise ValueError("give either `model` (provider:model) or `script` (a file), and not both")
        return self

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Names of the fallbacks, in order."""
        return (self.fallback,) if isinstance(self.fallback, str) else self.fallback


def _any_object() -> dict[str, JsonValue]:
    return {"type": "object"}


_TOOL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)?")


class ActivityTool(ToolDeclaration):
    """A Temporal activity of yours, in any language, as a tool."""

    source: Literal["activity"] = "activity"  # pyright: ignore[reportIncompatibleVariableOverride]
    activity: str = Field(min_length=1, max_length=1_000)  # pyright: ignore[reportIncompatibleVariableOverride]
    input_schema: dict[str, JsonValue] = Field(default_factory=_any_object)

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _TOOL_NAME.fullmatch(value) or len(value) > 128 or value.startswith("files/"):
            raise ValueError(
                "a tool's name is <tool> or <group>/<tool> of letters, digits, '_', '-' and '.', "
                "at most 128 characters; the group 'files' is built in"
            )
        return value

    def declaration(self) -> ToolDeclaration:
        """What the loop knows of the tool."""
        return ToolDeclaration(**_fields(self, ToolDeclaration))

    def definition(self) -> ToolDefinition:
        """The tool for the catalog."""
        return ToolDefinition(declaration=self.declaration(), input_schema=self.input_schema)


class ToolsSpec(Closed):
    """Where the configuration's own tools come from."""

    python: tuple[str, ...] = ()
    activities: tuple[ActivityTool, ...] = ()


class FilesSpec(Closed):
    """The folder that the built-in `files/*` tools are confined to."""

    root: str = "."


class GovernorSpec(Closed):
    """Which calls may run. This version knows no rules yet: arming refuses them."""

    default: Literal["allow", "ask", "deny"] = "allow"
    rules: tuple[JsonValue, ...] = ()


class TelemetrySpec(Closed):
    """OpenTelemetry: spans, metrics and decision events, through the providers that the worker has set.

    Args:
        content: Also what was asked, answered, called and observed. Off: names, counts and times only.
    """

    enabled: Switch = True
    content: Switch = False


_REDIS = r"^(rediss?://|unix://|env:|file:)"


class DeltaSpec(Closed):
    """Where every piece of a streaming reply goes, beside the heartbeats. Nowhere, unless it is said.

    Args:
        redis: A Redis server, one stream a run: its URL, or the secret that holds it (`env:`, `file:`).
        prefix: Of the streams' names; the run's workflow id follows.
        kept: About how many pieces a stream keeps.
        expires: Seconds after the last piece until a stream is gone.
    """

    redis: str | None = Field(default=None, json_schema_extra={"pattern": _REDIS})
    prefix: str = Field(default="mainspring:deltas:", min_length=1, max_length=200)
    kept: int = Field(default=10_000, ge=100, le=1_000_000)
    expires: Duration = Field(default=3_600.0, gt=0)

    @field_validator("redis")
    @classmethod
    def _redis_is_found(cls, value: str | None) -> str | None:
        if value is not None and not re.match(_REDIS, value):
            raise ValueError(
                "must be a Redis URL (redis://, rediss://, unix://), or the secret that holds it: "
                "env:NAME or file:PATH"
            )
        return value


def _server(value: object) -> object:
    """The file's types are strict; a server also takes a list for a tuple, and its command as one word."""
    return McpServerSpec.model_validate(value, strict=False) if isinstance(value, dict) else value


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
"""What an agent, a model or a server may be called."""


class Config(Closed):
    """The configuration of a worker and its clients.

    Args:
        state_dir: Folder of the embedded server's database and of blobs.
        blobs: `file` for the state folder, or an fsspec URL that all workers share.
        files: None switches the built-in file tools off.
        mcp_activity: Type of the activity that serves MCP tools: a dynamic one, named after each tool, or a
            plain one for workers that have a dynamic activity of their own.
    """

    task_queue: str = Field(default="mainspring", min_length=1, max_length=1_000)
    state_dir: str = ".mainspring"
    blobs: str = "file"
    models: dict[Name, str | ModelEntry] = Field(default_factory=dict, max_length=1_000)
    agents: dict[Name, AgentEntry] = Field(default_factory=dict, max_length=1_000)
    tools: ToolsSpec = ToolsSpec()
    files: FilesSpec | None = FilesSpec()
    mcp: dict[Name, Annotated[McpServerSpec, BeforeValidator(_server)]] = Field(default_factory=dict)
    mcp_activity: Literal["dynamic", "mainspring.call_tool"] = "dynamic"
    governor: GovernorSpec = GovernorSpec()
    telemetry: TelemetrySpec = TelemetrySpec()
    deltas: DeltaSpec = DeltaSpec()

    def model_entry(self, name: str) -> ModelEntry | None:
        """The model of that name; the short form `name: provider:model` written out."""
        found = self.models.get(name)
        return ModelEntry(model=found) if isinstance(found, str) else found

    def agent_spec(self, name: str) -> AgentSpec | None:
        """The agent of that name, as a run records it."""
        found = self.agents.get(name)
        return None if found is None else found.spec()
