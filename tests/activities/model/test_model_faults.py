"""Faults of providers, over HTTP on loopback: one request an attempt, the right class, and nothing quoted."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from temporalio.testing import ActivityEnvironment

from mainspring.activities.faults import retry_seconds
from mainspring.schemas.errors import (
    MODEL_CONTEXT_EXCEEDED,
    MODEL_MISCONFIGURED,
    MODEL_RATE_LIMITED,
    MODEL_REFUSED,
    MODEL_REJECTED,
    MODEL_UNAVAILABLE,
)
from support.model import Run, chunk

DIALECTS = ["openai-chat:gpt-4o-mini", "openai-responses:gpt-4o-mini", "anthropic:claude-haiku-4-5"]
PROMPT = "my password is hunter2-hunter2"


def run_on(stub, model=DIALECTS[0], **spec):
    """A run whose model the stub serves."""
    return Run(model=stub.model(model, api_key="env:STUB_KEY", **spec), prompt=PROMPT)


def body(message, code=None, kind="invalid_request_error", param=None):
    """An error body as OpenAI and Anthropic both can be read to send it."""
    error = {"message": message, "type": kind, "code": code, "param": param}
    return json.dumps({"type": "error", "error": error})


@pytest.mark.parametrize("model", DIALECTS)
async def test_fault_500_is_one_request_an_attempt(stub, model):
    """Provider SDKs do not retry: Temporal does, so an attempt is one request."""
    stub.answers = [stub.says(500, body("boom"))]
    run = run_on(stub, model)
    for attempt in (1, 2, 3):
        error = await run.fails(attempt)
        assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert len(stub.requests) == 3


@pytest.mark.parametrize(
    ("status", "sent", "kind", "says"),
    [
        (400, body("bad"), MODEL_REJECTED, "answered 400 (bad request): invalid_request_error"),
        (400, body("no", param="temperature"), MODEL_REJECTED, "temperature"),
        (401, body("no", "invalid_api_key"), MODEL_REJECTED, "(credentials refused): invalid_api_key"),
        (403, body("no"), MODEL_REJECTED, "not permitted"),
        (404, body("no", "model_not_found"), MODEL_REJECTED, "not found"),
        (402, body("no"), MODEL_REJECTED, "quota spent"),
        (429, body("no", "insufficient_quota"), MODEL_REJECTED, "quota spent"),
        (400, body("Your credit balance is too low"), MODEL_REJECTED, "quota spent"),
        (429, body("slow down", kind="rate_limit_error"), MODEL_RATE_LIMITED, "rate limited"),
        (429, body("exceeded your current quota", "rate_limit_exceeded"), MODEL_RATE_LIMITED, "rate limited"),
        (500, body("x"), MODEL_UNAVAILABLE, "server error"),
        (503, body("x"), MODEL_UNAVAILABLE, "unavailable"),
        (529, body("Overloaded", kind="overloaded_error"), MODEL_UNAVAILABLE, "overloaded"),
        (502, "<html>bad gateway</html>", MODEL_UNAVAILABLE, "bad gateway"),
        (400, body("x", "context_length_exceeded"), MODEL_CONTEXT_EXCEEDED, "context window"),
        (400, body("This model's maximum context length is 8192 tokens."), MODEL_CONTEXT_EXCEEDED, "window"),
        (500, body("maximum context length", kind="server_error"), MODEL_CONTEXT_EXCEEDED, "context window"),
        (400, body("prompt is too long: 210000 tokens > 200000 maximum"), MODEL_CONTEXT_EXCEEDED, "context"),
        (413, body("too large", kind="request_too_large"), MODEL_CONTEXT_EXCEEDED, "too large"),
        (400, body("no", "content_filter"), MODEL_REFUSED, "policy"),
        (400, body("Output blocked by content filtering policy"), MODEL_REFUSED, "policy"),
    ],
)
@pytest.mark.parametrize("model", [DIALECTS[0], DIALECTS[2]])
async def test_fault_has_the_class_of_its_status_and_code(stub, model, status, sent, kind, says):
    """Who must act is told by the type: Temporal retries some, the caller mends the others."""
    stub.answers = [stub.says(status, sent)]
    error = await run_on(stub, model).fails()
    assert error.type == kind
    assert error.non_retryable is (kind not in (MODEL_RATE_LIMITED, MODEL_UNAVAILABLE))
    assert says in str(error)


async def test_fault_of_overflow_reports_the_window(stub):
    """A provider that names its window has it reported, for the plan that is made again."""
    stub.answers = [stub.says(400, body("maximum context length is 8,192 tokens, you sent 9000"))]
    error = await run_on(stub).fails()
    assert error.details == ({"status": 400, "window": 8192},)


@pytest.mark.parametrize("model", DIALECTS)
@pytest.mark.parametrize("status", [400, 401, 422, 429, 500])
async def test_fault_never_quotes_the_provider(stub, model, status):
    """A body that quotes the prompt, a key and headers reaches neither message, details nor cause."""
    quoting = f"you sent: {PROMPT} with key sk-stub-0123456789abcdef"
    code = "sk-stub-0123456789abcdef"
    stub.answers = [stub.says(status, body(quoting, code, param=PROMPT), x_secret="topsecret")]
    error = await run_on(stub, model).fails()
    shown = f"{error} {error.details} {error.__cause__!r} {error.__suppress_context__}"
    assert "hunter2" not in shown
    assert "sk-stub" not in shown
    assert "topsecret" not in shown
    assert shown.endswith("None True")
    assert len(str(error)) < 400


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        (" 3 ", 3.0),
        (2, 2.0),
        ("-5", 0.0),
        ("0", 0.0),
        ("300", 300.0),
        ("9999999999", 300.0),
        ("1e9", 300.0),
        ("1e999", 300.0),
        ("inf", 300.0),
        ("-inf", 0.0),
        ("nan", None),
        ("abc", None),
        ("", None),
        (None, None),
        ("Fri, 99 Zzz 2026", None),
        (format_datetime(NOW + timedelta(seconds=5), usegmt=True), 5.0),
        (format_datetime(NOW - timedelta(seconds=5), usegmt=True), 0.0),
        (format_datetime(NOW + timedelta(days=900), usegmt=True), 300.0),
        ("9" * 5_000, 300.0),
        ("Wed, 31 Dec 9999 23:59:59 -2359", 300.0),
    ],
)
def test_retry_after_is_read_in_every_form_and_clamped(value, seconds):
    """Numbers and dates are read, clamped to [0, 300]; nonsense is no wait; nothing crashes."""
    assert retry_seconds(value, now=NOW) == seconds


@pytest.mark.parametrize(
    ("header", "waits"), [("7", 7.0), ("1.5", 1.5), ("9999999999", 300.0), ("-5", None), ("abc", None)]
)
@pytest.mark.parametrize("model", DIALECTS)
async def test_retry_after_becomes_the_next_retry_delay(stub, model, header, waits):
    """The wait that a provider asks for is Temporal's, and a capped one says so."""
    stub.answers = [stub.says(429, body("slow", kind="rate_limit_error"), Retry_After=header)]
    error = await run_on(stub, model).fails()
    delay = error.next_retry_delay
    assert (delay and delay.total_seconds()) == waits
    assert ("it asks for a wait" in str(error)) is (header == "9999999999")


async def test_fault_unreachable_is_retryable(stub):
    """Nobody listens: retried by Temporal."""
    run = Run(
        model=stub.model(api_key="env:STUB_KEY").model_copy(update={"base_url": "http://127.0.0.1:9/v1"})
    )
    error = await run.fails()
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert "could not be reached" in str(error)


async def hang(writer):
    """Accept and never answer."""
    await asyncio.sleep(60)


async def stall(writer):
    """Start a chat stream and never go on."""
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    writer.write((head + f"data: {json.dumps(chunk({'content': 'so far'}))}\n\n").encode())
    await writer.drain()
    await asyncio.sleep(60)


@pytest.mark.parametrize("answer", [hang, stall])
async def test_fault_hanging_provider_is_bounded_by_the_timeout(stub, answer):
    """A provider that stops answering is left after the model's own timeout."""
    stub.answers = [answer]
    error = await run_on(stub, settings={"timeout": 0.3}).fails()
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)
    await asyncio.wait_for(stub.left.wait(), 2)


@pytest.mark.parametrize("answer", [hang, stall])
async def test_cancellation_closes_the_stream(stub, answer):
    """A cancelled call ends as cancelled, and the provider sees the connection close."""
    stub.answers = [answer]
    run = run_on(stub)
    environment = ActivityEnvironment()
    task = asyncio.ensure_future(run.attempt(environment=environment))
    while not stub.requests:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.6)
    environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(stub.left.wait(), 2)
    assert len(run.heartbeats) >= 1
    assert run.heartbeats[-1]["text"] == ("so far" if answer is stall else "")


USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}


async def test_truncated_stream_is_an_error_and_its_usage_is_carried(stub):
    """A stream without a finish reason is no reply; what it cost is part of the next attempt's."""
    whole = [chunk({"content": "All of it."}), chunk(finish="stop")]
    stub.answers = [
        stub.streams(chunk({"content": "Half of"}), usage=USAGE),
        stub.streams(*whole, usage=USAGE),
    ]
    run = run_on(stub)
    error = await run.fails(1)
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert "before the reply was complete" in str(error)
    reply = await run.attempt(2)
    assert reply.text == "All of it."
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (200, 14)
    assert reply.usage.dollars == pytest.approx(2 * (100 * 0.15 + 7 * 0.6) / 1e6)


@pytest.mark.parametrize(
    "ending",
    ["data: {not json", "data: [1, 2]", 'data: {"error": {"message": "boom", "type": "server_error"}}'],
)
async def test_corrupt_stream_is_an_error(stub, ending):
    """A chunk that cannot be read, or that reports an error, ends the attempt as retryable."""
    stub.answers = [stub.streams(chunk({"content": "Half"}), ending)]
    error = await run_on(stub).fails()
    assert (error.type, error.non_retryable) == (MODEL_UNAVAILABLE, False)


async def test_stream_without_usage_has_none(stub):
    """A provider that reports no usage is not one that costs nothing."""
    stub.answers = [stub.streams(chunk({"content": "x"}), chunk(finish="stop"), "data: [DONE]")]
    reply = await run_on(stub).attempt()
    assert (reply.text, reply.usage) == ("x", None)


async def test_stream_tagged_thinking_does_not_swallow_a_call(stub):
    """A call after a thought that was never closed is taken, though it came as text."""
    call = '<tool_call>{"name": "observe", "arguments": {"i": 1}}</tool_call>'
    pieces = [chunk({"content": piece}) for piece in ("<think>", "plan ", call[:20], call[20:])]
    stub.answers = [stub.streams(*pieces, chunk(finish="stop"))]
    reply = await run_on(stub).attempt()
    assert [(call.tool, call.arguments) for call in reply.calls] == [("observe", {"i": 1})]
    assert [block.text for block in reply.thinking] == ["plan"]


async def test_stream_refusal_is_a_reply(stub):
    """A model that refuses has replied: the loop ends the run, not an exception."""
    stub.answers = [
        stub.streams(chunk({"refusal": "I cannot "}), chunk({"refusal": "do that."}), chunk(finish="stop"))
    ]
    reply = await run_on(stub).attempt()
    assert (reply.finish_reason, reply.text) == ("refusal", "I cannot do that.")


async def test_stream_content_filter_is_a_reply(stub):
    """A filtered reply says so."""
    stub.answers = [stub.streams(chunk({"content": "x"}), chunk(finish="content_filter"))]
    assert (await run_on(stub).attempt()).finish_reason == "content_filter"


async def test_stream_fragments_without_ids_are_assembled_by_index(stub):
    """Interleaved deltas of parallel calls, with ids on the first only or nowhere, are whole calls."""

    def fragment(index, text, name=None):
        function = {"arguments": text, **({"name": name} if name else {})}
        return chunk(
            {"tool_calls": [{"index": index, "function": function, **({"id": "c1"} if name else {})}]}
        )

    stub.answers = [
        stub.streams(
            fragment(0, "", "observe"),
            fragment(1, "", "observe"),
            fragment(0, '{"i"'),
            fragment(1, '{"i": '),
            fragment(0, ": 1}"),
            fragment(1, "2}"),
            chunk(finish="tool_calls"),
        )
    ]
    reply = await run_on(stub).attempt()
    assert [call.arguments for call in reply.calls] == [{"i": 1}, {"i": 2}]


async def test_misconfigured_secret_costs_no_request(stub):
    """A missing key is the caller's error before anything is sent."""
    error = await Run(model=stub.model(api_key="env:NO_SUCH_KEY")).fails()
    assert (error.type, error.non_retryable) == (MODEL_MISCONFIGURED, True)
    assert "env:NO_SUCH_KEY" in str(error)
    assert stub.requests == []
