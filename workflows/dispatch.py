"""Dispatch: the check of a whole batch before any of it runs, the waves it runs in, and each call's bounds.

Pure. Source: shared design, loop.md "Whole-batch checks, then dispatch"; tools.md "Retries and side effects".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mainspring.schemas.agent import LimitSpec
from mainspring.schemas.base import JsonValue
from mainspring.schemas.ledger import EntryCall
from mainspring.schemas.tools import ParsedCall, ToolDeclaration
from mainspring.workflows.intrinsics import DONE
from mainspring.workflows.values import clip, render

__all__ = [
    "SECONDS_MIN",
    "Attempts",
    "Batch",
    "Refused",
    "Run",
    "attempts",
    "check_calls",
    "label",
    "summary",
    "waves",
]

WAVE_BYTES = 1_500_000
"""Of inputs in one workflow task: the server terminates a run that sends 4 MB in one."""
READ_ATTEMPTS = 4
HEARTBEAT_SECONDS = 15.0
RETRY_PAUSE_SECONDS = 30.0
SECONDS_MIN = 0.001
"""Of any bound on an activity: the server takes a shorter one for none at all, and refuses it for ever."""


@dataclass(frozen=True, slots=True)
class Run:
    """A call that may run."""

    call: EntryCall
    tool: ToolDeclaration


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that gets an error observation instead; `message` is for the model."""

    call: EntryCall
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, checked: one item a call, in the order of the calls.

    Args:
        done: The valid call of `nika:done`, when there is one: it wins.
        forbidden: Name of the first call that is not on the whitelist.
    """

    items: tuple[Run | Refused, ...]
    done: EntryCall | None = None
    forbidden: str | None = None

    @property
    def runs(self) -> tuple[Run, ...]:
        """The calls that an activity runs."""
        return tuple(item for item in self.allowed if item.tool.source != "intrinsic")

    @property
    def served(self) -> tuple[Run, ...]:
        """The calls that the loop itself serves."""
        return tuple(item for item in self.allowed if item.tool.source == "intrinsic")

    @property
    def allowed(self) -> tuple[Run, ...]:
        """The calls that nothing speaks against."""
        return tuple(item for item in self.items if isinstance(item, Run))


def check_calls(
    calls: Sequence[ParsedCall],
    entries: Sequence[EntryCall],
    tools: Mapping[str, ToolDeclaration],
    limits: LimitSpec,
) -> Batch:
    """Judge every call of a reply before any of them runs.

    Args:
        calls: As the model activity parsed and validated them.
        entries: The same calls with their ids in the run.
        tools: The run's catalog by name.
        limits: Of the agent.
    """
    items: list[Run | Refused] = []
    done: EntryCall | None = None
    forbidden: str | None = None
    for index, (parsed, call) in enumerate(zip(calls, entries, strict=True)):
        tool = tools.get(call.tool)
        if forbidden is None and (tool is None or _unknown(parsed)):
            forbidden = call.tool
        if index >= limits.batch_calls:
            message = f"Not run: at most {limits.batch_calls} calls run in one reply; ask again for the rest."
            items.append(Refused(call, "batch", message))
        elif parsed.problem is not None:
            items.append(Refused(call, parsed.problem.kind, parsed.problem.message))
        elif tool is None:
            items.append(Refused(call, "unknown_tool", f"There is no tool {clip(call.tool, 256)!r}."))
        else:
            items.append(Run(call, tool))
            if call.tool == DONE and done is None:
                done = call
    return Batch(tuple(items), done, forbidden)


def _unknown(parsed: ParsedCall) -> bool:
    return parsed.problem is not None and parsed.problem.kind == "unknown_tool"


def waves(runs: Sequence[Run], parallel: int) -> list[list[Run]]:
    """Group calls into waves that run one after the other; within a wave all run at once.

    A wave holds at most `parallel` calls and about 1.5 MB of arguments. Calls keep their order: a call that
    claims a resource alone waits for earlier calls that claim it, and later ones wait for it.
    """
    grouped: list[list[Run]] = []
    size = 0
    held: dict[str, bool] = {}
    for run in runs:
        weight = len(json.dumps(run.call.arguments))
        claims = _claims(run)
        clash = any(key in held and (exclusive or held[key]) for key, exclusive in claims.items())
        if not grouped or clash or len(grouped[-1]) >= parallel or size + weight > WAVE_BYTES:
            grouped.append([])
            size = 0
            held = {}
        grouped[-1].append(run)
        size += weight
        held.update({key: exclusive or held.get(key, False) for key, exclusive in claims.items()})
    return grouped


def _claims(run: Run) -> dict[str, bool]:
    """Resources that a call claims: name → held alone. An argument that is absent claims nothing.

    A resource is known by its name alone, whichever argument of whichever tool gives it: calls that could run
    together wait now and then, calls that must not never do.
    """
    claims: dict[str, bool] = {}
    for claim in run.tool.claims:
        value = run.call.arguments.get(claim.argument)
        if value is not None:
            key = render(value)
            claims[key] = claim.exclusive or claims.get(key, False)
    return claims


@dataclass(frozen=True, slots=True)
class Attempts:
    """Bounds of one call, in seconds."""

    attempts: int
    start_to_close: float
    schedule_to_close: float
    heartbeat: float | None


def attempts(tool: ToolDeclaration, wall_left: float | None) -> Attempts:
    """How often and how long a call may be tried.

    Reads and idempotent writes are tried up to 4 times; any other effect once, since a lost attempt may have
    happened. What is left of the run's wall time caps the whole.
    """
    repeatable = tool.effects in ("none", "read") or tool.idempotent or tool.retry_safe
    most = tool.attempts or (READ_ATTEMPTS if repeatable else 1)
    ours = tool.source in ("builtin", "python", "mcp")
    heartbeat = tool.heartbeat if tool.heartbeat is not None else (HEARTBEAT_SECONDS if ours else None)
    timeout = max(SECONDS_MIN, tool.timeout)
    whole = timeout * most + RETRY_PAUSE_SECONDS * (most - 1)
    if wall_left is not None:
        whole = min(whole, max(SECONDS_MIN, wall_left))
    return Attempts(most, min(timeout, whole), whole, heartbeat)


def summary(turn: int, call: EntryCall) -> str:
    """One line for the Temporal UI: `turn 3 · search_docs(query="…")`."""
    return clip(f"turn {turn} · {label(call)}", 120)


def label(call: EntryCall) -> str:
    """A call as a person reads it, short: `search_docs(query="…")`."""
    shown = ", ".join(f"{key}={_shown(value)}" for key, value in list(call.arguments.items())[:3])
    return clip(f"{call.tool}({shown})", 120)


def _shown(value: JsonValue) -> str:
    return clip(json.dumps(value, ensure_ascii=False), 40)
