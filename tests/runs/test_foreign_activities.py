"""Activities of anybody, on any queue, as tools: called by name alone; what they do is an observation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, events_named, serving
from support.history import assert_sound

PATIENCE = 40
CALLED: Counter[str] = Counter()

Json = Callable[[], Any]


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    """A payload as another SDK might send it."""
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


RESULTS: dict[str, tuple[Json, Any]] = {
    "nothing": (lambda: None, None),
    "text": (lambda: "ok", "ok"),
    "number": (lambda: 3.5, 3.5),
    "list": (lambda: [1, {"a": None}], [1, {"a": None}]),
    "looks like ours": (lambda: {"content": "x", "is_error": True}, {"content": "x", "is_error": True}),
    "null payload": (lambda: raw(b"", b"binary/null"), None),
    "not finite": (lambda: raw(b'{"v": NaN, "w": -Infinity}'), {"v": "NaN", "w": "-Infinity"}),
    "integer beyond a float": (lambda: 2**64, str(2**64)),
}
UNREADABLE: dict[str, Json] = {
    "unknown encoding": lambda: raw(b"\x00\x01", b"binary/avro"),
    "no encoding": lambda: RawValue(Payload(data=b"x")),
    "protobuf of nobody's": lambda: RawValue(
        Payload(metadata={"encoding": b"json/protobuf", "messageType": b"no.Such"}, data=b"{}")
    ),
    "not json": lambda: raw(b"{not json"),
    "not utf-8": lambda: raw(b'"\xff"'),
    "lone surrogate": lambda: raw(rb'"\ud800"'),
    "nested 300 deep": lambda: raw(b"[" * 300 + b"]" * 300),
    "integer of 5,000 digits": lambda: raw(b"9" * 5_000),
}
FAILURES: dict[str, tuple[Callable[[], BaseException], str]] = {
    "application error": (
        lambda: ApplicationError("no funds", type="Declined", non_retryable=True),
        "no funds",
    ),
    "no message": (lambda: ApplicationError("", type="Declined", non_retryable=True), "Declined"),
    "3 MB of message": (lambda: ApplicationError("x" * 3_000_000, non_retryable=True), ""),
    "lone surrogate": (lambda: ApplicationError("half \ud800", non_retryable=True), ""),
    "unreadable details": (
        lambda: ApplicationError(
            "no funds", raw(b"\x00", b"binary/avro"), type="Declined", non_retryable=True
        ),
        "no funds",
    ),
}


@activity.defn(name="Give")
async def give(arguments: dict[str, Any]) -> Any:
    """Return what is asked for, as its payload."""
    CALLED["Give"] += 1
    kind = arguments["kind"]
    return RESULTS[kind][0]() if kind in RESULTS else UNREADABLE[kind]()


@activity.defn(name="Fail")
async def fail(arguments: dict[str, Any]) -> Any:
    """Raise what is asked for."""
    CALLED[f"Fail {arguments['kind']}"] += 1
    if arguments["kind"] == "forbidden":
        raise ApplicationError("never", type="tool_forbidden", non_retryable=True)
    raise FAILURES[arguments["kind"]][0]()


@activity.defn(name="Huge")
async def huge(arguments: dict[str, Any]) -> Any:
    """Return very much."""
    CALLED[f"Huge {arguments['size']}"] += 1
    return "h" * int(arguments["size"])


@activity.defn(name="Hang")
async def hang(arguments: dict[str, Any]) -> Any:
    """Never return."""
    CALLED[f"Hang {arguments['key']}"] += 1
    await asyncio.sleep(600)


def declared(name: str, kind: str, queue: str, **more: Any) -> dict[str, Any]:
    """An entry under `tools.activities`."""
    return {"name": name, "description": "Of another team.", "activity": kind, "task_queue": queue, **more}


@asynccontextmanager
async def beside(server: Server, replies: Any, tools: Sequence[dict[str, Any]]) -> AsyncIterator[Case]:
    """A case whose tools are served by a plain worker of somebody else's, without our plugin."""
    config = {"tools": {"activities": list(tools)}}
    agent = {"tools": [entry["name"] for entry in tools]}
    theirs = await Client.connect(server.address)
    served = [give, fail, huge, hang]
    queue = tools[0]["task_queue"]
    grace = timedelta(seconds=0)
    async with (
        serving(server.address, replies=replies, agent=agent, config=config) as case,
        Worker(theirs, task_queue=queue, activities=served, graceful_shutdown_timeout=grace),
    ):
        yield case


async def seen(case: Case, run: Any) -> list[dict[str, Any]]:
    """The observations of a run that must answer `ok`."""
    assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
    entries = await case.handle(run).query("transcript")
    return [entry for entry in entries if entry["kind"] == "observation"]


def one(name: str, **arguments: Any) -> list[dict[str, Any]]:
    """A script of one call, then an answer."""
    return [{"calls": [{"tool": name, "arguments": arguments}]}, {"text": "ok"}]


async def test_result_of_a_foreign_activity_is_any_json(server: Server) -> None:
    """What it returns is what the model reads; the activity's row bears its own type."""
    calls = [{"tool": "other/give", "arguments": {"kind": kind}} for kind in RESULTS]
    tools = [declared("other/give", "Give", f"theirs-{uuid4().hex[:8]}", effects="read")]
    async with beside(server, [{"calls": calls}, {"text": "ok"}], tools) as case:
        run = await case.start()
        found = await seen(case, run)
        history = await case.history(run)
    assert [entry.get("content") for entry in found] == [wanted for _, wanted in RESULTS.values()]
    assert activities_of(history).count(("Give", "completed")) == len(RESULTS)


async def test_result_that_cannot_be_read_is_an_observation(server: Server) -> None:
    """A payload that this side cannot decode is told to the model; neither run nor workflow task fails."""
    calls = [{"tool": "other/give", "arguments": {"kind": kind}} for kind in UNREADABLE]
    tools = [declared("other/give", "Give", f"theirs-{uuid4().hex[:8]}", effects="read")]
    async with beside(server, [{"calls": calls}, {"text": "ok"}], tools) as case:
        run = await case.start()
        found = await seen(case, run)
    assert len(found) == len(UNREADABLE)
    assert all(entry["is_error"] for entry in found)
    assert all("cannot be read" in str(entry["content"]) for entry in found)


async def test_failure_of_a_foreign_activity_is_an_observation(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it raises is read by the model, briefly, and it is called once."""
    # The SDK logs lone surrogates as they are, and what a test logs has to cross to the test runner.
    monkeypatch.setattr(logging.getLogger("temporalio.activity"), "disabled", True)
    tools = [declared("other/fail", "Fail", f"theirs-{uuid4().hex[:8]}", effects="write")]
    calls = [{"tool": "other/fail", "arguments": {"kind": kind}} for kind in FAILURES]
    async with beside(server, [{"calls": calls}, {"text": "ok"}], tools) as case:
        run = await case.start()
        found = await seen(case, run)
        assert_sound(await case.history(run))
    for (kind, (_, words)), entry in zip(FAILURES.items(), found, strict=True):
        assert entry["is_error"], kind
        assert words in entry["content"], kind
        assert len(entry["content"]) < 4_000, kind
        assert CALLED[f"Fail {kind}"] == 1, kind


async def test_foreign_activity_may_refuse_for_good(server: Server) -> None:
    """An error of the type `tool_forbidden`, from any language, ends the run as `security`."""
    tools = [declared("other/fail", "Fail", f"theirs-{uuid4().hex[:8]}", effects="write")]
    async with beside(server, one("other/fail", kind="forbidden"), tools) as case:
        run = await case.start()
        with pytest.raises(RunFailed) as failed:
            await asyncio.wait_for(run.result(), PATIENCE)
    assert failed.value.result is not None
    assert failed.value.result.outcome == "security"


@pytest.mark.parametrize("size", [1_500_000, 3_000_000])
async def test_huge_result_of_a_foreign_activity_is_cut_or_told(server: Server, size: int) -> None:
    """A result that fits is shown by head and tail; one that does not fit is an error. A write runs once."""
    tools = [declared("other/huge", "Huge", f"theirs-{uuid4().hex[:8]}", effects="write")]
    async with beside(server, one("other/huge", size=size), tools) as case:
        run = await case.start()
        found = await seen(case, run)
    assert len(found[0]["content"]) < 4_000
    assert bool(found[0].get("is_error")) == (size > 2_000_000)
    assert CALLED[f"Huge {size}"] == 1


@pytest.mark.parametrize(("effects", "tries", "status"), [("write", 1, "unknown"), ("read", 2, "error")])
async def test_foreign_activity_that_hangs_ends_in_its_time(
    server: Server, effects: str, tries: int, status: str
) -> None:
    """A read is tried again; a write runs once, and its outcome is told as unknown."""
    more = {"effects": effects, "timeout": 1.0, "attempts": tries}
    tools = [declared("other/hang", "Hang", f"theirs-{uuid4().hex[:8]}", **more)]
    key = uuid4().hex[:8]
    async with beside(server, one("other/hang", key=key), tools) as case:
        run = await case.start()
        found = await seen(case, run)
        done = events_named(await case.events(run), "ToolCompleted")
    assert found[0]["is_error"]
    assert (done[0]["status"], CALLED[f"Hang {key}"]) == (status, tries)


@pytest.mark.parametrize("effects", ["read", "write"])
async def test_queue_that_nobody_serves_is_told_as_not_started(server: Server, effects: str) -> None:
    """The call ends in its time, and the model knows that nothing happened."""
    tools = [
        declared("other/give", "Give", f"theirs-{uuid4().hex[:8]}"),
        declared("other/lost", "Lost", f"nobody-{uuid4().hex[:8]}", effects=effects, timeout=1.5, attempts=1),
    ]
    async with beside(server, one("other/lost"), tools) as case:
        began = time.monotonic()
        run = await case.start()
        found = await seen(case, run)
        took = time.monotonic() - began
        done = events_named(await case.events(run), "ToolCompleted")
    assert took < 15
    assert found[0]["is_error"]
    assert "not started" in found[0]["content"].lower()
    assert done[0]["status"] == "not_run"


async def test_activity_type_that_nobody_knows_is_told_in_bounded_time(server: Server) -> None:
    """The queue is served and the type is not: an observation that names it."""
    more = {"effects": "read", "timeout": 2.0, "attempts": 2}
    tools = [declared("other/missing", "NoSuchActivity", f"theirs-{uuid4().hex[:8]}", **more)]
    async with beside(server, one("other/missing"), tools) as case:
        run = await case.start()
        found = await seen(case, run)
    assert found[0]["is_error"]
    assert "NoSuchActivity" in found[0]["content"]
