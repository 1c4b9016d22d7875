"""Bad input is answered clearly, at once, and before anything is paid for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from mainspring.client import Refused, RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, events_named, serving
from mainspring.tools import tool
from support.history import assert_sound, bought_nothing
from support.tools import observe

PATIENCE = 30
"""Seconds; a run that hangs or retries for ever fails its test here."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def case(server: Server) -> AsyncIterator[Case]:
    """One agent for the whole file; at the end every run is replayed."""
    models = {
        "locked": {"model": "openai:gpt-4o-mini", "api_key": "env:NO_SUCH_KEY_HERE"},
        "odd": {"model": "no-such-provider:x"},
    }
    script = {"replies": [{"text": "ok", "delay": 0.3}], "then": "repeat_last"}
    async with serving(server.address, replies=script, tools=[observe], config={"models": models}) as served:
        yield served


async def begin(case: Case, *args: Any) -> str:
    """Start a run with these arguments, whatever they are; its id."""
    run = f"bad-{uuid4().hex[:12]}"
    await case.client.start_workflow("AgentRun", args=list(args), id=run, task_queue=case.task_queue)
    case.started.append(run)
    return run


async def refusal(case: Case, *args: Any) -> ApplicationError:
    """The failure of a run with these arguments, which must come soon and cost nothing."""
    run = await begin(case, *args)
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(case.handle(run).result(), PATIENCE)
    history = await case.history(run)
    assert_sound(history, sent=False)
    assert bought_nothing(history)
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    """A payload as another SDK might send it."""
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


def asking(**more: Any) -> dict[str, Any]:
    """A run's argument for the tested agent."""
    return {"agent": "tested", "prompt": "go", **more}


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown agent": ({"agent": "testd"}, ("agent", "'testd'", "tested")),
    "unknown model": ({"overrides": {"model": "defualt"}}, ("model", "'defualt'", "default")),
    "unknown tool": ({"overrides": {"tools": ["obsrve"]}}, ("tools", "'obsrve'", "observe")),
    "unknown server": ({"overrides": {"tools": ["mcp:nowhere/*"]}}, ("tools", "nowhere")),
    "unknown namespace": ({"overrides": {"tools": ["skill:x"]}}, ("tools", "skill", "mcp:")),
    "unknown intrinsic": ({"overrides": {"tools": ["nika:dnoe"]}}, ("tools", "nika:dnoe", "nika:done")),
    "unknown key": ({"promt": "x"}, ("promt", "prompt")),
    "unknown override": ({"overrides": {"modle": "x"}}, ("overrides.modle", "model")),
    "unknown budget": ({"overrides": {"budgets": {"turn": 3}}}, ("overrides.budgets.turn", "turns")),
    "unknown limit": ({"overrides": {"limits": {"depht": 3}}}, ("limits", "depht", "depth")),
    "unknown key of an inline agent": (
        {"agent": {"instructions": "x", "toolz": ["observe"]}},
        ("agent", "toolz", "tools"),
    ),
    "blank prompt": ({"prompt": " \n\t"}, ("prompt", "blank")),
    "prompt that is no text": ({"prompt": 7}, ("prompt", "string", "7")),
    "no turns": ({"overrides": {"budgets": {"turns": 0}}}, ("turns", "1", "0")),
    "too many turns": ({"overrides": {"budgets": {"turns": 100_001}}}, ("turns", "100000", "100001")),
    "temperature": ({"overrides": {"settings": {"temperature": 3}}}, ("temperature", "2", "3")),
    "schema": ({"overrides": {"output_schema": {"type": "objekt"}}}, ("output_schema", "objekt")),
    "remote schema": (
        {"overrides": {"output_schema": {"$ref": "http://127.0.0.1:9/x"}}},
        ("output_schema", "127.0.0.1"),
    ),
    "schema that admits nothing": ({"overrides": {"output_schema": False}}, ("output_schema",)),
    "dollars without a price": (
        {"overrides": {"budgets": {"dollars": 1}}},
        ("budgets.dollars", "price", "default"),
    ),
    "missing secret": ({"overrides": {"model": "locked"}}, ("models.locked.api_key", "NO_SUCH_KEY_HERE")),
    "metadata that is no text": ({"metadata": {"n": 7}}, ("metadata.n", "7")),
    "lifetime": ({"lifetime": "for ever"}, ("lifetime", "conversation", "for ever")),
    "attachment of nothing": ({"attachments": [{"name": "x"}]}, ("attachments[0]", "data", "blob")),
    "attachment that is not base64": ({"attachments": [{"data": "%%"}]}, ("attachments[0].data", "base64")),
    "idle time of a single run": ({"idle_timeout": 5}, ("idle_timeout", "conversation")),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_bad_value_is_refused_naming_field_value_and_what_is_allowed(case: Case, kind: str) -> None:
    """The run ends as `invalid_input` before any model call, and says what was wrong where."""
    given, named = REFUSED[kind]
    error = await refusal(case, {**asking(), **given})
    assert (error.type, error.details[0]["code"]) == ("invalid_input", "NIKA-465")
    assert error.non_retryable
    for word in named:
        assert word in error.message
    assert len(error.message) < 5_000


OPEN = b'{"agent":"tested","prompt":"go"'
ARGUMENTS: dict[str, list[Any]] = {
    "none": [],
    "null": [None],
    "text": ["go"],
    "list": [[asking()]],
    "two": [asking(), "more"],
    "bytes": [b"\xff\x00"],
    "no json": [raw(b"{not json")],
    "not utf-8": [raw(b'{"agent": "\xff"}')],
    "lone surrogate": [raw(rb'{"agent": "tested", "prompt": "\ud800 go"}')],
    "unknown encoding": [raw(b"\x00", b"binary/avro")],
    "NaN in a number": [
        raw(b'{"agent":"tested","prompt":"go","overrides":{"settings":{"temperature":NaN}}}')
    ],
    "NaN in free json": [raw(OPEN + b',"criteria":[{"x":NaN}]}')],
    "infinity in an inline agent": [
        raw(b'{"agent":{"output_schema":{"maximum":Infinity}},"prompt":"go"}'),
    ],
    "nested 300 deep": [raw(OPEN + b',"criteria":' + b"[" * 300 + b"]" * 300 + b"}")],
    "nested 190 deep": [raw(OPEN + b',"criteria":' + b"[" * 190 + b"]" * 190 + b"}")],
    "nested schema": [
        raw(
            b'{"agent":{"tools":["nika:done"],"output_schema":'
            + b'{"not":' * 190
            + b"{}"
            + b"}" * 190
            + b'},"prompt":"go"}'
        )
    ],
    "integer of 5,000 digits": [
        raw(b'{"agent":"tested","prompt":"go","metadata":{"n":' + b"9" * 5_000 + b"}}")
    ],
    "integer of 4,000 digits": [
        raw(b'{"agent":"tested","prompt":"go","metadata":{"n":' + b"9" * 4_000 + b"}}")
    ],
}


@pytest.mark.parametrize("kind", ARGUMENTS)
async def test_argument_that_is_no_run_input_fails_the_run_and_never_a_workflow_task(
    case: Case, kind: str
) -> None:
    """Whatever a client sends as argument, the run ends soon with a typed error that is not retried."""
    error = await refusal(case, *ARGUMENTS[kind])
    assert error.type in ("invalid_input", "InvalidPayload")
    assert error.non_retryable
    assert error.message


async def test_unknown_provider_ends_the_run_typed_and_costs_nothing(case: Case) -> None:
    """Only the first model call can know it: it is tried once, and nothing was paid for."""
    run = await case.start(overrides={"model": "odd"})
    with pytest.raises(RunFailed) as failed:
        await asyncio.wait_for(run.result(), PATIENCE)
    result = failed.value.result
    assert result is not None
    assert "no-such-provider" in str(result.message)
    assert (result.spend.model_calls, result.spend.input_tokens) == (0, 0)
    assert activities_of(await case.history(run)).count(("mainspring.call_model", "failed")) == 1


ABSENT = ["no-such-program-at-all"]


async def lacking(server: Server, required: bool, patterns: list[str]) -> tuple[RunFailed | None, list[str]]:
    """How a run ends that lacks an MCP server, and its notes."""
    config = {"mcp": {"absent": {"command": ABSENT, "required": required}}}
    given: dict[str, Any] = {"tools": [observe], "agent": {"tools": patterns}, "config": config}
    async with serving(server.address, replies=[{"text": "ok"}], **given) as case:
        run = await case.start()
        try:
            await asyncio.wait_for(run.result(), 2 * PATIENCE)
        except RunFailed as failed:
            assert bought_nothing(await case.history(run))
            return failed, []
        return None, (await run.state())["notes"]


async def test_server_that_does_not_start_is_fatal_only_where_it_is_needed(server: Server) -> None:
    """A needed MCP server that is not there ends the run as `catalog_unavailable`; another one is a note."""
    required, named, neither = await asyncio.gather(
        lacking(server, True, ["*", "mcp:*/*"]),
        lacking(server, False, ["*", "mcp:absent/*"]),
        lacking(server, False, ["*", "mcp:*/*"]),
    )
    for failed, _ in (required, named):
        assert failed is not None
        assert failed.result is not None
        assert (failed.result.outcome, failed.result.code) == ("catalog_unavailable", "NIKA-466")
        assert "absent" in str(failed.result.message)
    assert neither[0] is None
    assert any("absent" in note and "left out" in note for note in neither[1])


HALF = b'"\\ud800"'
MESSAGES: list[tuple[str, list[Any]]] = [
    *(
        (name, [argument])
        for name in ("steer", "follow_up")
        for argument in (
            None,
            7,
            [],
            {},
            {"message": 7},
            {"message": " "},
            {"message": "x", "extra": 1},
            {"message": "x", "attachments": "y"},
            b"\xff",
            raw(b"{not json"),
            raw(HALF),
            raw(b'{"message": "x", "extra": NaN}'),
            raw(b"9" * 5_000),
            raw(b"[" * 300 + b"]" * 300),
            raw(b"\x00", b"binary/avro"),
            raw(b"", b""),
        )
    ),
    *((name, []) for name in ("steer", "follow_up")),
    *((name, ["a", "b"]) for name in ("steer", "follow_up", "interrupt", "finish", "pause", "resume")),
    ("interrupt", [7]),
    ("decide", [{}]),
    ("no_such_thing", ["x"]),
    ("x" * 900, []),
]


async def waiting(case: Case) -> Any:
    """A conversation that has answered once and waits."""
    run = await case.start(lifetime="conversation")
    while (await run.state())["awaiting"] != "follow_up":
        await asyncio.sleep(0.05)
    return run


async def test_every_signal_that_is_not_understood_is_an_event_and_harms_nothing(case: Case) -> None:
    """Each is named with a reason that is not its content, and the conversation goes on."""
    run = await waiting(case)
    for name, args in MESSAGES:
        await case.handle(run).signal(name, args=args)
    assert await asyncio.wait_for(run.ask("still there?"), PATIENCE) == "ok"
    await run.finish()
    assert (await asyncio.wait_for(run.result(), PATIENCE)).exchanges == 2
    rejected = events_named(await case.events(run), "SignalRejected")
    assert_sound(await case.history(run), sent=False)
    assert [str(event["signal"])[:20] for event in rejected] == [name[:20] for name, _ in MESSAGES]
    assert all(0 < len(str(event["reason"])) < 700 for event in rejected)


async def test_every_update_that_is_not_understood_is_refused_and_harms_nothing(case: Case) -> None:
    """The caller is told why; nothing of it is in the history."""
    run = await waiting(case)
    before = len((await case.history(run)).events)
    for name, args in [*MESSAGES, ("extend_budget", [{}]), ("extend_budget", [{"turns": 0}])]:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await asyncio.wait_for(case.handle(run).execute_update(name, args=args), PATIENCE)
        assert str(refused.value.cause)
        assert len(str(refused.value.cause)) < 1_000
    history = await case.history(run)
    assert len(history.events) == before
    assert await asyncio.wait_for(run.ask("still there?"), PATIENCE) == "ok"
    await run.finish()
    await asyncio.wait_for(run.result(), PATIENCE)
    assert_sound(await case.history(run))


async def test_client_refuses_before_it_sends_what_it_can_know(case: Case) -> None:
    """A blank prompt or an unknown key never becomes a run."""
    with pytest.raises(Refused, match="prompt"):
        await case.start(" ")
    with pytest.raises(Refused, match="modle"):
        await case.start(overrides={"modle": "x"})


INSTANT = 1e-9
"""Seconds; to a server it is no time at all."""


@pytest.mark.parametrize(
    "overrides",
    [
        {"limits": {"model_timeout": INSTANT}},
        {"limits": {"cancel_grace": INSTANT}},
        {"limits": {"model_timeout": 3e8}},
        {"budgets": {"wall": INSTANT}},
        {"budgets": {"wall": 3e8}},
    ],
    ids=str,
)
async def test_bound_of_no_time_or_of_ages_ends_typed(case: Case, overrides: dict[str, Any]) -> None:
    """A duration that is allowed never makes a command that the server refuses for ever."""
    run = await begin(case, asking(overrides=overrides))
    with suppress(WorkflowFailureError):
        await asyncio.wait_for(case.handle(run).result(), PATIENCE)
    outcome = (await case.handle(run).query("state"))["outcome"]
    assert outcome in ("completed", "refused", "budget")
    assert_sound(await case.history(run))


async def test_tool_of_no_time_is_an_observation(server: Server) -> None:
    """A tool that declares next to no time is in time or times out; the run goes on."""
    hasty = tool(effects="read", name="hasty", timeout=INSTANT, heartbeat=INSTANT, attempts=2)(
        observe.function
    )
    async with serving(
        server.address, replies=[{"calls": [{"tool": "hasty"}]}, {"text": "ok"}], tools=[hasty]
    ) as one:
        run = await one.start()
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
        assert_sound(await one.history(run))
