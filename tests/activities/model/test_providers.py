"""Real dialects of providers: what is sent, what comes back, and a verdict on how faults were met."""

from __future__ import annotations

import asyncio
import base64
import json
from itertools import pairwise

import pytest
from temporalio.exceptions import ApplicationError

from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.errors import MODEL_MISCONFIGURED
from mainspring.schemas.ledger import Attachment, Thinking
from mainspring.schemas.tools import BlobRef, ToolDeclaration, ToolDefinition, ToolOutcome
from support.model import READ, Run, chunk

DIALECTS = {
    "openai-chat:gpt-4o-mini": "openai",
    "openai-responses:gpt-4o-mini": "openai",
    "anthropic:claude-haiku-4-5": "anthropic",
}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(params=DIALECTS)
def run_on(request, llmock, monkeypatch):
    """Make a run in each dialect of the mock provider."""
    monkeypatch.setenv("MOCK_KEY", "sk-mock")
    model = request.param

    def make(**spec):
        address = llmock.base_url(DIALECTS[model])
        return Run(model=ModelSpec(name="m", model=model, base_url=address, api_key="env:MOCK_KEY"), **spec)

    return make


async def persisted(run, attempts=4):
    """A call as Temporal retries it: waiting as the error says, or backing off."""
    for attempt in range(1, attempts + 1):
        try:
            return await run.attempt(attempt)
        except ApplicationError as error:
            if error.non_retryable or attempt == attempts:
                raise
            delay = error.next_retry_delay
            await asyncio.sleep(delay.total_seconds() if delay else 0.05 * 2.7**attempt)
    raise AssertionError("unreachable")


async def test_dialect_text_is_answered(run_on, llmock):
    """A text comes back with its usage, its price and its finish."""
    llmock.tool_mode("off").reply("Four.")
    reply = await run_on().call()
    assert (reply.text, reply.finish_reason, reply.calls) == ("Four.", "stop", ())
    assert reply.usage.input_tokens > 0
    assert reply.usage.dollars > 0
    assert reply.first_token_ms is not None
    llmock.assert_resilient(strict=True)


async def test_dialect_tool_round_trip(run_on, llmock):
    """A call comes back under our name; its result goes out under the same id; the next reply sees it."""
    llmock.call_tool("files__read", {"path": "README.md"})
    run = run_on()
    reply = await run.call()
    assert (reply.finish_reason, reply.calls[0].tool) == ("tool_call", "files/read")
    assert (reply.calls[0].arguments, reply.calls[0].problem) == ({"path": "README.md"}, None)
    run.observe(ToolOutcome(content={"lines": 3}))
    llmock.reply("Three lines.")
    assert (await run.call()).text == "Three lines."
    sent = json.dumps(llmock.last_request.body)
    assert sent.count(run.ledger.entries[1].calls[0].id) == 2
    llmock.assert_resilient(strict=True)


async def test_dialect_error_results_are_marked(run_on, llmock):
    """The model can tell a failed result from a good one."""
    llmock.call_tool("observe", {"i": 1})
    run = run_on()
    await run.call()
    run.observe(ToolOutcome(content="no such step", is_error=True))
    await run.call()
    sent = json.dumps(llmock.last_request.body)
    assert '"is_error": true' in sent or '{\\"error\\":\\"no such step\\"}' in sent


async def test_dialect_rate_limit_is_waited_out(run_on, llmock):
    """Two refusals with Retry-After, then the answer; the provider's verdict is a pass."""
    llmock.tool_mode("off").rate_limit(times=2, retry_after=0.3).reply("ok")
    assert (await persisted(run_on())).text == "ok"
    assert len(llmock.requests) == 3
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("fault", ["fail", "disconnect", "truncate", "corrupt"])
async def test_dialect_fault_is_met_with_a_retry(run_on, llmock, fault):
    """A server error, and a stream that breaks, ends early or is corrupt, is tried again, never accepted."""
    # Paced, so that the mock sees a client leave before it has sent everything.
    llmock.pace(20).tool_mode("off").reply("a whole answer of several words", times=None)
    if fault == "fail":
        llmock.fail(503)
    else:
        getattr(llmock, fault)(after_chunks=3)
    assert (await persisted(run_on())).text == "a whole answer of several words"
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_dialect_request_errors_are_not_retried(run_on, llmock, status):
    """What a repeat cannot mend is asked once."""
    llmock.fail(status, times=None)
    with pytest.raises(ApplicationError) as caught:
        await persisted(run_on())
    assert caught.value.non_retryable
    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


async def test_dialect_overflow_is_context_exceeded(run_on, llmock):
    """A prompt that is too long is named as such, and not repeated as it is."""
    llmock.context_overflow(times=None)
    with pytest.raises(ApplicationError) as caught:
        await persisted(run_on())
    assert caught.value.type == "model_context_exceeded"
    llmock.assert_resilient(strict=True)


async def test_dialect_malformed_arguments_are_a_problem(run_on, llmock):
    """Arguments that are no JSON reach the loop as such, and go back to the provider as an object."""
    llmock.break_tool_call("malformed_arguments")
    run = run_on()
    reply = await run.call()
    assert reply.calls[0].problem.kind == "malformed"
    run.observe(ToolOutcome(content=reply.calls[0].problem.message, is_error=True))
    llmock.reply("sorry")
    assert (await run.call()).text == "sorry"
    assert "INVALID_JSON" in json.dumps(llmock.last_request.body)


async def test_dialect_unknown_tool_is_a_problem(run_on, llmock):
    """A tool that does not exist is a problem, and the conversation goes on."""
    llmock.break_tool_call("unknown_tool")
    run = run_on()
    reply = await run.call()
    assert reply.calls[0].problem.kind == "unknown_tool"
    run.observe(ToolOutcome(content=reply.calls[0].problem.message, is_error=True))
    llmock.reply("sorry")
    assert (await run.call()).text == "sorry"


async def test_dialect_prefix_is_byte_identical_between_turns(run_on, llmock):
    """What was sent once is sent again unchanged, so that prompt caches stay warm."""
    run = run_on(instructions="Be brief.")
    for turn in range(3):
        llmock.call_tool("observe", {"i": turn})
        await run.call()
        run.observe(ToolOutcome(content=f"seen {turn}"))
    bodies = [record.body for record in llmock.requests]
    key = "input" if "input" in bodies[0] else "messages"
    for before, after in pairwise(bodies):
        assert after["tools"] == before["tools"]
        assert json.dumps(after[key])[: len(json.dumps(before[key])) - 1] == json.dumps(before[key])[:-1]


async def test_dialect_two_user_messages_are_sent_as_one_turn(run_on, llmock):
    """Words after results stand in one turn of the user, results first."""
    llmock.call_tool("observe", {"i": 1})
    run = run_on()
    await run.call()
    run.observe(ToolOutcome(content="seen"))
    run.control("empty_reply", "Please answer.")
    run.user("And hurry.")
    llmock.reply("ok")
    await run.call()
    sent = json.dumps(llmock.last_request.body)
    assert sent.index("seen") < sent.index("Please answer.") < sent.index("And hurry.")


async def test_dialect_image_and_text_attachments_are_shown(run_on, llmock, blobs):
    """Images are sent as images, text files as text with their name."""
    image = Attachment(media_type="image/png", data=base64.b64encode(PNG).decode())
    ref = await blobs.put(b"a,b\n1,2", "text/csv", "table.csv")
    run = run_on(blobs=blobs)
    run.user("What is this?", image, Attachment(media_type="text/csv", name="table.csv", blob=ref))
    llmock.tool_mode("off").reply("A dot.")
    await run.call()
    sent = json.dumps(llmock.last_request.body)
    assert base64.b64encode(PNG).decode() in sent
    assert "File table.csv (text/csv):\\na,b\\n1,2" in sent


async def test_dialect_missing_attachments_are_named(run_on, llmock, blobs):
    """A blob that is gone, and data that is no base64, are lines in the request and no failure."""
    gone = BlobRef(digest="blake2b:" + "0" * 64, size=9, media_type="image/png", name="dot.png")
    run = run_on(blobs=blobs)
    run.user(
        "?", Attachment(media_type="image/png", blob=gone), Attachment(media_type="image/gif", data="%%%")
    )
    llmock.tool_mode("off").reply("Nothing.")
    await run.call()
    sent = json.dumps(llmock.last_request.body)
    assert "[dot.png, image/png, 9 bytes, blob blake2b:000" in sent
    assert "missing" in sent
    assert "image/gif: unreadable" in sent


async def test_dialect_files_of_results_are_named(run_on, llmock, blobs):
    """What a tool returned beside its text is named with its type and size."""
    ref = await blobs.put(b"\x00" * 300, "application/zip", "logs.zip")
    llmock.call_tool("observe", {"i": 1})
    run = run_on(blobs=blobs)
    await run.call()
    run.observe(ToolOutcome(content="packed", files=(ref,)))
    await run.call()
    assert f"packed\\n[logs.zip, application/zip, 300 bytes, blob {ref.digest}]" in json.dumps(
        llmock.last_request.body
    )


async def test_settings_of_the_agent_come_before_the_models(stub):
    """Sampling settings are merged, the agent's first, and retries are off."""
    stub.answers = [stub.streams(chunk({"content": "x"}), chunk(finish="stop"))]
    spec = stub.model(api_key="env:STUB_KEY", settings={"temperature": 0.9, "max_tokens": 50, "seed": 7})
    run = Run(model=spec, settings={"temperature": 0.1, "stop_sequences": ["END"]})
    await run.call()
    headers, sent = stub.requests[0]
    assert (sent["temperature"], sent["seed"], sent["stop"]) == (0.1, 7, ["END"])
    assert 50 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert headers["authorization"] == "Bearer sk-stub-0123456789abcdef"


async def test_headers_are_resolved_from_secrets(stub, monkeypatch):
    """Header values are references, resolved when the call is made."""
    monkeypatch.setenv("TENANT", "blue")
    stub.answers = [stub.streams(chunk({"content": "x"}), chunk(finish="stop"))]
    run = Run(model=stub.model(api_key="env:STUB_KEY", headers={"x-tenant": "env:TENANT"}))
    await run.call()
    monkeypatch.setenv("TENANT", "green")
    await run.call()
    assert [headers["x-tenant"] for headers, _ in stub.requests] == ["blue", "green"]


async def test_schema_of_a_tool_goes_out_as_it_is(stub):
    """`$defs` and `$ref` reach the model as the tool wrote them."""
    schema = {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    }
    tool = ToolDefinition(declaration=ToolDeclaration(name="mcp:a/b.c"), input_schema=schema)
    stub.answers = [stub.streams(chunk({"content": "x"}), chunk(finish="stop"))]
    await Run(model=stub.model(api_key="env:STUB_KEY"), tools=[tool, READ]).call(offered=("mcp:a/b.c",))
    (sent,) = stub.requests[0][1]["tools"]
    assert sent["function"]["parameters"] == schema
    assert sent["function"]["name"].replace("_", "").isalnum()


async def test_thinking_goes_back_to_its_own_provider_only(llmock, monkeypatch):
    """A signed block is sent back byte for byte to the provider that signed it, and to no other."""
    monkeypatch.setenv("MOCK_KEY", "sk-mock")
    block = Thinking(text="because", signature="c2lnbmVk", provider="anthropic")
    for model, provider in DIALECTS.items():
        spec = ModelSpec(name="m", model=model, base_url=llmock.base_url(provider), api_key="env:MOCK_KEY")
        run = Run(model=spec)
        llmock.call_tool("observe", {"i": 1}).reply("two")
        reply = await run.attempt()
        run.record(reply.model_copy(update={"thinking": (block,)}))
        run.restart()
        run.observe(ToolOutcome(content="seen"))
        await run.call()
        sent = json.dumps(llmock.last_request.body)
        assert ("c2lnbmVk" in sent) is (provider == "anthropic")
        assert ("because" in sent) is (provider == "anthropic")


async def test_dialect_images_of_results_are_shown(llmock, monkeypatch, blobs):
    """An image that a tool returned is shown to models that see, and only named to a server of one's own."""
    monkeypatch.setenv("MOCK_KEY", "sk-mock")
    ref = await blobs.put(PNG, "image/png", "dot.png")
    for model, provider in DIALECTS.items():
        spec = ModelSpec(name="m", model=model, base_url=llmock.base_url(provider), api_key="env:MOCK_KEY")
        run = Run(model=spec, blobs=blobs)
        llmock.call_tool("observe", {"i": 1}).reply("A dot.")
        await run.call()
        run.observe(ToolOutcome(content="", files=(ref,)))
        assert (await run.call()).text == "A dot."
        sent = json.dumps(llmock.last_request.body)
        assert f"[dot.png, image/png, {len(PNG)} bytes" in sent
        assert (base64.b64encode(PNG).decode() in sent) is (model != "openai-chat:gpt-4o-mini")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("groq:llama-3.3-70b", "provider groq is not installed: pip install 'pydantic-ai-slim[groq]'"),
        ("nonsense:x", "nonsense"),
        ("gpt-5", "is not <provider>:<model>"),
        ("anthropic:claude-haiku-4-5", "model m: ANTHROPIC_API_KEY is not set where the worker runs"),
    ],
)
async def test_model_that_cannot_be_built_is_misconfigured(monkeypatch, model, says):
    """A missing extra, an unknown provider or a missing key is one line to the caller, not retried."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    error = await Run(model=ModelSpec(name="m", model=model)).fails()
    assert (error.type, error.non_retryable) == (MODEL_MISCONFIGURED, True)
    assert says in str(error)


async def test_provider_that_takes_no_address_says_so():
    """A setting that a provider cannot honour is refused, not ignored."""
    spec = ModelSpec(name="m", model="openrouter:x/y", base_url="http://127.0.0.1:9", api_key=None)
    error = await Run(model=spec).fails()
    assert error.type == MODEL_MISCONFIGURED
    assert "takes no base_url" in str(error)


async def test_connections_are_shared_by_runs_and_follow_their_secrets(stub, monkeypatch):
    """A rotated key is taken up by the next call."""
    stub.answers = [stub.streams(chunk({"content": "x"}), chunk(finish="stop"))]
    run = Run(model=stub.model(api_key="env:STUB_KEY"))
    await run.call()
    monkeypatch.setenv("STUB_KEY", "sk-rotated")
    await run.call()
    keys = [headers["authorization"].removeprefix("Bearer ") for headers, _ in stub.requests]
    assert keys == ["sk-stub-0123456789abcdef", "sk-rotated"]
