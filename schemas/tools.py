"""Tools: what a tool declares, what the model sees of it, what a call and its result are.

Source: shared design, tools.md.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from mainspring.schemas.base import Closed, Duration, JsonValue

__all__ = [
    "BlobRef",
    "CallProblem",
    "Claim",
    "ParsedCall",
    "ProblemKind",
    "ToolDeclaration",
    "ToolDefinition",
    "ToolOutcome",
    "ToolSource",
]

ToolSource = Literal["builtin", "python", "activity", "mcp", "intrinsic"]
"""Where a call goes. `activity` is a foreign one: its result is any JSON, not a `ToolOutcome`; `intrinsic` is
served by the loop itself and never dispatched."""

NAME_BYTES_MAX = 1_000
"""Of an activity's type and a task queue's name: a longer one fails a workflow task for ever."""

Effects = Literal["none", "read", "write", "external"]


class Claim(Closed):
    """The argument that names a resource, and whether it is shared or held alone."""

    argument: str
    exclusive: bool = True


class ToolDeclaration(Closed):
    """What the loop knows of a tool. Schemas are elsewhere: they are the model activity's business.

    Args:
        name: `<tool>`, `<group>/<tool>` or `mcp:<server>/<tool>`.
        activity: Activity type to schedule; the name where it is None.
        task_queue: Where it lives; the run's own queue where it is None.
        timeout: Seconds for one attempt (start to close).
        heartbeat: Seconds without a heartbeat after which an attempt is lost; None for no heartbeat.
        core: Offered in every turn, whatever the router ranks.
        attempts: Most attempts; None for the default of its effects (4 for reads, 1 for writes).
    """

    name: str
    description: str = ""
    source: ToolSource = "python"
    activity: str | None = None
    task_queue: str | None = None
    effects: Effects = "external"
    idempotent: bool = False
    observes: bool = False
    executes: bool = False
    presents: str | None = None
    polls: bool = False
    domain: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    approval: Literal["never", "always"] = "never"
    timeout: Duration = Field(default=120.0, gt=0)
    heartbeat: Duration | None = Field(default=None, gt=0)
    attempts: int | None = Field(default=None, ge=1, le=20)
    local: bool = False
    retry_safe: bool = False
    spill_bytes: int | None = Field(default=None, ge=512, le=500_000)
    core: bool = False

    @field_validator("name", "activity", "task_queue")
    @classmethod
    def _short(cls, value: str | None) -> str | None:
        size = len((value or "").encode("utf-8", "surrogatepass"))
        if size > NAME_BYTES_MAX:
            raise ValueError(f"it has {size} bytes; the server takes at most {NAME_BYTES_MAX}")
        return value


def _any_object() -> dict[str, JsonValue]:
    return {"type": "object"}


class ToolDefinition(Closed):
    """A tool of the catalog, whole."""

    declaration: ToolDeclaration
    input_schema: dict[str, JsonValue] = Field(default_factory=_any_object)

    @property
    def name(self) -> str:
        """The tool's name in our own spelling."""
        return self.declaration.name


class BlobRef(Closed):
    """Content in the blob store, by digest.

    Args:
        digest: `blake2b:<64 hex digits>` of the content (digest size 32 bytes).
        size: Bytes.
    """

    digest: str
    size: int = Field(ge=0)
    media_type: str = "application/octet-stream"
    name: str | None = None


ProblemKind = Literal["unknown_tool", "malformed", "schema", "too_large", "truncated", "batch"]


class CallProblem(Closed):
    """Why a call may not run. `message` is for the model: what is wrong and what is allowed."""

    kind: ProblemKind
    message: str


class ParsedCall(Closed):
    """A call of the model, parsed and validated where the schemas are.

    Args:
        tool: Our name of it, or what the model wrote (made safe, at most 256 characters) when unknown.
        arguments: The parsed object; `{}` when there is a problem with it.
        problem: None when it may run.
        raw: What the model wrote, clipped to 2 KiB, when it could not be parsed.
    """

    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    problem: CallProblem | None = None
    raw: str | None = None


class ToolOutcome(Closed):
    """What a tool of ours returns. Made safe (values.py) before it leaves the activity.

    Args:
        content: Text or any JSON. When spilled: the preview.
        is_error: The tool says that it failed: an observation for the model, never a retry.
        files: Binary parts, in the blob store.
        spilled: Where the whole content lies, when it was larger than the bound.
        not_applied: The tool vouches that the failed call had no effect.
    """

    content: JsonValue = ""
    is_error: bool = False
    files: tuple[BlobRef, ...] = ()
    spilled: BlobRef | None = None
    not_applied: bool = False
