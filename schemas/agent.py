"""An agent's specification: the shape under `agents:` in the configuration, and of an inline agent.

Source: shared design, interfaces.md "Configuration".
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from mainspring.schemas.base import Closed, Duration, JsonValue

__all__ = [
    "AgentSpec",
    "BudgetSpec",
    "ContextSpec",
    "GateSpec",
    "GuardSpec",
    "IntentSpec",
    "LimitSpec",
    "ModelSettings",
    "ModelSpec",
    "Overrides",
    "RoutingSpec",
]

TURNS_MAX = 100_000
COUNT_MAX = 10**15
DOLLARS_MAX = 10.0**9


class BudgetSpec(Closed):
    """Ceilings. `None` is no ceiling; a total that equals its ceiling is exhausted.

    `turns` is per exchange; the others are per run. `wall` is in seconds and leaves out waiting for a person.
    """

    turns: int = Field(default=50, ge=1, le=TURNS_MAX)
    tokens: int | None = Field(default=None, ge=1, le=COUNT_MAX)
    dollars: float | None = Field(default=None, gt=0, le=DOLLARS_MAX, allow_inf_nan=False)
    wall: Duration | None = Field(default=None, gt=0)
    calls: int | None = Field(default=None, ge=1, le=COUNT_MAX)


class BudgetPatch(Closed):
    """Budget overrides, and the argument of `extend_budget`: only what is given changes."""

    turns: int | None = Field(default=None, ge=1, le=TURNS_MAX)
    tokens: int | None = Field(default=None, ge=1, le=COUNT_MAX)
    dollars: float | None = Field(default=None, gt=0, le=DOLLARS_MAX, allow_inf_nan=False)
    wall: Duration | None = Field(default=None, gt=0)
    calls: int | None = Field(default=None, ge=1, le=COUNT_MAX)


class GuardSpec(Closed):
    """The stall guard. Source: loop.md "Guard"."""

    nudge_after: int = Field(default=3, ge=2, le=100)
    stall_after: int = Field(default=5, ge=2, le=100)
    max_reflections: int = Field(default=1, ge=0, le=5)
    window: int = Field(default=40, ge=8, le=1000)


class RoutingSpec(Closed):
    """The tool router. `searches` bounds `nika:find_tools` in an exchange. Source: loop.md "Router"."""

    threshold: int = Field(default=24, ge=0)
    top: int = Field(default=12, ge=1, le=128)
    pin: tuple[str, ...] = ()
    sticky: bool = False
    searches: int = Field(default=10, ge=0, le=1_000)


class GateSpec(Closed):
    """Completion gates. Source: gates.md."""

    profile: Literal["auto", "message", "inspection", "effect", "verification"] = "auto"
    max_blocks: int = Field(default=2, ge=0, le=20)
    verification: Literal["optional", "required"] = "optional"
    stop_hooks: tuple[JsonValue, ...] = ()
    switches: dict[str, bool] = Field(default_factory=dict)


class ContextSpec(Closed):
    """The context plan. Source: context.md "Plan"."""

    history_tokens: int | None = Field(default=None, ge=256)
    low_water: float = Field(default=0.6, gt=0, lt=1)
    compaction: Literal["none", "model"] = "none"


class LimitSpec(Closed):
    """Bounds of one run; each has a name, a default and a place here. Sizes are in bytes."""

    parallel_calls: int = Field(default=8, ge=1, le=64)
    batch_calls: int = Field(default=64, ge=1, le=128)
    spill_bytes: int = Field(default=16_384, ge=512, le=500_000)
    argument_bytes: int = Field(default=262_144, ge=256, le=1_000_000)
    message_bytes: int = Field(default=1_000_000, ge=1_000, le=1_000_000)
    depth: int = Field(default=64, ge=4, le=64)
    queued_messages: int = Field(default=1_000, ge=1, le=10_000)
    queued_bytes: int = Field(default=4_000_000, ge=1_000, le=16_000_000)
    events_kept: int = Field(default=20_000, ge=100)
    schema_repairs: int = Field(default=2, ge=0, le=10)
    model_attempts: int = Field(default=4, ge=1, le=20)
    model_timeout: Duration = Field(default=600.0, gt=0)
    cancel_grace: Duration = Field(default=5.0, ge=0, le=60)
    idle_timeout: Duration = Field(default=7 * 86_400.0, gt=0)
    question_timeout: Duration = Field(default=7 * 86_400.0, gt=0)
    on_exhausted: Literal["fail", "wait"] = "fail"
    strict_tools: bool = False
    completion: Literal["implicit", "explicit"] = "implicit"


class IntentSpec(Closed):
    """One intent of an agent; it only ever biases. Source: tools.md "Intent is a bias"."""

    phrases: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    model: str | None = None
    nudge: str | None = None
    direct: str | None = None
    fallback: str | None = None


class ModelSettings(Closed):
    """Sampling settings, passed to the provider where it knows them."""

    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    stop_sequences: tuple[str, ...] | None = None
    timeout: Duration | None = Field(default=None, gt=0)
    extra_body: dict[str, JsonValue] | None = None


class ModelSpec(Closed):
    """One model, resolved. `api_key` and header values name a secret (`env:`, `file:`), never hold one.

    `script` is the parsed content of a scripted model's file; such a model has no `model`.
    """

    name: str
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    window: int | None = Field(default=None, ge=1_000)
    settings: ModelSettings = ModelSettings()
    script: dict[str, JsonValue] | None = None
    priced: bool = False


class AgentSpec(Closed):
    """An agent as configured, or inline in `RunInput`."""

    instructions: str = ""
    model: str = "default"
    tools: tuple[str, ...] = ()
    budgets: BudgetSpec = BudgetSpec()
    settings: ModelSettings = ModelSettings()
    output_schema: dict[str, JsonValue] | bool | None = None
    guard: GuardSpec = GuardSpec()
    routing: RoutingSpec = RoutingSpec()
    gates: GateSpec = GateSpec()
    context: ContextSpec = ContextSpec()
    limits: LimitSpec = LimitSpec()
    intents: dict[str, IntentSpec] = Field(default_factory=dict)
    refresh: Literal["never", "exchange"] = "never"

    @field_validator("instructions")
    @classmethod
    def _bounded(cls, value: str) -> str:
        if len(value.encode("utf-8", "surrogatepass")) > 262_144:
            raise ValueError("instructions are larger than 262144 bytes")
        return value


class Overrides(Closed):
    """What one run changes of its agent. Only what is given changes."""

    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    budgets: BudgetPatch = BudgetPatch()
    settings: ModelSettings = ModelSettings()
    output_schema: dict[str, JsonValue] | bool | None = None
    limits: dict[str, JsonValue] = Field(default_factory=dict)
