"""The scripted model, through the activity that calls it."""

from __future__ import annotations

import pytest

from mainspring.schemas.errors import SCRIPT_MISMATCH
from mainspring.schemas.tools import ToolOutcome


async def test_scripted_reply_is_the_one_of_its_call(new_run):
    """The n-th reply answers the n-th model call, whatever went before."""
    run = new_run({"replies": [{"text": "first"}, {"text": "second"}]})
    assert (await run.call()).text == "first"
    assert (await run.call()).text == "second"


async def test_scripted_repeat_counts_from_zero(new_run):
    """`repeat` answers that many calls, and `${n}` counts them from 0 as a number."""
    call = {"tool": "observe", "arguments": {"i": "${n}"}}
    run = new_run({"replies": [{"calls": [call], "repeat": 3}, {"text": "done after ${n}"}]})
    seen = []
    for _ in range(3):
        reply = await run.call()
        assert reply.calls[0].problem is None
        seen.append(reply.calls[0].arguments["i"])
        run.observe(ToolOutcome(content="x"))
    assert seen == [0, 1, 2]
    assert (await run.call()).text == "done after 0"


async def test_scripted_last_observation_is_filled_in(new_run):
    """`${last_observation}` is the newest observation's content as the model is shown it."""
    script = {
        "replies": [{"calls": [{"tool": "observe", "arguments": {"i": 1}}]}, {"text": "${last_observation}!"}]
    }
    run = new_run(script)
    await run.call()
    run.observe(ToolOutcome(content={"seen": 1}))
    assert (await run.call()).text == '{"seen":1}!'


async def test_scripted_calls_keep_raw_arguments(new_run):
    """`raw_arguments` reach the parser as they stand."""
    run = new_run({"replies": [{"calls": [{"tool": "observe", "raw_arguments": '{"i": 1,,}'}]}]})
    call = (await run.call()).calls[0]
    assert call.problem is not None
    assert call.problem.kind == "malformed"
    assert call.raw == '{"i": 1,,}'


async def test_scripted_replies_used_up_fail_clearly(new_run):
    """A call beyond the script is the caller's error, at once, and says what to add."""
    run = new_run({"replies": [{"text": "only"}]})
    await run.call()
    error = await run.fails()
    assert (error.type, error.non_retryable) == (SCRIPT_MISMATCH, True)
    assert "answers 1 calls and this is call 2" in str(error)


@pytest.mark.parametrize(
    ("then", "texts"),
    [("repeat_last", ["a0", "a1", "a2"]), ('finish "the end"', ["a0", "the end", "the end"])],
)
async def test_scripted_then_answers_further_calls(new_run, then, texts):
    """`then` decides what answers the calls beyond the script."""
    run = new_run({"replies": [{"text": "a${n}"}], "then": then})
    assert [(await run.call()).text for _ in range(3)] == texts
