"""Whole runs over real HTTP: faults of providers, requests that a strict one takes, no secret anywhere."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import activities_of, events_named, serving
from support.history import assert_sound
from support.model import Stub, chunk
from support.tools import nap, observe

PATIENCE = 60
DIALECTS = {
    "openai-chat:gpt-4o-mini": "openai",
    "openai-responses:gpt-4o-mini": "openai",
    "anthropic:claude-haiku-4-5": "anthropic",
}
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
KEY = "sk-canary-0123456789abcdefghijkl"
HEADER = "header-canary-0123456789"
QUOTED = "quoted-canary"


@pytest_asyncio.fixture(loop_scope="session")
async def stub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stub]:
    """A provider on loopback, with a key and a header that must be seen nowhere."""
    monkeypatch.setenv("STUB_KEY", KEY)
    monkeypatch.setenv("STUB_HEADER", HEADER)
    found = Stub()
    served = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.base_url = f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}/v1"
    yield found
    served.close()


def on(stub: Stub, **agent: Any) -> dict[str, Any]:
    """Options of a case whose agent asks the stub."""
    spec = {
        "model": "openai-chat:gpt-4o-mini",
        "base_url": stub.base_url,
        "api_key": "env:STUB_KEY",
        "headers": {"x-extra": "env:STUB_HEADER"},
    }
    return {"agent": {"model": "real", **agent}, "config": {"models": {"real": spec}}}


def says(stub: Stub, text: str) -> bytes:
    """A reply of text."""
    return stub.streams(chunk({"content": text}), chunk(finish="stop"), usage=USAGE)


def calls(stub: Stub, *made: tuple[str | None, str, str]) -> bytes:
    """A reply of calls: id, name and arguments of each."""
    deltas = [
        {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (id, name, arguments) in enumerate(made)
    ]
    return stub.streams(chunk({"tool_calls": deltas}), chunk(finish="tool_calls"), usage=USAGE)


# -- faults --------------------------------------------------------------------------------------------


WHOLE = "Whole and sound, to the very last word."


async def survives(server: Server, model: str, provider: str) -> None:
    """Run an agent through every fault of one provider."""
    with LLMockServer() as served:
        llmock = LLMock(served)
        llmock.call_tool("observe", {"i": 1}).reply(WHOLE)
        llmock.fail(500, times=1).rate_limit(times=1, retry_after=0.3)
        spec = {"model": model, "base_url": llmock.base_url(provider), "api_key": "env:MOCK_KEY"}
        given: dict[str, Any] = {"agent": {"model": "real"}, "config": {"models": {"real": spec}}}
        async with serving(server.address, tools=[observe], **given) as case:
            run = await case.start("Look.")
            assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == WHOLE
            await asyncio.to_thread(llmock.assert_resilient, strict=True)
            for fault in ("truncate", "disconnect", "corrupt"):
                llmock.reset().reply(WHOLE)
                getattr(llmock, fault)(after_chunks=1, times=1)
                llmock.reply(WHOLE)
                result = await asyncio.wait_for(case.run("Again."), PATIENCE)
                assert result.answer == WHOLE, (model, fault)
                # The end of a garbled stream may come after its retry began, which a strict verdict minds.
                await asyncio.to_thread(llmock.assert_resilient, strict=fault != "corrupt")
            assert_sound(await case.history(run))


async def test_runs_survive_every_fault_of_a_stream_in_three_dialects(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams cut short, dropped and garbled, a 429 and a 500: whole answers, and every verdict passes."""
    monkeypatch.setenv("MOCK_KEY", "sk-mock")
    await asyncio.gather(*(survives(server, model, provider) for model, provider in DIALECTS.items()))


@pytest.mark.parametrize(("status", "asked"), [(401, 1), (503, 2)])
async def test_fallback_answers_where_a_model_is_gone_for_good(
    server: Server, llmock: Any, stub: Stub, status: int, asked: int
) -> None:
    """What cannot succeed is asked once, what might twice; then the fallback answers, and an event tells."""
    llmock.fail(status, times=None)
    stub.answers = [says(stub, "From the fallback.")]
    given = on(stub, limits={"model_attempts": 2})
    given["config"]["models"]["first"] = {
        "model": "openai-chat:gpt-4o-mini",
        "base_url": llmock.base_url("openai"),
        "api_key": "env:STUB_KEY",
        "fallback": "real",
    }
    given["agent"]["model"] = "first"
    async with serving(server.address, **given) as case:
        run = await case.start()
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "From the fallback."
        failed = events_named(await case.events(run), "ModelFailed")
        assert_sound(await case.history(run))
    assert len(llmock.requests) == asked
    assert [(event["model"], event["fallback"]) for event in failed] == [("first", "real")]


# -- secrets -------------------------------------------------------------------------------------------


def quoting(stub: Stub, status: int) -> bytes:
    """An error whose body quotes the prompt, the key and the headers, as providers do."""
    told = f"{QUOTED}: Incorrect API key {KEY}, header {HEADER}, in: Tell me a secret"
    body = {"error": {"message": told, "type": "bad_request_error", "code": KEY, "param": told}}
    return stub.says(status, json.dumps(body), x_request_id=HEADER, retry_after="0")


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
async def test_failure_holds_no_key_no_header_and_no_words_of_the_provider(
    server: Server, stub: Stub, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """Neither history, nor events, nor logs, nor the error that the caller sees quote the provider."""
    caplog.set_level(logging.DEBUG, logger="mainspring")
    caplog.set_level(logging.INFO, logger="temporalio")
    stub.answers = [quoting(stub, status)]
    async with serving(server.address, **on(stub, limits={"model_attempts": 2})) as case:
        run = await case.start("Tell me a secret")
        with pytest.raises(RunFailed) as failed:
            await asyncio.wait_for(run.result(), PATIENCE)
        history = await case.history(run)
        seen = json.dumps([await run.state(), await case.events(run), await run.explain()])
    assert str(status) in str(failed.value)
    stored = b"".join(event.SerializeToString() for event in history.events)
    for canary in (KEY, HEADER, QUOTED):
        assert canary.encode() not in stored
        assert canary not in seen
        assert canary not in str(failed.value)
        assert canary not in caplog.text
    assert stub.requests[0][0]["authorization"] == f"Bearer {KEY}"
    assert stub.requests[0][0]["x-extra"] == HEADER


async def test_failure_of_a_server_holds_no_secret_of_its_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An MCP server that dies with its token on its lips is left out, and the note does not repeat it."""
    monkeypatch.setenv("SERVER_TOKEN", KEY)
    program = "import os, sys; sys.exit('cannot log in with ' + os.environ['TOKEN'])"
    spec = {"command": [sys.executable, "-c", program], "env": {"TOKEN": "env:SERVER_TOKEN"}}
    given: dict[str, Any] = {"agent": {"tools": ["mcp:*/*"]}, "config": {"mcp": {"leaky": spec}}}
    async with serving(server.address, replies=[{"text": "ok"}], **given) as case:
        run = await case.start()
        await asyncio.wait_for(run.result(), PATIENCE)
        notes = str((await run.state())["notes"])
        history = await case.history(run)
    assert "leaky" in notes
    assert "cannot log in" in notes
    assert KEY not in notes
    assert KEY.encode() not in b"".join(event.SerializeToString() for event in history.events)
    assert KEY not in caplog.text


# -- what is sent --------------------------------------------------------------------------------------


def assert_strict(body: dict[str, Any]) -> None:
    """What the strictest chat provider demands of a request."""
    ids: set[str] = set()
    waiting: list[str] = []
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in waiting, "a result without its call"
            waiting.remove(message["tool_call_id"])
        else:
            assert waiting == [], f"{waiting} have no result before a message of {role}"
        if role == "assistant":
            assert message.get("content") or message.get("tool_calls"), "an empty reply"
            for call in message.get("tool_calls") or ():
                assert call["id"], "a call without an id"
                assert call["id"] not in ids, "one id twice"
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                ids.add(call["id"])
                waiting.append(call["id"])
        if role in ("user", "assistant"):
            assert role != before, f"two messages of {role} in a row"
        before = "tool" if role == "tool" else role
    assert waiting == []
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "_").isidentifier() and len(name) <= 64 for name in names)
    json.dumps(body, allow_nan=False, ensure_ascii=False).encode()


ODD_ARGUMENTS = ['{"i": 1,,}', '["x"]', "7", "null", "", '{"i":1}{"i":2}', '{"i": NaN}', '{"x":' * 500]


async def test_every_request_is_one_that_a_strict_provider_takes(server: Server, stub: Stub) -> None:
    """Odd arguments, ids that repeat or are missing, unknown names: no later request is malformed by them."""
    stub.answers = [
        calls(stub, *((f"c{i}", "observe", raw) for i, raw in enumerate(ODD_ARGUMENTS))),
        calls(stub, ("call_0", "observe", '{"i": 1}'), ("call_0", "observe", '{"i": 2}')),
        calls(stub, ("call_0", "observe", '{"i": 3}'), ("", "no such", "{}"), ("", "observe", '{"i": 4}')),
        calls(stub, ("x", "obs\x00er\u2028ve", '{"i": "\\ud800"}')),
        stub.streams(chunk({"content": "half \ud800 and \x00"}), chunk(finish="stop"), usage=USAGE),
    ]
    async with serving(server.address, tools=[observe], **on(stub)) as case:
        run = await case.start()
        result = await asyncio.wait_for(run.result(), PATIENCE)
        assert_sound(await case.history(run))
        done = events_named(await case.events(run), "ToolCompleted")
    assert result.answer == "half \ufffd and \ufffd"
    assert len(done) == len(ODD_ARGUMENTS) + 2 + 3 + 1
    assert len(stub.requests) == 5
    for _, body in stub.requests:
        assert_strict(body)


async def test_steering_and_interruption_leave_no_call_without_its_result(server: Server, stub: Stub) -> None:
    """Words in the middle of a batch, and a call that is withdrawn: the next requests are whole."""
    stub.answers = [
        calls(stub, ("a", "nap", '{"seconds": 0.6}'), ("b", "nap", '{"seconds": 0.2}')),
        calls(stub, ("a", "nap", '{"seconds": 30}'), ("b", "nap", '{"seconds": 0.1}')),
        says(stub, "done"),
        says(stub, "and more"),
    ]
    async with serving(server.address, tools=[nap], **on(stub, limits={"parallel_calls": 1})) as case:
        run = await case.start()
        async with asyncio.timeout(PATIENCE):
            while (await run.state())["status"] != "acting":
                await asyncio.sleep(0.02)
            await run.steer("look left")
            while (await run.state())["turn"] < 2 or (await run.state())["status"] != "acting":
                await asyncio.sleep(0.02)
            await run.steer("look right", interrupt=True)
            await case.handle(run).signal("follow_up", "and then?")
            result = await run.result()
    assert (result.answer, result.exchanges) == ("and more", 2)
    for _, body in stub.requests:
        assert_strict(body)
    said = [m["content"] for m in stub.requests[-1][1]["messages"] if m["role"] == "user"]
    assert [str(text) for text in said] == ["go", "look left", "look right", "and then?"]


async def test_many_tools_of_awkward_names_reach_a_provider_under_names_it_takes(
    server: Server, stub: Stub
) -> None:
    """Slashes, colons, dots and lengths are mapped to unique names, and calls come back to the right tool."""
    tools = {"mcp": {"time": {"command": ["mcp-server-time"]}}}
    given = on(stub, tools=["mcp:time/*", "observe", "files/*", "nika:done"])
    given["config"] |= {**tools, "files": {"root": "."}}
    stub.answers = [says(stub, "looking")]
    async with serving(server.address, tools=[observe], **given) as case:
        await asyncio.wait_for(case.run(), PATIENCE)
        names = [tool["function"]["name"] for tool in stub.requests[0][1]["tools"]]
        wanted = next(name for name in names if "current_time" in name)
        stub.answers = [
            says(stub, "unused"),
            calls(stub, ("a", wanted, '{"timezone": "UTC"}')),
            says(stub, "told"),
        ]
        run = await case.start()
        await asyncio.wait_for(run.result(), PATIENCE)
        ran = activities_of(await case.history(run))
    assert ("mcp:time/get_current_time", "completed") in ran
    for _, body in stub.requests:
        assert_strict(body)
