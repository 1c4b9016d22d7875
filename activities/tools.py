"""Every tool of a worker: one activity per Python tool under its own name, one dynamic activity for MCP.

An activity here takes the arguments object and, rarely, the limits that differ from the defaults; it returns
a `ToolOutcome`, which is an observation whether the tool succeeded or not. What fails the activity is for
Temporal (`tool_unreachable`, retryable) or ends the run (`tool_forbidden`).

Source: shared design, tools.md "A tool is an activity", "Retries and side effects".
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from mainspring.activities.blobs import BlobStore
from mainspring.activities.files import file_tools
from mainspring.activities.functions import (
    InvalidArguments,
    ToolContext,
    ToolForbidden,
    ToolFunction,
    ToolUnavailable,
    in_thread,
)
from mainspring.activities.mcp import McpServers
from mainspring.activities.outcomes import failure, limit_of, settle
from mainspring.activities.transcript import ProcessCache
from mainspring.schemas.base import JsonValue, wire
from mainspring.schemas.errors import TOOL_FORBIDDEN, TOOL_UNREACHABLE
from mainspring.schemas.mcp import McpServerSpec
from mainspring.schemas.tools import ToolDefinition, ToolOutcome
from mainspring.workflows.values import clip, render, safe_text, safe_value

__all__ = ["CALL_TOOL", "NOT_FOUND", "Catalog", "Toolbox"]

CALL_TOOL = "mainspring.call_tool"
"""Activity type of the plain activity for MCP tools: `(name, arguments, limits?)`."""

NOT_FOUND = "NotFoundError"
"""Error type of an activity type that nobody here serves, spelt as Temporal spells it; not retryable."""

BEAT_SECONDS_MAX = 1.0
MESSAGE_MAX = 2_000
OVERTIME_SECONDS = 1.0
RETRY_AFTER_MAX = 3_600.0
DETAIL_MAX = 2_000

_CALL_ID = re.compile(r"[0-9a-f]{8}-\d+")

Body = Callable[[ToolContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every tool that this worker offers.

    Args:
        notes: For the person: what was left out and why.
        failures: MCP server → why its tools could not be had.
        required: Those of the failures without which no run may start.
    """

    tools: tuple[ToolDefinition, ...]
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()


class Toolbox:
    """The tools of a worker process.

    Args:
        functions: Python tools.
        activities: Activities of anyone, anywhere, declared as tools; they are in the catalog only.
        mcp: MCP servers by name.
        files_root: The folder of the built-in `files/*` tools; None for none of them.
        secrets: Resolves `env:NAME` and `file:PATH`; anything else it returns as it is.
        mcp_activity: `CALL_TOOL`, where the worker's own dynamic activity needs the place of ours.
        fallback: The user's own dynamic activity, for names that are not ours.
    Raises: ValueError, when two tools have one name.
    """

    def __init__(
        self,
        functions: Sequence[ToolFunction] = (),
        activities: Sequence[ToolDefinition] = (),
        mcp: Mapping[str, McpServerSpec] | None = None,
        *,
        blobs: BlobStore,
        cache: ProcessCache,
        files_root: Path | None = None,
        secrets: Callable[[str], str] = lambda named: named,
        mcp_activity: str | None = None,
        fallback: Callable[[Sequence[RawValue]], Any] | None = None,
    ) -> None:
        builtin = file_tools(files_root) if files_root else ()
        self._functions = {found.name: found for found in (*builtin, *functions)}
        self._foreign = tuple(activities)
        _refuse_twice([f.name for f in (*builtin, *functions)], [d.name for d in activities])
        self._servers = McpServers(mcp or {}, secrets=secrets, activity=mcp_activity)
        self._blobs = blobs
        self._cache = cache
        self.fallback = fallback

    def activities(self) -> list[Callable[..., Any]]:
        """One activity per Python tool and built-in tool, and `mainspring.call_tool`."""
        return [*(self._activity(function) for function in self._functions.values()), self.call_tool]

    @property
    def dynamic(self) -> Callable[..., Any]:
        """A dynamic activity: serves `mcp:<server>/<tool>`, and hands other names to today's `fallback`."""
        fallback = self.fallback

        @activity.defn(dynamic=True)
        async def dynamic(args: Sequence[RawValue]) -> Any:
            name = activity.info().activity_type
            if not name.startswith("mcp:") and fallback is not None:
                return await _fall_back(fallback, args)
            converter = activity.payload_converter()
            values = converter.from_payloads([raw.payload for raw in args], [Any] * len(args))
            return await self._call_mcp(name, *[*values, None, None][:2])

        return dynamic

    @property
    def call_tool(self) -> Callable[..., Any]:
        """The plain activity that serves MCP tools by its first argument."""

        @activity.defn(name=CALL_TOOL)
        async def call_tool(name: str, arguments: Any = None, limits: Any = None) -> dict[str, Any]:
            return await self._call_mcp(name, arguments, limits)

        return call_tool

    async def catalog(self) -> Catalog:
        """The whole catalog from all sources; MCP servers are listed at the same time, each in its time."""
        listed = await self._servers.listed()
        own = [function.definition for function in self._functions.values()]
        return Catalog(
            tools=(*own, *self._foreign, *listed.tools),
            notes=listed.notes,
            failures=listed.failures,
            required=tuple(name for name in listed.failures if self._servers.specs[name].required),
        )

    async def definitions(self) -> tuple[list[ToolDefinition], list[str]]:
        """The catalog's tools and notes; a server that could not be had is a note."""
        catalog = await self.catalog()
        failed = [f"MCP server {name}: {why}" for name, why in catalog.failures.items()]
        return list(catalog.tools), [*catalog.notes, *failed]

    async def close(self) -> None:
        """Close every MCP session and stop every server that this process started; bounded in time."""
        await self._servers.close()

    def _activity(self, function: ToolFunction) -> Callable[..., Any]:
        @activity.defn(name=function.name)
        async def run(arguments: Any = None, limits: Any = None) -> dict[str, Any]:
            async def body(context: ToolContext) -> Any:
                return await function.invoke(_as_object(arguments), context)

            return await self._perform(body, limit_of(limits, function.declaration.spill_bytes))

        return run

    async def _call_mcp(self, name: str, arguments: Any, limits: Any) -> dict[str, Any]:
        server, _, tool = name.removeprefix("mcp:").partition("/")
        if not name.startswith("mcp:") or server not in self._servers.specs or not tool:
            known = ", ".join(f"mcp:{known}/*" for known in self._servers.specs) or "no MCP server"
            raise ApplicationError(
                f"no activity {clip(name, 200)!r} on this worker; its dynamic activity serves {known}",
                type=NOT_FOUND,
                non_retryable=True,
            )

        async def body(context: ToolContext) -> Any:
            return await self._servers.call(server, tool, _as_object(arguments))

        return await self._perform(body, limit_of(limits, self._servers.spill_bytes(server, tool)))

    async def _perform(self, body: Body, spill_bytes: int) -> dict[str, Any]:
        """Run one call, with heartbeats, to its outcome.

        Raises: ApplicationError(TOOL_UNREACHABLE), retryable; ApplicationError(TOOL_FORBIDDEN), not.
        """
        info = activity.info()
        beats = _Beats(info.heartbeat_timeout)
        context = ToolContext(f"{info.workflow_id}:{info.activity_id}", info.attempt, beats.show)
        async with beats:
            returned = await _judged(body, context, info.start_to_close_timeout)
        outcome = await settle(returned, self._blobs, spill_bytes)
        self._remember(info, outcome)
        return wire(outcome)

    def _remember(self, info: activity.Info, outcome: ToolOutcome) -> None:
        # Any workflow may call a tool as an activity; only a call of an agent run is asked for later.
        if info.workflow_id is not None and _CALL_ID.fullmatch(info.activity_id):
            self._cache.put(info.workflow_id, info.activity_id, outcome)


async def _judged(body: Body, context: ToolContext, timeout: timedelta | None) -> Any:
    """What the tool returned, or what its exception means.

    The server ends an attempt at its time-out but tells nobody: without a limit of our own, a tool that never
    returns would hold its slot for ever.
    """
    deadline = asyncio.timeout(None if timeout is None else timeout.total_seconds() + OVERTIME_SECONDS)
    try:
        async with deadline:
            return await body(context)
    except ToolForbidden as error:
        raise ApplicationError(_text(error), type=TOOL_FORBIDDEN, non_retryable=True) from None
    except ToolUnavailable as error:
        raise _unreachable(error) from None
    except (Exception, SystemExit) as error:
        if deadline.expired():
            raise ApplicationError("the attempt's time is over", type=TOOL_UNREACHABLE) from None
        return failure(error)


def _unreachable(error: ToolUnavailable) -> ApplicationError:
    """Its details say when nothing can have happened, so that nobody need call the outcome unknown."""
    wait = error.retry_after
    delay = timedelta(seconds=min(max(wait, 0.0), RETRY_AFTER_MAX)) if wait is not None else None
    details = [{"not_applied": True}] if error.not_applied else []
    return ApplicationError(_text(error), *details, type=TOOL_UNREACHABLE, next_retry_delay=delay)


def _text(error: Exception) -> str:
    return safe_text(clip(str(error), MESSAGE_MAX)) or type(error).__name__


class _Beats:
    """Heartbeats of one call while it runs, every second or more often; without a time-out, none.

    A cancellation is delivered with the answer to a heartbeat: whoever interrupts waits about this long.
    """

    def __init__(self, timeout: timedelta | None) -> None:
        self._every = None if timeout is None else min(timeout.total_seconds() / 3, BEAT_SECONDS_MAX)
        self._details: tuple[JsonValue, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._every:
            self._task = asyncio.create_task(self._beat(self._every))

    async def __aexit__(self, *exc: object) -> None:
        if self._task:
            self._task.cancel()

    async def _beat(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            activity.heartbeat(*self._details)

    def show(self, detail: Any) -> None:
        """Beat now, with a detail that stays until the next one; from any thread."""
        if detail is not None:
            shown = safe_value(detail)
            self._details = (shown if len(render(shown)) <= DETAIL_MAX else clip(render(shown), DETAIL_MAX),)
        # The activity's context variables are the caller's: a tool's thread runs in a copy of them.
        self._loop.call_soon_threadsafe(activity.heartbeat, *self._details)


def _as_object(arguments: object) -> Mapping[str, Any]:
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise InvalidArguments(f"an object is needed, not {clip(repr(arguments), 60)}")
    return arguments


async def _fall_back(fallback: Callable[[Sequence[RawValue]], Any], args: Sequence[RawValue]) -> Any:
    """The user's own dynamic activity, as Temporal would have run it."""
    if inspect.iscoroutinefunction(fallback):
        return await fallback(args)
    return await in_thread(lambda: fallback(args), ToolContext(), "dynamic activity")


def _refuse_twice(*groups: Sequence[str]) -> None:
    counted = Counter(name for group in groups for name in group)
    twice = sorted(name for name, count in counted.items() if count > 1)
    if twice:
        raise ValueError(f"more than one tool is called {', '.join(twice)}; give one of them another name")
