"""From what a provider sent to a reply: bounded, safe, checked against the output schema, paid for."""

from __future__ import annotations

import json

import pytest

from mainspring.activities.prices import added, dollars, priced
from mainspring.schemas.activities import Usage
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.base import wire
from support.model import Run

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def answered(text, **spec):
    """The reply to a call that is answered with this text."""
    return await Run({"replies": [{"text": text}]}, **spec).call()


@pytest.mark.parametrize("text", ['{"n": 1}', ' {"n":1}\n', '```json\n{"n": 1}\n```', '```\n{"n": 1}```'])
async def test_output_is_parsed_from_the_text(text):
    """A text that meets the output schema is the output; one surrounding fence is allowed."""
    reply = await answered(text, output_schema=SCHEMA)
    assert (reply.output, reply.output_problem) == ({"n": 1}, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("The answer is 1.", "not one JSON value"),
        ('Here: {"n": 1}', "not one JSON value"),
        ('{"n": "one"}', "$.n: type must be integer"),
        ("{}", "'n' is a required property"),
        ('{"n": NaN}', "NaN"),
    ],
)
async def test_output_that_does_not_meet_the_schema_says_why(text, says):
    """A text that does not meet the output schema is no output, and the problem says why."""
    reply = await answered(text, output_schema=SCHEMA)
    assert reply.output is None
    assert says in reply.output_problem


async def test_output_schema_is_told_to_the_model():
    """The instructions carry the schema, and the request's estimate counts it."""
    script = {"replies": [{"text": "{}", "expect": {"contains": ["be brief", '"required": ["n"]']}}]}
    reply = await Run(script, output_schema=SCHEMA, instructions="be brief").call()
    assert reply.usage.input_tokens > 20


async def test_output_is_not_looked_for_beside_calls():
    """A reply with calls is no answer, so its text is not judged."""
    script = {"replies": [{"text": "x", "calls": [{"tool": "observe", "arguments": {"i": 1}}]}]}
    reply = await Run(script, output_schema=SCHEMA).call()
    assert (reply.output, reply.output_problem) == (None, None)


async def test_text_that_is_too_long_goes_to_the_blob_store(blobs):
    """Beyond the bound, head and tail stay and the whole lies in the blob store."""
    text = "a" * 400_000 + "ä" * 400_000 + "z" * 10
    reply = await answered(text, blobs=blobs)
    assert len(json.dumps(wire(reply))) < 700_000
    assert reply.text.startswith("aaa")
    assert reply.text.endswith("zzz")
    assert (await blobs.get(reply.text_blob)).decode() == text


async def test_text_that_is_too_long_is_cut_without_a_blob_store():
    """Without a store the head and the tail remain; the run goes on."""
    reply = await answered("é" * 2_000_000)
    assert len(json.dumps(wire(reply))) < 700_000
    assert "left out" in reply.text
    assert reply.text_blob is None


async def test_text_up_to_the_bound_is_kept_as_it_is():
    """A long answer below the bound is untouched."""
    text = "word " * 100_000
    assert (await answered(text)).text == text


async def test_text_is_made_safe():
    """No lone surrogate and no NUL gets past the activity."""
    reply = await answered("a\ud800b\x00c")
    assert reply.text == "a\ufffdb\ufffdc"


async def test_thinking_at_the_head_of_a_text_is_no_part_of_it():
    """Tagged thinking is kept as thinking."""
    reply = await answered("<think>hm</think>\nYes.")
    assert (reply.text, reply.thinking[0].text) == ("Yes.", "hm")


async def test_thinking_that_is_too_long_is_dropped_whole():
    """A reasoning block is kept byte for byte or not at all."""
    script = {"replies": [{"text": "ok", "thinking": "x" * 300_000}]}
    assert (await Run(script).call()).thinking == ()


async def test_reply_at_every_bound_fits_a_payload():
    """Text, thinking and arguments at their bounds together stay below what a payload may hold."""
    calls = [{"tool": "files/read", "arguments": {"path": "ü" * 40_000}}] * 20
    script = {"replies": [{"text": "ä" * 80_000, "thinking": "ö" * 40_000, "calls": calls}]}
    reply = await Run(script).call()
    assert len(json.dumps(wire(reply))) < 1_900_000
    assert [call.problem is None for call in reply.calls] == [True] * 4 + [False] * 16


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "refusal"])
async def test_finish_reason_is_reported(reason):
    """How a reply ended is the loop's to judge: a refusal is a reply, not an exception."""
    reply = await Run({"replies": [{"text": "no", "finish_reason": reason}]}).call()
    assert reply.finish_reason == reason


async def test_usage_missing_stays_missing():
    """A provider that reports no usage is not one that reports 0."""
    assert (await Run({"replies": [{"text": "x", "usage": None}]}).call()).usage is None


async def test_usage_estimated_grows_with_the_request():
    """Scripted usage is estimated from what is sent, unless the script says what it is."""
    short = await Run({"replies": [{"text": "x"}]}, prompt="a").call()
    long = await Run({"replies": [{"text": "x"}]}, prompt="a" * 4_000).call()
    assert long.usage.input_tokens - short.usage.input_tokens == 999


async def test_scripted_usage_is_priced_when_the_script_says_so():
    """Dollars of a scripted model come from its own price list, cached tokens at theirs."""
    usage = {"input_tokens": 1_000_000, "output_tokens": 500_000, "cached_tokens": 400_000}
    price = {"input": 1.0, "output": 4.0, "cached": 0.1}
    reply = await Run({"replies": [{"text": "x", "usage": usage}], "price": price}).call()
    assert reply.usage.dollars == pytest.approx(0.6 + 0.04 + 2.0)
    assert (await Run({"replies": [{"text": "x"}]}).call()).usage.dollars is None


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("openai:gpt-5-mini", True),
        ("openai-chat:gpt-4o-mini", True),
        ("openai-responses:gpt-4o-mini", True),
        ("anthropic:claude-haiku-4-5", True),
        ("google:gemini-2.5-flash", True),
        ("openai-chat:smollm2", False),
        ("nowhere:nothing", False),
    ],
)
def test_price_is_known_offline(model, known):
    """A model is priced when the shipped price list knows it; `dollars` agrees."""
    spec = ModelSpec(name="m", model=model)
    assert priced(spec) is known
    cost = dollars(spec, Usage(input_tokens=1_000, output_tokens=10))
    assert (cost is not None and cost > 0) is known


def test_price_of_cached_tokens_is_lower():
    """Tokens read from the cache cost less than fresh ones."""
    spec = ModelSpec(name="m", model="anthropic:claude-haiku-4-5")
    fresh = dollars(spec, Usage(input_tokens=10_000, output_tokens=1))
    cached = dollars(spec, Usage(input_tokens=10_000, output_tokens=1, cached_tokens=9_000))
    assert cached < fresh / 2


def test_usage_sum_is_unknown_in_dollars_when_a_part_is():
    """A sum of dollars with an unknown part is not a sum; tokens add up."""
    one, other = Usage(input_tokens=1, dollars=0.5), Usage(input_tokens=2)
    assert added(one, other) == Usage(input_tokens=3)
    assert added(one, None) == one
    assert added(one, one).dollars == 1.0
