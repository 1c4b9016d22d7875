"""Model calls inside runs on a real Temporal server: retries, waits, spend, cancellation."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise

import pytest

from mainspring.client import RunCancelled, RunFailed
from mainspring.testing import activities_of, serving
from support.model import chunk
from support.tools import observe

USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
DIALECTS = {
    "openai-chat:gpt-4o-mini": "openai",
    "openai-responses:gpt-4o-mini": "openai",
    "anthropic:claude-haiku-4-5": "anthropic",
}


def served(stub, **model):
    """The configuration of an agent whose model the stub serves."""
    spec = {"model": "openai-chat:gpt-4o-mini", "base_url": stub.base_url, "api_key": "env:STUB_KEY", **model}
    return {"models": {"real": spec}}


REAL = {"model": "real", "limits": {"model_attempts": 3}}


@pytest.mark.parametrize("model", DIALECTS)
async def test_run_with_a_provider_passes_its_verdict(server, llmock, monkeypatch, model):
    """A run with a tool call, a rate limit and a server error ends with an answer, and a passing verdict."""
    monkeypatch.setenv("MOCK_KEY", "sk-mock")
    llmock.rate_limit(times=1, retry_after=0.4).fail(503, times=1)
    llmock.call_tool("observe", {"i": 1}).reply("Seen.")
    address = llmock.base_url(DIALECTS[model])
    config = {"models": {"real": {"model": model, "base_url": address, "api_key": "env:MOCK_KEY"}}}
    async with serving(server.address, tools=[observe], agent={"model": "real"}, config=config) as case:
        result = await case.run("Look.")
    assert result.answer == "Seen."
    assert (result.spend.model_calls, result.spend.tool_calls) == (2, 1)
    assert "observation 1" in json.dumps(llmock.last_request.body)
    assert result.spend.dollars > 0
    assert len(llmock.requests) == 4
    llmock.assert_resilient(strict=True)


async def test_run_usage_of_failed_attempts_is_counted(server, stub):
    """What an attempt was billed before its stream was cut is in the spend of the run."""
    cut = stub.streams(chunk({"content": "Half"}), usage=USAGE)
    whole = stub.streams(chunk({"content": "All."}), chunk(finish="stop"), usage=USAGE)
    stub.answers = [cut, cut, whole]
    async with serving(server.address, agent=REAL, config=served(stub)) as case:
        result = await case.run()
    assert result.answer == "All."
    assert (result.spend.input_tokens, result.spend.output_tokens) == (300, 21)


async def test_run_with_a_provider_that_always_fails_is_bounded(server, stub):
    """500 for ever: exactly the configured attempts, a typed end, none of the provider's words in history."""
    quoting = json.dumps({"error": {"message": "prompt was hunter2 key sk-stub-0123456789abcdef"}})
    stub.answers = [stub.says(500, quoting)]
    async with serving(server.address, agent=REAL, config=served(stub)) as case:
        run = await case.start("hello")
        with pytest.raises(RunFailed) as caught:
            await run.result()
        history = await case.history(run)
    assert len(stub.requests) == 3
    assert caught.value.result.outcome == "refused"
    assert [how for kind, how in activities_of(history) if kind == "mainspring.call_model"] == ["failed"]
    assert "hunter2" not in history.to_json()
    assert "sk-stub" not in history.to_json()


async def test_run_waits_as_long_as_the_provider_asks(server, stub):
    """429 with `Retry-After: 2` twice, then an answer: no attempt comes earlier."""
    arrived = []

    async def refuse(writer):
        arrived.append(time.monotonic())
        writer.write(stub.says(429, "{}", Retry_After="2"))
        await writer.drain()

    whole = stub.streams(chunk({"content": "ok"}), chunk(finish="stop"), usage=USAGE)

    async def answer(writer):
        arrived.append(time.monotonic())
        writer.write(whole)
        await writer.drain()

    stub.answers = [refuse, refuse, answer]
    async with serving(server.address, agent=REAL, config=served(stub)) as case:
        assert (await case.run()).answer == "ok"
    gaps = [after - before for before, after in pairwise(arrived)]
    assert len(gaps) == 2
    assert all(2.0 <= gap < 6.0 for gap in gaps)


async def test_run_cancelled_while_a_provider_hangs_closes_the_connection(server, stub):
    """Cancelling reaches a call that waits for its first token, and the provider sees it leave."""

    async def hang(writer):
        await asyncio.sleep(60)

    stub.answers = [hang]
    async with serving(server.address, agent=REAL, config=served(stub)) as case:
        run = await case.start()
        while not stub.requests:
            await asyncio.sleep(0.05)
        await case.handle(run).cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        await asyncio.wait_for(stub.left.wait(), 5)
    assert len(stub.requests) == 1


async def test_run_shows_live_text_while_the_model_speaks(server):
    """`describe` shows the text so far while the call runs; history has nothing of it."""
    replies = [{"text": "word " * 100, "delay": 3.0}]
    async with serving(server.address, replies=replies) as case:
        run = await case.start()
        seen = ""
        for _ in range(40):
            await asyncio.sleep(0.1)
            described = await case.handle(run).describe()
            for pending in described.raw_description.pending_activities:
                for payload in pending.heartbeat_details.payloads:
                    seen = json.loads(payload.data)["text"]
            if seen:
                break
        result = await run.result()
        history = await case.history(run)
    assert seen.startswith("word")
    assert len(seen) < len("word " * 100)
    assert result.answer is not None
    assert [how for kind, how in activities_of(history) if kind == "mainspring.call_model"] == ["completed"]
