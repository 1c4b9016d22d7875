"""The calls in a reply: parsed, validated, and never guessed at."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from mainspring.schemas.base import wire
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition
from support.model import OBSERVE, READ, Run


async def called(*calls, tools=(OBSERVE, READ), reply=None, request=None, **spec):
    """The calls of a scripted reply, as the loop gets them."""
    run = Run({"replies": [{"calls": list(calls), **(reply or {})}]}, tools=tools, **spec)
    return (await run.call(**(request or {}))).calls


def raw(text, tool="observe"):
    """A call with these raw arguments."""
    return {"tool": tool, "raw_arguments": text}


def deep(levels):
    """An argument text that nests."""
    return '{"x":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ('["x"]', "malformed", "a list"),
        ('"ls"', "malformed", "text"),
        ("7", "malformed", "a number"),
        ("null", "malformed", "null"),
        ("true", "malformed", "true or false"),
        ('{"i": 1,,}', "malformed", "line 1, column 9"),
        ('{"i": 1', "malformed", "given {"),
        ('{"i":1}{"i":2}', "malformed", "several objects"),
        ('{"i": NaN}', "malformed", "NaN"),
        ('{"i": 1, "i": 2}', "malformed", "twice"),
        ('{"x":' * 5000, "malformed", "nests deeper"),
        (deep(65), "malformed", "nests deeper"),
        ("", "schema", "'i' is a required property"),
        ("   ", "schema", "'i' is a required property"),
        ('{"i": "one"}', "schema", '$.i: type must be integer, given "one"'),
        ('{"i": 1, "j": 2}', "schema", "known: i"),
        ('{"i": 123456789012345678901234567890}', "schema", "$.i"),
    ],
)
async def test_call_that_may_not_run_says_why(text, kind, says):
    """Whatever is wrong with arguments is a problem in words for the model, never an execution as `{}`."""
    (call,) = await called(raw(text))
    assert call.problem is not None
    assert (call.problem.kind, call.tool) == (kind, "observe")
    assert says in call.problem.message
    assert len(call.problem.message) < 1_200


@pytest.mark.parametrize("text", ["", "  ", "\n", "{}"])
async def test_call_without_arguments_is_an_empty_object_where_the_schema_admits_it(text):
    """Blank arguments mean `{}` for a tool that needs none."""
    (call,) = await called(raw(text, tool="files/read"))
    assert (call.problem, call.arguments, call.tool) == (None, {}, "files/read")


async def test_call_keeps_what_could_not_be_parsed_clipped():
    """A huge bad payload is kept to 2 KiB and echoed to far less."""
    (call,) = await called(raw('{"i": ' + "x" * 100_000))
    assert len(call.raw.encode()) <= 2_048
    assert len(call.problem.message) < 600


async def test_call_above_the_argument_bound_is_too_large():
    """`limits.argument_bytes` holds for each call."""
    (call,) = await called(raw('{"path": "' + "x" * 400 + '"}', "files/read"), limits={"argument_bytes": 300})
    assert call.problem.kind == "too_large"
    assert "at most 300" in call.problem.message


async def test_calls_together_stay_below_a_payload():
    """All arguments of a reply together are bounded; those beyond get a problem, in their places."""
    text = '{"path": "' + "x" * 250_000 + '"}'
    calls = await called(*[raw(text, "files/read")] * 9)
    kinds = [call.problem and call.problem.kind for call in calls]
    assert kinds == [None] * 5 + ["too_large"] * 4
    assert len(json.dumps([wire(call) for call in calls])) < 1_800_000


@pytest.mark.parametrize(
    ("name", "near"),
    [("observ", "observe"), ("files/raed", "files__read"), ("Observe", "observe")],
)
async def test_call_of_an_unknown_tool_names_near_ones(name, near):
    """An unknown name is a problem that names what may have been meant, as the model must write it."""
    (call,) = await called({"tool": name, "arguments": {"i": 1}})
    assert (call.problem.kind, call.tool) == ("unknown_tool", name)
    assert f"did you mean: {near}" in call.problem.message


async def test_call_of_an_unknown_tool_near_nothing_says_so():
    """A name near nothing gets no made-up suggestion."""
    (call,) = await called({"tool": "get_date"})
    assert call.problem.message == "there is no tool 'get_date'; call one of the tools you are offered"


@pytest.mark.parametrize("name", ["a\x00b\x1b[31m", "x" * 5_000, "\ud800", "", "über/λ"])
async def test_call_names_are_made_safe(name):
    """A name has no control characters and at most 256 characters, whatever the model wrote."""
    (call,) = await called({"tool": name})
    assert call.problem.kind == "unknown_tool"
    assert 0 < len(call.tool) <= 256
    assert call.tool.isprintable()
    json.dumps(wire(call), ensure_ascii=False).encode()


async def test_call_of_a_tool_that_was_not_offered_is_fine():
    """A tool of the catalog may be called though the router left it out."""
    (call,) = await called({"tool": "observe", "arguments": {"i": 1}}, request={"offered": ("files/read",)})
    assert call.problem is None


async def test_calls_of_a_reply_cut_short_do_not_run():
    """`finish_reason: length` with calls: none may run, whole as the last may look."""
    good = {"tool": "observe", "arguments": {"i": 1}}
    calls = await called(good, raw('{"i": '), reply={"finish_reason": "length"})
    assert [call.problem.kind for call in calls] == ["truncated", "truncated"]


async def test_calls_beyond_the_batch_are_answered_not_run():
    """200 calls: the bound runs, the next get a problem, and no more are kept than a provider takes back."""
    calls = await called(*[{"tool": "observe", "arguments": {"i": 1}}] * 200)
    assert len(calls) == 128
    assert [call.problem for call in calls[:64]] == [None] * 64
    assert {call.problem.kind for call in calls[64:]} == {"batch"}


async def test_call_with_odd_characters_is_safe_to_encode():
    """Lone surrogates and NULs are replaced before they reach a history."""
    (call,) = await called(raw('{"path": "a\\ud800b\\u0000c \\ud83c\\udf78"}', "files/read"))
    assert call.arguments == {"path": "a\ufffdb\ufffdc \N{COCKTAIL GLASS}"}
    json.dumps(wire(call), ensure_ascii=False).encode()


def with_schema(schema):
    """A tool with that input schema."""
    return ToolDefinition(declaration=ToolDeclaration(name="odd"), input_schema=schema)


async def test_schema_references_never_leave_the_schema():
    """A `$ref` to an address is a clean problem, and nothing connects to it."""
    connected = asyncio.Event()

    async def accept(reader, writer):
        connected.set()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for reference in (f"http://127.0.0.1:{port}/x", "file:///etc/hostname", "#/$defs/none"):
        tool = with_schema({"type": "object", "properties": {"a": {"$ref": reference}}})
        (call,) = await called(raw('{"a": 1}', "odd"), tools=[tool])
        assert call.problem.kind == "schema"
        assert "cannot be used" in call.problem.message
    await asyncio.sleep(0.05)
    server.close()
    assert not connected.is_set()


@pytest.mark.parametrize(
    ("schema", "text", "ok"),
    [
        ({"$ref": "#"}, "{}", False),
        ({"type": "nonsense"}, "{}", False),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, '{"a": "x"}', False),
        ({"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}, '{"n": 1}', True),
        (
            {"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}},
            '{"n": "x"}',
            False,
        ),
        (
            {"$defs": {"t": {"properties": {"c": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"},
            '{"c": {}}',
            True,
        ),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1}, "{}", True),
        ({"$schema": "urn:unknown", "type": "object"}, "{}", True),
        ({}, '{"anything": [1, 2.5, null]}', True),
    ],
)
async def test_schema_odd_ones_never_crash(schema, text, ok):
    """Recursive, invalid and foreign schemas judge or are a problem; they never end the run."""
    (call,) = await called(raw(text, "odd"), tools=[with_schema(schema)])
    assert (call.problem is None) is ok


async def test_schema_problem_is_bounded_for_a_large_value():
    """A thousand errors are one short line."""
    tool = with_schema({"properties": {"a": {"items": {"type": "integer"}}}})
    text = json.dumps({"a": ["x" * 500] * 1_000})
    (call,) = await called(raw(text, "odd"), tools=[tool], limits={"argument_bytes": 1_000_000})
    assert "more" in call.problem.message
    assert len(call.problem.message) < 1_200


async def test_call_in_text_is_taken_when_there_is_no_other():
    """An envelope in the text is a call like any other, checked against its schema."""
    text = 'Now. <tool_call>{"name": "files__read", "arguments": {"path": 7}}</tool_call>'
    reply = await Run({"replies": [{"text": text}]}).call()
    assert (reply.text, reply.calls[0].tool) == ("Now.", "files/read")
    assert reply.calls[0].problem.kind == "schema"


async def test_call_in_text_is_ignored_beside_structured_calls():
    """Structured calls win; the text stays as it is."""
    text = '<tool_call>{"name": "observe", "arguments": {"i": 2}}</tool_call>'
    script = {"replies": [{"text": text, "calls": [{"tool": "observe", "arguments": {"i": 1}}]}]}
    reply = await Run(script).call()
    assert (reply.text, [call.arguments for call in reply.calls]) == (text, [{"i": 1}])


async def test_call_numbers_stay_numbers():
    """Integers and floats reach the tool as they were written, within what JSON readers agree on."""
    tool = with_schema({})
    (call,) = await called(raw('{"a": 1, "b": 1.0, "c": 9007199254740993, "d": 1e400}', "odd"), tools=[tool])
    assert call.arguments["a"] == 1
    assert call.arguments["c"] == "9007199254740993"
    assert not any(isinstance(v, float) and math.isinf(v) for v in call.arguments.values())
