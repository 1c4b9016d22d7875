"""Calls that a model wrote as text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.workflows.envelope import Enveloped, calls_in_text, split_thinking


def known(name: str) -> bool:
    """The only tool is `look`."""
    return name == "look"


CALL = '{"name": "look", "arguments": {"i": 1}}'
TAKEN = (Enveloped("look", {"i": 1}),)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"<tool_call>{CALL}</tool_call>", ""),
        (f"Let me see. <tool_call>\n{CALL}\n</tool_call> Then.", "Let me see.  Then."),
        (f"```tool_call\n{CALL}\n```", ""),
        (f"Before\n```tool_use\n{CALL}\n```\nafter", "Before\n\nafter"),
        (f"<tool_call>{CALL}", ""),
        (f"<tool_call><tool_call>{CALL}</tool_call>", ""),
        ('<tool_call>{"name": "look", "parameters": {"i": 1}}</tool_call>', ""),
        ('<tool_call>{"name": "look", "input": {"i": 1}}</tool_call>', ""),
        (f"<think>plan<tool_call>{CALL}</tool_call>", "<think>plan"),
        (f"<think>plan</think><tool_call>{CALL}</tool_call>", "<think>plan</think>"),
    ],
)
def test_envelope_that_names_a_tool_is_taken(text, left):
    """An explicit envelope is a call; the rest of the text stays."""
    assert calls_in_text(text, known) == (left, TAKEN)


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"```\n{CALL}\n```",
        f"```json\n{CALL}\n```",
        f"```tool_calls\n{CALL}\n```",
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
        '<tool_call>["look"]</tool_call>',
        "<tool_call>look</tool_call>",
        '<tool_call>{"name": 7}</tool_call>',
        f"<think>I could say <tool_call>{CALL}</tool_call> now</think>The answer.",
        '{"name":"Widget","price":3}',
        "",
    ],
)
def test_envelope_is_nothing_less_than_explicit(text):
    """A bare fence, JSON in prose, an unknown name or a mention in a closed thought is no call."""
    assert calls_in_text(text, known) == (text, ())


def test_envelope_several_are_taken_in_order():
    """Each envelope is one call."""
    text = "".join(f'<tool_call>{{"name":"look","arguments":{{"i":{i}}}}}</tool_call>' for i in range(3))
    assert [call.arguments for call in calls_in_text(text, known)[1]] == [{"i": 0}, {"i": 1}, {"i": 2}]


def test_envelope_malformed_body_keeps_its_text():
    """A body that names a tool but is no JSON is a call to be sent back, not an answer."""
    body = '{"name": "look", "arguments": {"i": 1,,}}'
    assert calls_in_text(f"<tool_call>{body}</tool_call>", known)[1] == (Enveloped("look", body),)


def test_envelope_escaped_emoji_is_one_character():
    """Two escaped surrogates are one character."""
    text = '<tool_call>{"name":"look","arguments":{"t":"\\ud83c\\udf78"}}</tool_call>'
    assert calls_in_text(text, known)[1][0].arguments == {"t": "\N{COCKTAIL GLASS}"}


HOSTILE = [
    "<tool_call>" + " " * 20_000,
    "<tool_call>" * 18_000,
    "<tool_call>{" * 16_000,
    '<tool_call>{"a":"' * 12_000,
    "<tool_call></tool_call>" * 9_000,
    "<tool_call>{}</tool_call>" * 8_000,
    "```tool_call\n" * 15_000,
    "<think>" * 28_000,
    "<think></think>" * 13_000,
    "<think><tool_call>" * 11_000,
    '<tool_call>{"name": "look", ' + "[" * 200_000,
    '<tool_call>{"x":' * 5_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:14].strip() + str(len(text)) for text in HOSTILE])
def test_envelope_reads_hostile_text_in_linear_time(text):
    """Openings without end cost no more than reading them (the best of three, on a busy machine)."""
    took = []
    for _ in range(3):
        began = time.process_time()
        calls_in_text(text, known)
        took.append(time.process_time() - began)
    assert min(took) < 0.1


@settings(deadline=None)
@given(st.text(alphabet='<>/`tool_cal{}":look,na me\n think', max_size=300))
def test_envelope_is_total(text):
    """No text makes it raise, and without a call the text is returned as it is."""
    left, calls = calls_in_text(text, known)
    assert calls or left == text


@pytest.mark.parametrize(
    ("text", "answer", "thinking", "closed"),
    [
        ("<think>a</think>b", "b", "a", True),
        ("  <think>\na\n</think>\n\nb", "b", "a", True),
        ("<think>a", "", "a", False),
        ("the tag <think>x</think> is used", "the tag <think>x</think> is used", None, True),
        ("plain", "plain", None, True),
    ],
)
def test_thinking_is_taken_off_the_head_only(text, answer, thinking, closed):
    """A thought at the head is no part of the answer; the tag elsewhere is."""
    thought = split_thinking(text)
    assert (thought.text, thought.thinking, thought.closed) == (answer, thinking, closed)
