"""Histories replayed, and what guard and router decided in them put beside what other settings would have.

    async for tested in backtest(histories(["run.json"], None, 100), change):
        print(tested.label, tested.turns)

A history is one execution of a run: a file, a run by its id, or what a visibility query finds. It is replayed
with this version's code, which makes the run's ledger and events again; no model and no tool is called.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInboundInterceptor,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowInterceptorClassInput,
)

from mainspring.channel import server_errors
from mainspring.client import WORKFLOW
from mainspring.document import Fault, parse
from mainspring.errors import MainspringError
from mainspring.plugin import MainspringPlugin
from mainspring.render import one_line
from mainspring.run_errors import Refused, UnknownRun
from mainspring.schemas.base import Closed, JsonValue
from mainspring.schemas.ledger import Entry
from mainspring.validate import did_you_mean
from mainspring.workflows.agent_run import AgentRun
from mainspring.workflows.arming import idle_patterns
from mainspring.workflows.backtest import NOTHING, Change, Compared, compared, recomputed, told
from mainspring.workflows.recorded import Recorded, Setup
from mainspring.workflows.router import Offer

__all__ = ["AT_ONCE", "Backtested", "Source", "backtest", "histories", "read_settings", "recorded_of"]

AT_ONCE = 4
"""Histories that are fetched and replayed at the same time; one may have 50 MB."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a history comes from: a name for a person, and how it is had."""

    label: str
    fetch: Callable[[], Awaitable[WorkflowHistory]]


@dataclass(frozen=True, slots=True)
class Backtested:
    """What became of one history.

    Args:
        label: Of its source.
        events: In the history; 0 where it could not be had.
        failure: Why it does not replay; None when it does.
        turns: Turn by turn; empty where it failed.
        exact: With the recorded settings the recomputed decisions are the recorded ones.
        idle: Changed pins that match no tool of the run.
    """

    label: str
    events: int
    failure: str | None
    turns: tuple[Compared, ...] = ()
    exact: bool = True
    idle: tuple[str, ...] = ()


# -- histories -----------------------------------------------------------------------------------------


async def histories(
    named: Sequence[str], query: str | None, limit: int, connect: Callable[[], Awaitable[Client]]
) -> AsyncGenerator[Source]:
    """The histories of these files and run ids, then those of the query, newest first.

    Of a run that continued as new there is one for each execution. A name that is neither a file with a
    history nor a run is a source that cannot be had; the others go on.

    Args:
        named: Files in JSON, or ids of runs.
        query: A visibility query; workflows that are no agent runs are passed over.
        limit: Most histories of one id, and of the query.
        connect: Asked for a client where one is needed.

    Raises: Refused (a query that the server refuses), Unreachable.
    """
    client: Client | None = None
    for name in named:
        if Path(name).is_file():
            yield Source(name, _reading(Path(name)))
            continue
        if "'" in name or "\\" in name:
            yield Source(name, _refusing(Refused(f"{name!r} is neither a file nor a run's id")))
            continue
        client = client or await connect()
        executions = 0
        async for source in _of_query(client, f"WorkflowId = '{name}'", limit):
            executions += 1
            yield source
        if not executions:
            unknown = UnknownRun(f"{name!r} is neither a file nor a run of the server")
            yield Source(name, _refusing(unknown))
    if query is not None:
        client = client or await connect()
        async for source in _of_query(client, query, limit):
            yield source


async def _of_query(client: Client, query: str, limit: int) -> AsyncIterator[Source]:
    with server_errors(client):
        async for found in client.list_workflows(query, limit=limit):
            if found.workflow_type == WORKFLOW:
                yield Source(f"{found.id}/{found.run_id}", _fetching(client, found.id, found.run_id))


def _fetching(client: Client, run_id: str, execution: str) -> Callable[[], Awaitable[WorkflowHistory]]:
    async def fetch() -> WorkflowHistory:
        with server_errors(client):
            return await client.get_workflow_handle(run_id, run_id=execution).fetch_history()

    return fetch


def _refusing(error: MainspringError) -> Callable[[], Awaitable[WorkflowHistory]]:
    async def fetch() -> WorkflowHistory:
        raise error

    return fetch


def _reading(file: Path) -> Callable[[], Awaitable[WorkflowHistory]]:
    async def fetch() -> WorkflowHistory:
        try:
            return WorkflowHistory.from_json(file.stem, file.read_text("utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refused(f"not a history in JSON: {one_line(error, 200)}") from error

    return fetch


# -- backtest ------------------------------------------------------------------------------------------


async def backtest(sources: AsyncIterator[Source], change: Change = NOTHING) -> AsyncGenerator[Backtested]:
    """Replay each history and put its decisions beside those of other settings, in the order of the sources.

    A history that cannot be had or does not replay is told of; the others go on.

    Raises: what `sources` raises, after what came before it; Unreachable.
    """
    tasks: deque[asyncio.Task[Backtested]] = deque()
    ended: MainspringError | None = None
    try:
        try:
            async for source in sources:
                tasks.append(asyncio.create_task(_tested(source, change)))
                if len(tasks) >= AT_ONCE:
                    yield await tasks.popleft()
        except MainspringError as error:
            ended = error
        while tasks:
            yield await tasks.popleft()
        if ended is not None:
            raise ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _tested(source: Source, change: Change) -> Backtested:
    try:
        history = await source.fetch()
    except (Refused, UnknownRun) as error:
        return Backtested(source.label, 0, str(error))
    recorded, failure = await recorded_of(history)
    events = len(history.events)
    if recorded is None:
        return Backtested(source.label, events, failure)
    turns = await asyncio.to_thread(compared, recorded, change)
    exact = await asyncio.to_thread(lambda: told(recorded) == recomputed(recorded))
    return Backtested(source.label, events, None, turns, exact, _idle(recorded, change))


def _idle(recorded: Recorded, change: Change) -> tuple[str, ...]:
    pins = change.routing.get("pin")
    names = {name for setup in recorded.setups.values() for name in setup.tools}
    return idle_patterns(map(str, pins), names) if isinstance(pins, list) else ()


async def recorded_of(history: WorkflowHistory) -> tuple[Recorded | None, str | None]:
    """What a run recorded, made again by replaying its history; else why it does not replay."""
    watch = _Watch()

    class Finds(WorkflowInboundInterceptor):
        async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
            instance: Any = workflow.instance()
            watch.run = instance
            return await self.next.execute_workflow(input)

    class Finding(Interceptor):
        def workflow_interceptor_class(
            self, input: WorkflowInterceptorClassInput
        ) -> type[WorkflowInboundInterceptor]:
            return Finds

    replayer = Replayer(
        workflows=[],
        plugins=[MainspringPlugin()],
        interceptors=[Finding()],
        unsandboxed_workflow_runner=_WatchedRunner(watch),
    )
    outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if outcome.replay_failure is not None:
        return None, _said(outcome.replay_failure)
    return watch.recorded(), None


def _said(failure: Exception) -> str:
    """What the replay found, without the debug output around it."""
    found = re.search(r'message: "((?:[^"\\]|\\.)*)"', str(failure))
    return found[1] if found else str(failure)


@dataclass(slots=True)
class _Watch:
    """What a run under replay has made, taken down after every activation.

    An open run's history ends amid its code, which is then torn down: what it does on the way out never
    happened, so that nothing can be read afterwards.
    """

    run: AgentRun | None = None
    entries: list[Entry] = field(default_factory=list[Entry])
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    offers: dict[int, Offer] = field(default_factory=dict[int, Offer])
    setups: dict[int, Setup] = field(default_factory=dict[int, Setup])

    def note(self) -> None:
        run = self.run
        if run is None:
            return
        seq = self.events[-1]["seq"] if self.events else -1
        self.events += _newer(run.journal.records, lambda record: record["seq"] > seq)
        entry = self.entries[-1].seq if self.entries else -1
        self.entries += _newer(run.ledger.entries, lambda item: item.seq > entry)
        newest = max(self.offers, default=0)
        self.offers |= {
            record.turn: record.offer for record in _newer(run.turns, lambda item: item.turn > newest)
        }
        if run.armed is not None and run.exchange not in self.setups:
            spec = run.armed.spec
            self.setups[run.exchange] = Setup(spec.guard, spec.routing, run.tools, run.armed.decisions)

    def recorded(self) -> Recorded:
        return Recorded(self.entries, self.events, self.setups, self.offers)


def _newer(items: Sequence[Any], is_new: Callable[[Any], bool]) -> list[Any]:
    """The items at the end that are new, in order."""
    found: list[Any] = []
    for item in reversed(items):
        if not is_new(item):
            break
        found.append(item)
    return found[::-1]


class _WatchedRunner(UnsandboxedWorkflowRunner):
    """Runs a workflow as in production, and has it watched."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """An instance that is watched."""
        return _WatchedInstance(super().create_instance(det), self._watch)


class _WatchedInstance(WorkflowInstance):
    """An instance whose run is looked at after every activation but the one that tears it down."""

    def __init__(self, inner: WorkflowInstance, watch: _Watch) -> None:
        self._inner = inner
        self._watch = watch

    def activate(self, act: Any) -> Any:
        """Go on, then look."""
        completion = self._inner.activate(act)
        if not any(job.HasField("remove_from_cache") for job in act.jobs):
            self._watch.note()
        return completion

    def get_serialization_context(self, command_info: Any) -> Any:
        """As the instance says."""
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        """As the instance says."""
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> workflow.Info:
        """As the instance says."""
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        """As the instance says."""
        return self._inner.get_thread_id()


# -- settings ------------------------------------------------------------------------------------------


def read_settings(option: str, given: Sequence[str], kind: type[Closed]) -> dict[str, JsonValue]:
    """Settings of a guard or a router written as `name=value`; a list as values with commas, or as YAML.

    Args:
        option: Named in errors.
        given: The last one of a name counts; what is given to a list is added to it.
        kind: Whose settings they are.

    Raises: Refused, naming the setting, what is near it, and what is allowed.
    """
    settings: dict[str, JsonValue] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        rules = kind.model_json_schema()["properties"]
        if name not in rules:
            known = "; ".join(f"{known} takes {_allowed(rule)}" for known, rule in rules.items())
            raise Refused(f"{option} {text}: no setting {name!r}{did_you_mean(name, rules)} ({known})")
        rule = rules[name]
        items = _items(value) if rule["type"] == "array" else value
        try:
            checked = kind.model_validate({name: items})
        except ValidationError:
            checked = None
        if checked is None or not equals:
            raise Refused(f"{option} {text}: {name} takes {_allowed(rule)}, as in {name}={_example(rule)}")
        read = checked.model_dump(mode="json")[name]
        before = settings.get(name)
        settings[name] = [*before, *read] if isinstance(before, list) else read
    return settings


def _items(value: str) -> JsonValue:
    """The items of a list; what is no list at all for a value that is no YAML."""
    if not value.startswith("["):
        return [item.strip() for item in value.split(",") if item.strip()]
    try:
        return parse(value.encode("utf-8", "surrogatepass")).value
    except Fault:
        return None


def _allowed(rule: dict[str, Any]) -> str:
    """What a setting takes, in words."""
    match rule["type"]:
        case "integer":
            most = f" to {rule['maximum']:,}" if "maximum" in rule else " or more"
            return f"a whole number, {rule['minimum']:,}{most}"
        case "boolean":
            return "true or false"
        case _:
            return "names or globs of tools, separated by commas or as a YAML list"


def _example(rule: dict[str, Any]) -> str:
    match rule["type"]:
        case "array":
            return "files/*,search"
        case "boolean":
            return "true"
        case _:
            return str(rule["default"])
