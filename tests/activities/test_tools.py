"""The toolbox: what a tool's activity returns, raises, remembers and says while it runs."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from mainspring.activities.blobs import BlobStore
from mainspring.activities.tools import Toolbox
from mainspring.activities.transcript import ProcessCache
from mainspring.embedded import Server
from mainspring.schemas.base import unwire
from mainspring.schemas.mcp import McpServerSpec
from mainspring.schemas.tools import BlobRef, ToolDeclaration, ToolDefinition, ToolOutcome
from mainspring.tools import (
    Binary,
    ToolContext,
    ToolError,
    ToolForbidden,
    ToolFunction,
    ToolUnavailable,
    tool,
)

PLAIN = Path(__file__).parents[1] / "servers" / "plain.py"
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 1_000


@dataclass
class Remembering(ProcessCache):
    """A cache that shows what was put into it."""

    def __post_init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, str], Any] = {}

    def put(self, workflow_id: str, activity_id: str, made: Any) -> None:
        """Remember."""
        self.held[workflow_id, activity_id] = made
        super().put(workflow_id, activity_id, made)


@pytest.fixture
def blobs() -> BlobStore:
    """A store in memory."""
    return BlobStore("memory://test-tools")


@pytest.fixture
def cache() -> Remembering:
    """An empty cache."""
    return Remembering()


Call = Callable[..., Any]


@pytest.fixture
def call(blobs: BlobStore, cache: Remembering) -> Call:
    """Call a function as a tool, in the environment of an activity of an agent run."""

    async def run(
        function: Callable[..., Any] | ToolFunction, arguments: Any = None, *limits: Any, **info: Any
    ) -> ToolOutcome:
        made = function if isinstance(function, ToolFunction) else tool(function)
        toolbox = Toolbox([made], blobs=blobs, cache=cache)
        environment = environment_of(**info)
        return unwire(ToolOutcome, await environment.run(toolbox.activities()[0], arguments, *limits))

    return run


def environment_of(**info: Any) -> ActivityEnvironment:
    """The environment of one call of a run."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info,
        **{
            "workflow_id": "run-1",
            "activity_id": "ab12cd34-7",
            "start_to_close_timeout": timedelta(seconds=30),
            **info,
        },
    )
    return environment


def returning(value: Any) -> ToolFunction:
    """A tool that returns a value."""

    @tool(name="give")
    async def give() -> Any:
        """Give."""
        return value

    return give


def raising(error: BaseException) -> ToolFunction:
    """A tool that raises."""

    @tool(name="fail")
    def fail() -> None:
        """Fail."""
        raise error

    return fail


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ({"a": [1, 2.5, None, True]}, {"a": [1, 2.5, None, True]}),
        (None, None),
        ({"v": math.nan, "w": -math.inf}, {"v": "NaN", "w": "-Infinity"}),
        ({3, 1, 2}, [1, 2, 3]),
        (2**60, str(2**60)),
        ("a\x00b\ud800", "a\ufffdb\ufffd"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (ToolDeclaration(name="x", timeout=1), None),
        (Path("/tmp"), "/tmp"),
    ],
)
async def test_result_is_any_value_made_safe(call: Call, value: Any, content: Any) -> None:
    """Whatever a tool returns is JSON that every reader can read."""
    outcome = await call(returning(value))
    assert not outcome.is_error
    json.dumps(outcome.content, allow_nan=False).encode()
    if not isinstance(value, ToolDeclaration):
        assert outcome.content == content


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (ToolError("closed on Mondays"), "closed on Mondays"),
        (ToolError(""), "ToolError"),
        (SystemExit(3), "SystemExit: 3"),
        (ApplicationError("of the user's", type="X"), "ApplicationError: X: of the user's"),
    ],
)
async def test_exception_is_an_error_observation(call: Call, error: BaseException, content: str) -> None:
    """An exception of a tool is for the model: an observation that names its type, never a failure."""
    outcome = await call(raising(error))
    assert (outcome.content, outcome.is_error) == (content, True)


async def test_error_that_vouches_for_no_effect_says_so(call: Call) -> None:
    """A tool may vouch that the failed call did nothing."""
    assert (await call(raising(ToolError("full", not_applied=True)))).not_applied
    assert not (await call(raising(ToolError("full")))).not_applied


async def test_unavailable_is_retried_by_temporal(call: Call) -> None:
    """What cannot be reached fails the activity, retryable, with the wait and with what it vouches for."""
    with pytest.raises(ApplicationError) as raised:
        await call(raising(ToolUnavailable("no route", retry_after=7, not_applied=True)))
    error = raised.value
    assert (error.type, error.non_retryable) == ("tool_unreachable", False)
    assert error.next_retry_delay == timedelta(seconds=7)
    assert error.details == ({"not_applied": True},)


async def test_forbidden_is_not_fed_back(call: Call) -> None:
    """A hard refusal fails the activity for good."""
    with pytest.raises(ApplicationError, match="outside") as raised:
        await call(raising(ToolForbidden("outside of the sandbox")))
    assert (raised.value.type, raised.value.non_retryable) == ("tool_forbidden", True)


@pytest.mark.parametrize("arguments", [[1], "text", 7, {"n": "x"}, {"m": 1}])
async def test_bad_arguments_are_an_error_observation(call: Call, arguments: Any) -> None:
    """Arguments that do not fit are the model's to mend, and nothing has happened."""

    async def double(n: int) -> int:
        """Double."""
        return 2 * n

    outcome = await call(double, arguments)
    assert outcome.is_error
    assert outcome.not_applied
    assert str(outcome.content).startswith("the arguments were not accepted: ")


@pytest.mark.parametrize("size", [20_000, 3_000_000])
async def test_long_result_is_spilled(call: Call, blobs: BlobStore, size: int) -> None:
    """Beyond 16 KiB the model sees head and tail, and the whole lies in the blob store."""
    text = "".join(chr(ord("a") + i % 26) for i in range(size))
    outcome = await call(returning(text))
    assert outcome.spilled is not None
    assert (await blobs.get(outcome.spilled)).decode() == text
    assert outcome.content.startswith(text[:1_000])
    assert outcome.content.endswith(text[-600:])
    assert f"of {size} bytes left out" in outcome.content


async def test_long_error_is_spilled_like_any_result(call: Call) -> None:
    """The bound holds for the text of an error as well."""
    outcome = await call(raising(ValueError("x" * 50_000)))
    assert outcome.is_error
    assert outcome.spilled.size == 50_012
    assert len(outcome.content) < 3_000


async def test_spilled_json_stays_json(call: Call, blobs: BlobStore) -> None:
    """A long structure is kept whole as JSON, and previewed as text."""
    value = {"rows": [{"n": n} for n in range(3_000)]}
    outcome = await call(returning(value))
    assert outcome.spilled.media_type == "application/json"
    assert json.loads(await blobs.get(outcome.spilled)) == value
    assert isinstance(outcome.content, str)


@pytest.mark.parametrize(
    ("declared", "limits", "spills"),
    [
        (None, (), False),
        (4_096, (), True),
        (None, ({"spill_bytes": 4_096},), True),
        (100_000, ({"spill_bytes": 4_096},), True),
        (4_096, ({"spill_bytes": 100_000},), False),
        (None, ({"spill_bytes": "many"},), False),
        (None, (None,), False),
    ],
)
async def test_spill_bound_is_sent_or_declared_or_default(
    call: Call, declared: int | None, limits: tuple[Any, ...], spills: bool
) -> None:
    """What the workflow sends wins over what the tool declares, and that over the default."""

    @tool(spill_bytes=declared)
    async def give() -> str:
        """Give."""
        return "x" * 10_000

    assert ((await call(give, {}, *limits)).spilled is not None) is spills


async def test_result_never_exceeds_what_a_payload_may_hold(blobs: BlobStore, cache: Remembering) -> None:
    """Whatever bound is asked for, the result as it is written stays below 1.5 MB, escapes included."""
    limits = {"spill_bytes": 1_000_000}
    for text in ("日" * 330_000, "\u0001" * 900_000, '"' * 999_000):
        toolbox = Toolbox([returning(text)], blobs=blobs, cache=cache)
        result = await environment_of().run(toolbox.activities()[0], {}, limits)
        payloads = await DataConverter.default.encode([result])
        assert payloads[0].ByteSize() < 1_500_100


async def test_bytes_go_to_the_blob_store(call: Call, blobs: BlobStore) -> None:
    """Binary parts, wherever they are in the result, are references; the model reads type and size."""
    value = {"chart": PNG, "rows": [1, Binary(b"a,b", "text/csv", "t.csv")]}
    outcome = await call(returning(value))
    assert outcome.content == {
        "chart": "[file: image/png, 1,008 bytes]",
        "rows": [1, "[file t.csv: text/csv, 3 bytes]"],
    }
    assert [await blobs.get(ref) for ref in outcome.files] == [PNG, b"a,b"]
    assert [(ref.media_type, ref.name) for ref in outcome.files] == [
        ("image/png", None),
        ("text/csv", "t.csv"),
    ]


async def test_files_are_bounded(call: Call) -> None:
    """A result with very many binary parts keeps a bounded number, and says what it did not keep."""
    outcome = await call(returning([b"%d" % n for n in range(40)]))
    assert len(outcome.files) == 32
    assert str(outcome.content).count("not kept") == 8


async def test_broken_blob_store_costs_the_part_only(cache: Remembering, tmp_path: Path) -> None:
    """A tool that has acted keeps its result, also when nothing can be stored."""
    (tmp_path / "blobs").write_text("a file where the folder should be")
    toolbox = Toolbox(
        [returning(["done " * 10_000, b"raw"])], blobs=BlobStore(f"{tmp_path}/blobs"), cache=cache
    )
    outcome = unwire(ToolOutcome, await environment_of().run(toolbox.activities()[0]))
    assert not outcome.is_error
    assert outcome.spilled is None
    assert "done done" in str(outcome.content)
    assert "lost" in str(outcome.content)


async def test_outcome_that_a_tool_makes_itself_is_kept(call: Call) -> None:
    """A tool may return its own outcome, with references; the bounds hold for it too."""
    ref = BlobRef(digest="blake2b:" + "0" * 64, size=9)
    given = ToolOutcome(content="partly", is_error=True, files=(ref,), not_applied=True)
    assert await call(returning(given)) == given
    assert (await call(returning(ToolOutcome(content="x" * 50_000, files=(ref,))))).spilled is not None


async def test_outcome_is_remembered_as_it_is_returned(call: Call, cache: Remembering) -> None:
    """The process holds the very outcome that goes into history, so that it need not be asked for."""
    for value in ("text", "x" * 50_000, {"v": math.nan}, PNG):
        returned = await call(returning(value))
        assert cache.held["run-1", "ab12cd34-7"] == returned


@pytest.mark.parametrize("activity_id", ["test", "12", "ab-x", "job-7", ""])
async def test_activity_of_another_workflow_is_not_remembered(
    call: Call, cache: Remembering, activity_id: str
) -> None:
    """A tool called as a plain activity of the user's own workflow works, and is not taken for a call."""
    assert (await call(returning("x"), activity_id=activity_id)).content == "x"
    assert cache.held == {}


async def test_idempotency_key_is_the_same_in_every_attempt(call: Call) -> None:
    """A call has a stable key, which names run and call."""

    async def keyed(context: ToolContext) -> list[Any]:
        """Keyed."""
        return [context.idempotency_key, context.attempt]

    assert (await call(keyed, attempt=1)).content == ["run-1:ab12cd34-7", 1]
    assert (await call(keyed, attempt=3)).content == ["run-1:ab12cd34-7", 3]


async def test_tool_without_end_frees_its_slot(call: Call) -> None:
    """An attempt that outlives its own time-out is given up here too, retryable."""

    async def stuck() -> None:
        """Stuck."""
        await asyncio.sleep(60)

    with pytest.raises(ApplicationError) as raised:
        await call(stuck, start_to_close_timeout=timedelta(seconds=0.1))
    assert raised.value.type == "tool_unreachable"


async def test_timeout_of_the_tools_own_is_an_observation(call: Call) -> None:
    """A time-out inside a tool is an error like any other."""

    async def impatient() -> None:
        """Impatient."""
        async with asyncio.timeout(0.01):
            await asyncio.sleep(1)

    assert (await call(impatient)).content == "TimeoutError"


async def test_heartbeat_shows_the_latest_detail(blobs: BlobStore, cache: Remembering) -> None:
    """A tool's own detail is shown at once and repeated by itself, from a thread as well."""

    @tool
    def work(context: ToolContext) -> None:
        """Work."""
        context.heartbeat({"done": 1, "nan": math.nan})
        time.sleep(0.5)

    beats: list[Any] = []
    environment = environment_of(heartbeat_timeout=timedelta(seconds=0.3))
    environment.on_heartbeat = lambda *details: beats.append(details)
    await environment.run(Toolbox([work], blobs=blobs, cache=cache).activities()[0])
    assert len(beats) >= 3
    assert set(map(str, beats)) == {str(({"done": 1, "nan": "NaN"},))}


async def test_quick_call_sends_no_heartbeat(blobs: BlobStore, cache: Remembering) -> None:
    """Heartbeats cost: a call that is over sooner sends none."""
    beats: list[Any] = []
    environment = environment_of(heartbeat_timeout=timedelta(seconds=30))
    environment.on_heartbeat = lambda *details: beats.append(details)
    await environment.run(Toolbox([returning("x")], blobs=blobs, cache=cache).activities()[0])
    assert beats == []


def test_two_tools_of_one_name_are_refused(blobs: BlobStore, cache: Remembering, tmp_path: Path) -> None:
    """A name means one tool, whatever the sources."""
    foreign = ToolDefinition(declaration=ToolDeclaration(name="give", source="activity"))
    for functions, activities in (([returning(1), returning(2)], []), ([returning(1)], [foreign])):
        with pytest.raises(ValueError, match="more than one tool is called give"):
            Toolbox(functions, activities, blobs=blobs, cache=cache)
    taken = tool(name="files/read")(returning(1).function)
    with pytest.raises(ValueError, match="files/read"):
        Toolbox([taken], blobs=blobs, cache=cache, files_root=tmp_path)


async def test_definitions_are_of_every_source(blobs: BlobStore, cache: Remembering, tmp_path: Path) -> None:
    """The catalog holds built-in, Python and foreign tools, in a stable order; a failed server is a note."""
    foreign = ToolDefinition(declaration=ToolDeclaration(name="billing/charge", source="activity"))
    broken = McpServerSpec(command=["no-such-program"], required=True)
    toolbox = Toolbox(
        [returning(1)], [foreign], {"broken": broken}, blobs=blobs, cache=cache, files_root=tmp_path
    )
    tools, notes = await toolbox.definitions()
    names = [(found.name, found.declaration.source) for found in tools]
    assert names == [
        ("files/list", "builtin"),
        ("files/read", "builtin"),
        ("files/search", "builtin"),
        ("give", "python"),
        ("billing/charge", "activity"),
    ]
    assert len(notes) == 1
    assert "broken" in notes[0]
    catalog = await toolbox.catalog()
    assert (list(catalog.failures), catalog.required) == (["broken"], ("broken",))


async def test_unknown_name_fails_for_good(blobs: BlobStore, cache: Remembering) -> None:
    """An activity type that nobody serves is said so, once, naming it: no retry can help."""
    toolbox = Toolbox(blobs=blobs, cache=cache)
    for name in ("ChargeCard", "mcp:none/tool", "mcp:"):
        with pytest.raises(ApplicationError, match=name) as raised:
            await environment_of(activity_type=name).run(toolbox.dynamic, [])
        assert (raised.value.type, raised.value.non_retryable) == ("NotFoundError", True)


# --- on a real worker ------------------------------------------------------------------------------------


@workflow.defn(sandboxed=False)
class OneCall:
    """Calls one activity with a heartbeat time-out of two seconds, as a call of a run."""

    @workflow.run
    async def run(self, name: str, arguments: dict[str, Any], attempts: int) -> Any:
        """Call it."""
        return await workflow.execute_activity(
            name,
            args=[arguments],
            activity_id="ab12cd34-1",
            start_to_close_timeout=timedelta(seconds=60),
            heartbeat_timeout=timedelta(seconds=2),
            retry_policy=RetryPolicy(maximum_attempts=attempts, initial_interval=timedelta(seconds=0.1)),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


@dataclass
class Running:
    """A worker with the tools below, and a client."""

    client: Client
    queue: str

    async def start(self, name: str, attempts: int = 1, /, **arguments: Any) -> WorkflowHandle[Any, Any]:
        """Start a workflow that calls that tool."""
        identity = f"{self.queue}-{name}-{time.monotonic_ns()}"
        return await self.client.start_workflow(
            "OneCall", args=[name, arguments, attempts], id=identity, task_queue=self.queue
        )


SEEN: dict[str, Any] = {}
"""What the tools below saw."""


@tool
def sync_nap(seconds: float) -> str:
    """Nap in a thread, and look at nothing."""
    time.sleep(seconds)
    return "rested"


@tool
async def async_nap(seconds: float) -> str:
    """Nap."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        SEEN["cancelled"] = time.monotonic()
        raise
    return "rested"


@tool
def watchful(context: ToolContext) -> str:
    """Wait in a thread for the cancellation."""
    SEEN["told"] = context.wait_cancelled(30)
    return "told"


@tool
async def stubborn() -> str:
    """Turn a cancellation into a result."""
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        return "finished all the same"
    return "never"


@tool
def flaky(context: ToolContext) -> int:
    """Cannot be reached at first."""
    if context.attempt < 3:
        raise ToolUnavailable("not yet")
    return context.attempt


@pytest.fixture
async def running(server: Server, blobs: BlobStore) -> AsyncIterator[Running]:
    """A real worker over a real server."""
    SEEN.clear()
    async with serving([sync_nap, async_nap, watchful, stubborn, flaky], server, blobs) as made:
        yield made


@asynccontextmanager
async def serving(
    functions: list[ToolFunction], server: Server, blobs: BlobStore, **extra: Any
) -> AsyncIterator[Running]:
    """A worker that serves these tools."""
    client = await Client.connect(server.address, namespace=server.namespace)
    toolbox = Toolbox(functions, blobs=blobs, cache=ProcessCache(), **extra)
    queue = f"tools-{time.monotonic_ns()}"
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[OneCall],
        activities=[*toolbox.activities(), toolbox.dynamic],
        workflow_runner=UnsandboxedWorkflowRunner(),
        graceful_shutdown_timeout=timedelta(seconds=1),
    )
    async with worker:
        yield Running(client, queue)
    await toolbox.close()


@pytest.mark.parametrize("name", ["sync_nap", "async_nap"])
async def test_long_call_lives_through_its_heartbeat_timeout(running: Running, name: str) -> None:
    """A call of twice its heartbeat time-out heartbeats by itself, in a thread as in the loop."""
    handle = await running.start(name, seconds=4.5)
    assert await handle.result() == {"content": "rested"}


async def test_cancellation_reaches_an_asynchronous_tool(running: Running) -> None:
    """The tool itself is cancelled within the heartbeat window, not only its heartbeats."""
    handle = await running.start("async_nap", seconds=30)
    await asyncio.sleep(1)
    started = time.monotonic()
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert SEEN["cancelled"] - started < 3


async def test_cancellation_reaches_a_thread(running: Running) -> None:
    """A synchronous tool is told within the heartbeat window."""
    handle = await running.start("watchful")
    await asyncio.sleep(1)
    started = time.monotonic()
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert time.monotonic() - started < 4
    assert SEEN["told"] is True


async def test_tool_that_absorbs_its_cancellation_gives_a_result(running: Running) -> None:
    """A result that comes in spite of a cancellation is recorded, and nothing hangs."""
    handle = await running.start("stubborn")
    await asyncio.sleep(1)
    await handle.cancel()
    assert await handle.result() == {"content": "finished all the same"}


async def test_unavailable_tool_is_retried_with_the_same_key(running: Running) -> None:
    """Temporal repeats what could not be reached, as often as it may."""
    assert await (await running.start("flaky", 4)).result() == {"content": 3}


async def test_mcp_call_lives_and_is_cancelled_like_any_tool(
    server: Server, blobs: BlobStore, tmp_path: Path
) -> None:
    """An MCP call heartbeats; its cancellation reaches the server, and the worker's end the whole group."""
    journal = tmp_path / "journal"
    command = (sys.executable, "-I", "-S", str(PLAIN), "--journal", str(journal))
    async with serving([], server, blobs, mcp={"p": McpServerSpec(command=command)}) as made:
        lives = await made.start("mcp:p/waiting", seconds=4.5)
        dies = await made.start("mcp:p/waiting", seconds=50)
        forked = await made.start("mcp:p/forking")
        child = int((await forked.result())["content"])
        await asyncio.sleep(1)
        await dies.cancel()
        with pytest.raises(WorkflowFailureError):
            await dies.result()
        assert await lives.result() == {"content": "waited"}
        assert journal.read_text().count("stopped waiting") == 1
    gone = not Path(f"/proc/{child}").exists()
    assert gone or "State:\tZ" in Path(f"/proc/{child}/status").read_text()


async def test_users_dynamic_activity_serves_its_own_names(server: Server, blobs: BlobStore) -> None:
    """Names that are not ours go to the user's dynamic activity, synchronous or not."""

    async def later(args: Any) -> Any:
        return [activity.info().activity_type, len(args)]

    def now(args: Any) -> Any:
        return [activity.info().activity_type, len(args)]

    for fallback in (later, now):
        async with serving([], server, blobs, fallback=fallback) as made:
            assert await (await made.start("ChargeCard", cents=5)).result() == ["ChargeCard", 1]


def test_activities_are_registered_under_the_tools_names(blobs: BlobStore, cache: Remembering) -> None:
    """The UI's timeline shows the tool's name, not a generic one."""
    toolbox = Toolbox([tool(group="billing", name="charge")(returning(1).function)], blobs=blobs, cache=cache)
    names = [activity._Definition.must_from_callable(found).name for found in toolbox.activities()]
    assert names == ["billing/charge", "mainspring.call_tool"]
