"""The scripted model, through the activity that calls it."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from mainspring.schemas.errors import SCRIPT_MISMATCH
from mainspring.schemas.tools import ToolOutcome
from support.model import Run


async def test_scripted_reply_is_the_one_of_its_call():
    """The n-th reply answers the n-th model call, whatever went before."""
    run = Run({"replies": [{"text": "first"}, {"text": "second"}]})
    assert (await run.call()).text == "first"
    assert (await run.call()).text == "second"


async def test_scripted_repeat_counts_from_zero():
    """`repeat` answers that many calls, and `${n}` counts them from 0 as a number."""
    call = {"tool": "observe", "arguments": {"i": "${n}"}}
    run = Run({"replies": [{"calls": [call], "repeat": 3}, {"text": "done after ${n}"}]})
    seen = []
    for _ in range(3):
        reply = await run.call()
        assert reply.calls[0].problem is None
        seen.append(reply.calls[0].arguments["i"])
        run.observe(ToolOutcome(content="x"))
    assert seen == [0, 1, 2]
    assert (await run.call()).text == "done after 0"


async def test_scripted_last_observation_is_filled_in():
    """`${last_observation}` is the newest observation's content as the model is shown it."""
    script = {
        "replies": [{"calls": [{"tool": "observe", "arguments": {"i": 1}}]}, {"text": "${last_observation}!"}]
    }
    run = Run(script)
    await run.call()
    run.observe(ToolOutcome(content={"seen": 1}))
    assert (await run.call()).text == '{"seen":1}!'


async def test_scripted_calls_keep_raw_arguments():
    """`raw_arguments` reach the parser as they stand."""
    run = Run({"replies": [{"calls": [{"tool": "observe", "raw_arguments": '{"i": 1,,}'}]}]})
    call = (await run.call()).calls[0]
    assert call.problem is not None
    assert call.problem.kind == "malformed"
    assert call.raw == '{"i": 1,,}'


async def test_scripted_replies_used_up_fail_clearly():
    """A call beyond the script is the caller's error, at once, and says what to add."""
    run = Run({"replies": [{"text": "only"}]})
    await run.call()
    error = await run.fails()
    assert (error.type, error.non_retryable) == (SCRIPT_MISMATCH, True)
    assert "answers 1 calls and this is call 2" in str(error)


@pytest.mark.parametrize(
    ("then", "texts"),
    [("repeat_last", ["a0", "a1", "a2"]), ('finish "the end"', ["a0", "the end", "the end"])],
)
async def test_scripted_then_answers_further_calls(then, texts):
    """`then` decides what answers the calls beyond the script."""
    run = Run({"replies": [{"text": "a${n}"}], "then": then})
    assert [(await run.call()).text for _ in range(3)] == texts


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ({"contains": "absent"}, "the request to contain 'absent'"),
        ({"excludes": "Look"}, "the request not to contain 'Look'"),
        ({"messages_min": 3}, "at least 3 messages, and there are 1"),
        ({"messages_max": 0}, "at most 0 messages, and there are 1"),
        ({"offered": "ghost"}, "ghost to be offered; offered: observe, files/read"),
        ({"not_offered": ["observe"]}, "observe not to be offered"),
    ],
)
async def test_scripted_expectation_that_fails_is_named(expect, says):
    """A mismatch fails the call for good, naming the reply, what was expected and what was found."""
    error = await Run({"replies": [{"text": "x", "expect": expect}]}).fails()
    assert (error.type, error.non_retryable) == (SCRIPT_MISMATCH, True)
    assert says in str(error)
    assert "reply 1" in str(error)


async def test_scripted_expectation_that_holds_is_silent():
    """Texts, counts and offers that are as expected change nothing."""
    expect = {"contains": ["Look", "be"], "messages_min": 1, "offered": ["observe"], "not_offered": ["ghost"]}
    run = Run({"replies": [{"text": "x", "expect": expect}]}, instructions="be good")
    assert (await run.call()).text == "x"


@pytest.mark.parametrize(
    ("failure", "kind", "retryable"),
    [
        ({"status": 429}, "model_rate_limited", True),
        ({"status": 500}, "model_unavailable", True),
        ({"status": 529}, "model_unavailable", True),
        ({"timeout": True}, "model_unavailable", True),
        ({"connection": True}, "model_unavailable", True),
        ({"truncated": True}, "model_unavailable", True),
        ({"status": 401}, "model_rejected", False),
        ({"status": 404}, "model_rejected", False),
        ({"status": 400}, "model_rejected", False),
        ({"status": 429, "code": "insufficient_quota"}, "model_rejected", False),
        ({"status": 400, "code": "context_length_exceeded"}, "model_context_exceeded", False),
        (
            {"status": 500, "message": "maximum context length is 8192 tokens"},
            "model_context_exceeded",
            False,
        ),
        ({"status": 400, "code": "content_filter"}, "model_refused", False),
    ],
)
async def test_scripted_failure_is_of_the_class_of_the_real_one(failure, kind, retryable):
    """Earlier attempts fail as a provider's would; the attempt after them gets the reply."""
    run = Run({"replies": [{"text": "ok", "fails": [failure]}]})
    error = await run.fails(attempt=1)
    assert (error.type, error.non_retryable) == (kind, not retryable)
    assert (await run.attempt(2)).text == "ok"


async def test_scripted_failures_are_met_in_their_order():
    """Attempt k meets the k-th failure."""
    run = Run({"replies": [{"text": "ok", "fails": [{"status": 429, "retry_after": 7}, {"status": 500}]}]})
    first, second = await run.fails(1), await run.fails(2)
    assert first.next_retry_delay.total_seconds() == 7
    assert (first.type, second.type) == ("model_rate_limited", "model_unavailable")
    assert second.next_retry_delay is None


async def test_scripted_usage_of_a_failed_attempt_is_carried():
    """What was billed before an attempt failed is in its heartbeat, and in the reply of the next."""
    failure = {"truncated": True, "usage": {"input_tokens": 100, "output_tokens": 7}}
    usage = {"input_tokens": 100, "output_tokens": 20}
    run = Run({"replies": [{"text": "ok", "usage": usage, "fails": [failure, failure]}]})
    await run.fails(1)
    await run.fails(2)
    reply = await run.attempt(3)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (300, 34)


async def test_scripted_thinking_is_kept():
    """`thinking` is a reasoning block of the reply."""
    reply = await Run({"replies": [{"text": "x", "thinking": "hm ${n}"}]}).call()
    assert [block.text for block in reply.thinking] == ["hm 0"]


@pytest.mark.parametrize(
    "script",
    [
        {},
        {"replies": [{"text": "x", "unknown": 1}]},
        {"replies": [{"text": "x", "fails": [{}]}]},
        {"replies": [{"text": "x", "fails": [{"status": 200}]}]},
        {"replies": [{"calls": [{"tool": "a", "arguments": {"i": 1}, "raw_arguments": "{}"}]}]},
        {"replies": [{"text": "x"}], "then": "stop"},
        {"replies": [{"text": "x", "repeat": 0}]},
    ],
)
async def test_script_that_is_wrong_is_refused(script):
    """A script is closed: what it does not know is the caller's error, named."""
    error = await Run(script).fails()
    assert error.type == "model_misconfigured"


async def test_scripted_model_costs_no_heartbeat():
    """A quick call sends none: heartbeats cost."""
    run = Run({"replies": [{"text": "x"}]})
    await run.call()
    assert run.heartbeats == []


async def test_scripted_delay_streams_the_text_in_pieces():
    """A slow reply shows its text so far, at most every half second, and reports its first token."""
    run = Run({"replies": [{"text": "abcdefghij" * 10, "delay": 1.2}]})
    began = time.monotonic()
    reply = await run.call()
    seconds = time.monotonic() - began
    texts = [beat["text"] for beat in run.heartbeats]
    assert 2 <= len(texts) <= 1 + seconds / 0.5
    assert all(before < after for before, after in pairwise(map(len, texts)))
    assert 0 < len(texts[0]) < 100
    assert reply.text.startswith(texts[-1])
    assert 1 <= reply.first_token_ms < seconds * 1_000


async def test_heartbeat_carries_the_tail_only():
    """A heartbeat holds at most 4 KB of text, whatever the characters."""
    run = Run({"replies": [{"text": "ä" * 20_000, "delay": 0.6}]})
    await run.call()
    assert 3_000 < len(run.heartbeats[-1]["text"].encode()) <= 4_096
