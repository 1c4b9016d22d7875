"""Arming: what a run's input and an agent's specification must meet before anything is paid for.

Pure; what needs the outside world (secrets, servers, prices, blobs) is `mainspring.activities.arm`. A refusal
names the field, the value and what is allowed.

Source: shared design, loop.md "Arming", "Intrinsics"; tools.md (globs).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from mainspring.schemas.agent import AgentSpec, LimitSpec, Overrides
from mainspring.schemas.base import JsonValue, problems, unwire
from mainspring.schemas.config import GovernorSpec
from mainspring.schemas.run import RunInput
from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.catalog import INTRINSICS, admits, matches, near
from mainspring.workflows.intrinsics import DONE, SERVED
from mainspring.workflows.json_schema import schema_fault
from mainspring.workflows.values import clip

__all__ = [
    "NOT_YET",
    "NotYet",
    "Refused",
    "apply",
    "check",
    "check_tools",
    "concerns",
    "idle_patterns",
    "named_servers",
    "pattern_faults",
]

SHOWN_MAX = 80
PATTERN_MAX = 256
PATTERNS_MAX = 1_000
TOOLS_MAX = 20_000
STANDING_MAX = 128
"""Tools that are offered in every turn, where the router picks the others."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a run is refused: the field, what it holds, and what is allowed."""

    field: str
    given: JsonValue
    allowed: str

    @property
    def message(self) -> str:
        """One line for a person."""
        given = "" if self.given is None else f"{clip(repr(self.given), SHOWN_MAX)}: "
        return f"{self.field}: {given}{self.allowed}"


def apply(spec: AgentSpec, overrides: Overrides) -> AgentSpec | Refused:
    """The specification with a run's overrides; only what is given changes."""
    changed: dict[str, object] = {
        name: value
        for name in ("model", "instructions", "tools", "output_schema")
        if (value := getattr(overrides, name)) is not None
    }
    changed["budgets"] = _patched(spec.budgets, overrides.budgets)
    changed["settings"] = _patched(spec.settings, overrides.settings)
    if overrides.limits:
        unknown = sorted(set(overrides.limits) - set(LimitSpec.model_fields))
        if unknown:
            known = _near(unknown[0], LimitSpec.model_fields)
            return Refused("overrides.limits", unknown[0], f"there is no such limit{known}")
        try:
            changed["limits"] = unwire(LimitSpec, {**spec.limits.model_dump(), **overrides.limits})
        except ValidationError as error:
            return Refused("overrides.limits", None, problems(error))
    plain = {name: getattr(spec, name) for name in AgentSpec.model_fields}
    try:
        return unwire(AgentSpec, {**plain, **changed})
    except ValidationError as error:
        return Refused("overrides", None, problems(error))


B = TypeVar("B", bound=BaseModel)


def _patched(base: B, patch: BaseModel) -> B:
    given = {name: value for name in type(patch).model_fields if (value := getattr(patch, name)) is not None}
    return base.model_copy(update=given)


# --- tool patterns ---


def pattern_faults(
    patterns: Sequence[str], *, servers: Collection[str], names: Collection[str] | None = None
) -> Iterator[tuple[int, str]]:
    """Patterns that can match nothing, whatever the servers offer, by index.

    Args:
        patterns: Globs over names; a leading `!` negates.
        servers: Names of the configured MCP servers.
        names: Names of every tool that is not an MCP server's; None where they are not known yet.
    """
    for index, pattern in enumerate(patterns):
        bare = pattern.removeprefix("!")
        fault = _malformed(bare)
        if fault is None:
            prefix, colon, rest = bare.partition(":")
            if colon:
                fault = _prefixed(prefix, rest, servers)
            elif names is not None:
                fault = _plain(bare, names)
        if fault is not None:
            yield index, f"{clip(repr(pattern), SHOWN_MAX)}: {fault}"


_GRAMMAR = "a tool is named nika:<builtin>, mcp:<server>/<tool>, <group>/<tool> or <tool>"


def _malformed(bare: str) -> str | None:
    if not bare:
        return f"an empty pattern matches nothing; {_GRAMMAR}"
    if len(bare) > PATTERN_MAX or not bare.isprintable() or bare != bare.strip():
        return f"a pattern has at most {PATTERN_MAX} printable characters and no space around it"
    return None


def _prefixed(prefix: str, rest: str, servers: Collection[str]) -> str | None:
    if "*" in prefix:
        known = matches(prefix, "nika") or matches(prefix, "mcp")
        return None if known else f"no prefix is like {prefix!r}; {_GRAMMAR}"
    if prefix == "nika":
        return _intrinsic(f"nika:{rest}")
    if prefix == "mcp":
        return _server(rest, servers)
    return f"the prefix {prefix!r} is not known; {_GRAMMAR}"


def _intrinsic(bare: str) -> str | None:
    if any(matches(bare, name) for name in INTRINSICS):
        return None
    return f"there is no such built-in tool{_near(bare, INTRINSICS)}"


def _server(rest: str, servers: Collection[str]) -> str | None:
    server, slash, tool = rest.partition("/")
    if "*" in server:
        like = any(matches(server, name) or "**" in server for name in servers)
        return None if like else f"no MCP server is like {server!r}{_near(server, servers)}"
    if server not in servers:
        return f"there is no MCP server {clip(server, 60)!r}{_near(server, servers)}"
    return None if slash and tool else f"it names a server and none of its tools; write mcp:{server}/*"


def _plain(bare: str, names: Collection[str]) -> str | None:
    if "**" in bare:
        return None
    group, slash, _ = bare.partition("/")
    if not slash:
        missing = "*" not in bare and bare not in names
        return f"there is no tool of that name{_near(bare, names)}" if missing else None
    groups = {name.partition("/")[0] for name in names if "/" in name and ":" not in name}
    if not any(matches(group, known) for known in groups):
        return f"there is no group of tools {clip(group, 60)!r}{_near(group, groups)}"
    if "*" not in bare and bare not in names:
        return f"there is no tool of that name{_near(bare, names)}"
    return None


def _near(name: str, known: Iterable[str]) -> str:
    """What a person may have meant, else what there is."""
    ordered = sorted(known)
    close = near(name, ordered)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    if not ordered:
        return "; there are none"
    return f"; known: {', '.join(ordered[:15])}{', …' if len(ordered) > 15 else ''}"


def named_servers(patterns: Iterable[str], servers: Iterable[str]) -> tuple[str, ...]:
    """The servers that admitting patterns name without a glob: without them the run is not what was asked."""
    wanted = {
        pattern.removeprefix("mcp:").partition("/")[0] for pattern in patterns if pattern.startswith("mcp:")
    }
    return tuple(server for server in sorted(servers) if server in wanted)


def concerns(patterns: Iterable[str], server: str) -> bool:
    """Whether an admitting pattern could match a tool of that MCP server."""
    for pattern in patterns:
        head = pattern.partition("/")[0]
        if "**" in head or (not pattern.startswith("!") and matches(head, f"mcp:{server}")):
            return True
    return False


def idle_patterns(patterns: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """Admitting patterns that match no tool today: not wrong, but worth a note."""
    return tuple(
        pattern
        for pattern in patterns
        if not pattern.startswith("!") and not any(matches(pattern, name) for name in names)
    )


# --- what a run asks for ---


def check(
    run: RunInput, spec: AgentSpec, *, servers: Collection[str], governor: GovernorSpec
) -> tuple[Refused, ...]:
    """Everything that is wrong with a run and its specification, as far as no I/O is needed to know it."""
    asked = Asked(run, spec, governor)
    return (
        *(item.refusal(asked) for item in NOT_YET if item.asked(asked)),
        *_patterns(spec, servers),
        *_output(spec),
        *_sizes(run, spec),
        *_alone(run, spec),
    )


def check_tools(
    spec: AgentSpec, tools: Sequence[ToolDeclaration], *, servers: Collection[str], names: Collection[str]
) -> tuple[Refused, ...]:
    """What is wrong once the tools are known: `names` of all that are configured, `tools` those admitted."""
    refused = [
        Refused("tools", None, fault) for _, fault in pattern_faults(spec.tools, servers=servers, names=names)
    ]
    refused += [
        Refused("routing.pin", None, fault)
        for _, fault in pattern_faults(spec.routing.pin, servers=servers, names=names)
    ]
    refused += [
        Refused("approval", tool.approval, f"the tool {tool.name} asks for approval; {_LATER}")
        for tool in tools
        if tool.approval != "never"
    ]
    return (*refused, *_too_many(spec, tools))


def _too_many(spec: AgentSpec, tools: Sequence[ToolDeclaration]) -> Iterator[Refused]:
    """More tools than a run's history takes, or more in every request than is an offer."""
    if len(tools) > TOOLS_MAX:
        yield Refused("tools", len(tools), f"so many tools are admitted; at most {TOOLS_MAX}")
    if len(tools) >= spec.routing.threshold:
        pin = spec.routing.pin
        standing = sum(tool.core or (bool(pin) and admits(pin, tool.name)) for tool in tools)
        if standing > STANDING_MAX:
            told = f"so many tools are pinned or declared core; at most {STANDING_MAX} go into every request"
            yield Refused("routing.pin", standing, told)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run asks for: the input, the specification with its overrides, and what governs it."""

    run: RunInput
    spec: AgentSpec
    governor: GovernorSpec

    @property
    def unserved(self) -> list[JsonValue]:
        """Intrinsics that a pattern names and that this version does not serve."""
        return [p for p in self.spec.tools if p in INTRINSICS and p not in SERVED]

    @property
    def switched(self) -> list[JsonValue]:
        """Gates switched to what this version cannot do: on where none is, off where one is always on."""
        return [
            f"{name}: {'on' if on else 'off'}"
            for name, on in sorted(self.spec.gates.switches.items())
            if on != (name in GATES_SERVED)
        ]


GATES_SERVED = ("empty_reply",)

_LATER = "this version cannot do that yet"


@dataclass(frozen=True, slots=True)
class NotYet:
    """Something that the interface knows and this version does not do: refused by name, never ignored."""

    field: str
    given: Callable[[Asked], JsonValue]
    instead: str
    unless: JsonValue = None

    def asked(self, asked: Asked) -> bool:
        """Whether the run asks for it."""
        given = self.given(asked)
        return given != self.unless and given not in ([], {}, None)

    def refusal(self, asked: Asked) -> Refused:
        """The refusal."""
        return Refused(self.field, self.given(asked), f"{_LATER}; {self.instead}")


NOT_YET: tuple[NotYet, ...] = (
    NotYet("criteria", lambda a: list(a.run.criteria), "leave it empty"),
    NotYet("governor.default", lambda a: a.governor.default, "only 'allow'", unless="allow"),
    NotYet("governor.rules", lambda a: list(a.governor.rules), "leave it empty"),
    NotYet("gates.profile", lambda a: a.spec.gates.profile, "only 'auto'", unless="auto"),
    NotYet("gates", lambda a: a.switched, f"the only gate is {', '.join(GATES_SERVED)}, and it is always on"),
    NotYet("gates.verification", lambda a: a.spec.gates.verification, "only 'optional'", unless="optional"),
    NotYet("gates.stop_hooks", lambda a: list(a.spec.gates.stop_hooks), "leave it empty"),
    NotYet("context.compaction", lambda a: a.spec.context.compaction, "only 'none'", unless="none"),
    NotYet("intents", lambda a: list(a.spec.intents), "leave it empty"),
    NotYet("tools", lambda a: a.unserved, f"of the built-in tools there is {', '.join(SERVED)}"),
)
"""A later version that does one of these deletes its line, and nothing else."""


def _patterns(spec: AgentSpec, servers: Collection[str]) -> Iterator[Refused]:
    if len(spec.tools) > PATTERNS_MAX:
        yield Refused("tools", len(spec.tools), f"at most {PATTERNS_MAX} patterns")
        return
    for field, patterns in (("tools", spec.tools), ("routing.pin", spec.routing.pin)):
        for _, fault in pattern_faults(patterns, servers=servers):
            yield Refused(field, None, fault)


def _output(spec: AgentSpec) -> Iterator[Refused]:
    schema = spec.output_schema
    if schema is None:
        return
    if schema is False:
        yield Refused("output_schema", False, "it admits no answer; give a JSON Schema, true or null")
    elif fault := schema_fault(schema):
        yield Refused("output_schema", None, fault)


def _sizes(run: RunInput, spec: AgentSpec) -> Iterator[Refused]:
    limit = spec.limits.message_bytes
    size = len(run.prompt.encode("utf-8", "surrogatepass"))
    if size > limit:
        yield Refused("prompt", None, f"it is {size} bytes large; at most {limit} (limits.message_bytes)")


def _alone(run: RunInput, spec: AgentSpec) -> Iterator[Refused]:
    """Combinations that would wait for somebody who cannot come, or ask for what is not granted."""
    if spec.limits.on_exhausted == "wait" and not run.attended:
        yield Refused("limits.on_exhausted", "wait", "nobody attends this run to extend it; use 'fail'")
    if run.idle_timeout is not None and run.lifetime == "single":
        yield Refused("idle_timeout", run.idle_timeout, "only lifetime 'conversation' waits for more")
    if spec.limits.completion == "explicit" and not admits(spec.tools, DONE):
        yield Refused("limits.completion", "explicit", f"it needs the tool {DONE} among the agent's tools")
