"""Values that no JSON carries, from every side: the run goes on, and its history can be read by anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.errors import MainspringError
from mainspring.testing import activities_of, serving
from mainspring.tools import ToolError, ToolForbidden, tool
from support.history import assert_sound

PATIENCE = 30


class Mute:
    """An object that cannot be written."""

    def __str__(self) -> str:
        raise RuntimeError("I will not be written")

    __repr__ = __str__


class Liar(dict[str, Any]):
    """A mapping whose items are not to be had."""

    def items(self) -> Any:
        """Fail."""
        raise OSError("no items")


class MuteError(Exception):
    """An exception that cannot be written."""

    def __str__(self) -> str:
        raise RuntimeError("I will not be written")


def nested(depth: int) -> list[Any]:
    """Brackets in brackets."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> dict[str, Any]:
    """A value that holds itself."""
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


RESULTS: dict[str, Callable[[], Any]] = {
    "lone surrogate": lambda: "a \ud800 b",
    "surrogate in a key": lambda: {"\udfff": "\ud800"},
    "split pair": lambda: "\ud83c\udf78",
    "NUL": lambda: "a\x00b",
    "control characters": lambda: "\x01\x1b[31m\u2028" * 50,
    "not finite": lambda: {"v": float("nan"), "w": [float("inf"), -float("inf")]},
    "integer of 5,000 digits": lambda: 10**5_000,
    "integer beyond a float": lambda: 2**64,
    "nested 5,000 deep": lambda: nested(5_000),
    "nested 300 deep": lambda: nested(300),
    "cycle": cycle,
    "set": lambda: {3, "b", None, 2.5, ("x", 1)},
    "bytes": lambda: b"\xff\x00\xfe",
    "bytes inside": lambda: {"a": [b"\xff", bytearray(b"x"), memoryview(b"y")]},
    "decimal": lambda: [Decimal("0.1"), Decimal("NaN"), Decimal("1e999")],
    "huge dict": lambda: {f"k{i}": i for i in range(300_000)},
    "odd keys": lambda: {None: 1, "None": 2, 3: 4, "3": 5, (1, 2): 6, True: 7, b"\xff": 8},
    "object that cannot be written": lambda: {"x": Mute(), "y": [Mute()]},
    "mapping that lies": Liar,
    "class": lambda: Mute,
    "function": lambda: nested,
    "exception": lambda: ValueError("\ud800"),
    "generator": lambda: (i for i in range(3)),
}


def _raise(error: BaseException) -> Any:
    raise error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "no message": lambda: ValueError(),
    "lone surrogate": lambda: ValueError("half \ud800"),
    "NUL": lambda: KeyError("a\x00b"),
    "cannot be written": lambda: MuteError(),
    "3 MB": lambda: RuntimeError("x" * 3_000_000),
    "3 MB of an error of ours": lambda: ToolError("y" * 3_000_000),
    "not a string": lambda: ValueError({"x": float("nan")}, 10**50),
    "group": lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    "cancelled by itself": lambda: asyncio.CancelledError(),
    "time-out of its own": lambda: TimeoutError(),
    "stop iteration": lambda: StopIteration(3),
    "system exit": lambda: SystemExit(3),
}


@tool(effects="write")
async def returns(kind: str) -> Any:
    """Return something odd.

    Args:
        kind: What.
    """
    return RESULTS[kind]()


@tool(effects="write")
def raises(kind: str) -> Any:
    """Raise something odd, in a thread.

    Args:
        kind: What.
    """
    raise ERRORS[kind]()


@tool(effects="write", name="raises_async")
async def raises_async(kind: str) -> Any:
    """Raise something odd.

    Args:
        kind: What.
    """
    raise ERRORS[kind]()


@tool(effects="write")
async def forbids() -> Any:
    """Refuse with words that no history carries."""
    raise ToolForbidden("no \ud800 \x00" + "x" * 3_000_000)


@tool(effects="read")
async def echo(x: Any = None) -> Any:
    """Say it again.

    Args:
        x: Anything.
    """
    return x


def calling(name: str, kinds: Any) -> list[dict[str, Any]]:
    """A script that makes one call a kind, then answers."""
    calls = [{"tool": name, "arguments": {"kind": kind}} for kind in kinds]
    return [{"calls": calls}, {"text": "ok"}]


async def played(
    server: Server, replies: Any, tools: Any, prompt: str = "go"
) -> tuple[list[dict[str, Any]], Any]:
    """The observations and the history of a run that must answer `ok`."""
    async with serving(server.address, replies=replies, tools=tools) as case:
        run = await case.start(prompt)
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
        entries = await case.handle(run).query("transcript")
        history = await case.history(run)
    assert_sound(history)
    return [entry for entry in entries if entry["kind"] == "observation"], history


async def test_result_of_a_tool_is_made_safe_whatever_it_is(server: Server) -> None:
    """Each odd result is one observation that is no error, and all of the history is strict JSON."""
    seen, history = await played(server, calling("returns", RESULTS), [returns])
    wrong = {kind: entry for kind, entry in zip(RESULTS, seen, strict=True) if entry.get("is_error")}
    assert wrong == {}
    assert activities_of(history).count(("returns", "completed")) == len(RESULTS)


@pytest.mark.parametrize("function", [raises, raises_async], ids=["thread", "async"])
async def test_exception_of_a_tool_is_an_observation_that_names_it(server: Server, function: Any) -> None:
    """Whatever a tool raises, the model reads its type, briefly, and nothing is tried twice."""
    seen, history = await played(server, calling(function.name, ERRORS), [function])
    for (kind, make), entry in zip(ERRORS.items(), seen, strict=True):
        assert entry["is_error"], kind
        assert type(make()).__name__ in str(entry["content"]) or kind == "3 MB of an error of ours", kind
        assert len(str(entry["content"])) < 17_000, kind
    assert len([name for name, _ in activities_of(history) if name == function.name]) == len(ERRORS)


async def test_hard_refusal_with_hostile_words_ends_the_run_typed(server: Server) -> None:
    """`ToolForbidden` with words that no history carries still ends the run as `security`."""
    async with serving(server.address, replies=[{"calls": [{"tool": "forbids"}]}], tools=[forbids]) as case:
        run = await case.start()
        with pytest.raises(RunFailed) as failed:
            await asyncio.wait_for(run.result(), PATIENCE)
        assert_sound(await case.history(run))
    assert failed.value.result is not None
    assert failed.value.result.outcome == "security"


ARGUMENTS: dict[str, str] = {
    "lone surrogate": r'{"x": "a \ud800 b"}',
    "surrogate in a key": r'{"\udfff": 1, "x": 2}',
    "split pair": r'{"x": "\ud83c\udf78"}',
    "NUL": r'{"x": "a\u0000b"}',
    "NaN": '{"x": NaN}',
    "infinity": '{"x": [-Infinity]}',
    "number beyond a float": '{"x": 1e999}',
    "integer of 5,000 digits": '{"x": %s}' % ("9" * 5_000),
    "integer beyond a float": '{"x": 18446744073709551616}',
    "nested 5,000 deep": '{"x": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "nested 64 deep": '{"x": ' + "[" * 63 + "]" * 63 + "}",
    "never closed": '{"x": ' * 5_000,
    "twice the same key": '{"x": 1, "x": 2}',
    "two values": '{"x": 1}{"x": 2}',
    "comment": '{"x": 1} // one',
    "byte order mark": '\ufeff{"x": 1}',
    "no object": "[1]",
    "line separators": r'{"x": "\u2028\u2029\u0085"}',
}
DELIVERED = {
    "lone surrogate": "a \ufffd b",
    "split pair": "\U0001f378",
    "NUL": "a\ufffdb",
    "number beyond a float": "1e999",
    "integer beyond a float": "18446744073709551616",
    "line separators": "\u2028\u2029\x85",
}


async def test_arguments_of_a_model_are_made_safe_or_refused(server: Server) -> None:
    """Each odd call is one observation: of the value made safe, or of what is wrong with it."""
    calls = [{"tool": "echo", "raw_arguments": raw} for raw in ARGUMENTS.values()]
    seen, _ = await played(server, [{"calls": calls}, {"text": "ok"}], [echo])
    found = dict(zip(ARGUMENTS, seen, strict=True))
    assert {kind: found[kind]["content"] for kind in DELIVERED} == DELIVERED
    for kind in (
        "NaN",
        "infinity",
        "nested 5,000 deep",
        "never closed",
        "two values",
        "comment",
        "no object",
    ):
        assert found[kind].get("is_error"), kind
    assert max(len(str(entry["content"])) for entry in seen) < 6_000


WORDS = {
    "NUL": ("a\x00b", "a\ufffdb"),
    "control characters": ("\x01\x1b[31m\u2028", "\x01\x1b[31m\u2028"),
    "emoji": ("\U0001f378 \u05d0\u202e", "\U0001f378 \u05d0\u202e"),
}


@pytest.mark.parametrize("kind", WORDS)
async def test_words_of_a_person_reach_the_model_made_safe(server: Server, kind: str) -> None:
    """Prompt, steering and follow-up with odd characters are delivered, and no NUL enters the ledger."""
    sent, kept = WORDS[kind]
    replies = {"replies": [{"text": "ok", "delay": 0.3}], "then": "repeat_last"}
    async with serving(server.address, replies=replies) as case:
        run = await case.start(sent)
        await case.handle(run).signal("steer", sent)
        await case.handle(run).signal("follow_up", {"message": sent})
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
        entries = await run.transcript()
        assert_sound(await case.history(run))
    assert [entry.content for entry in entries if entry.kind == "user"] == [kept] * 3


async def test_half_a_character_is_refused_to_the_sender_or_named(server: Server) -> None:
    """A lone surrogate is no text of any wire: our client says so, and nothing is started or sent."""
    async with serving(server.address, replies=[{"text": "ok", "delay": 0.5}]) as case:
        with pytest.raises(MainspringError):
            await case.start("half \ud800")
        run = await case.start()
        with pytest.raises(MainspringError):
            await run.steer("half \ud800")
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
