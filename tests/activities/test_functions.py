"""`@tool`: what becomes of a function's signature, docstring and declaration, and how it is called."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import threading
import time
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic import ValidationError as PydanticError

from mainspring.activities.functions import InvalidArguments
from mainspring.tools import Claim, ToolContext, ToolError, tool

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


class Point(BaseModel):
    x: int
    y: int = 0


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Colour(enum.Enum):
    RED = "red"


def documented(city: str, days: int = 3, *, units: Literal["metric", "imperial"] = "metric") -> str:  # noqa: D417
    """Weather of a city.

    Two paragraphs belong to the description.

    Args:
        city: Its name,
            in English.
        days (int): How far to look.

    Returns: A sentence.
    """
    return f"{city} {days} {units}"


async def call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function as the tool that it is."""
    return await tool(function).invoke(arguments, ToolContext())


def test_tool_works_bare_and_with_declarations() -> None:
    """A bare decorator and one with declarations both make a tool of the function."""
    assert tool(documented).name == "documented"
    made = tool(name="weather", group="geo", effects="read", observes=True, timeout="2m")(documented)
    assert (made.name, made.declaration.effects, made.declaration.timeout) == ("geo/weather", "read", 120.0)


def test_tool_is_external_unless_declared() -> None:
    """A tool that declares nothing is taken to act on the outside world, and not to be repeatable."""
    declaration = tool(documented).declaration
    assert (declaration.effects, declaration.idempotent, declaration.source) == ("external", False, "python")


def test_tool_may_be_declared_core() -> None:
    """A tool is core, offered in every turn, when it says so and not otherwise."""
    assert not tool(documented).declaration.core
    assert tool(core=True)(documented).declaration.core


def test_tool_can_still_be_called_as_a_function() -> None:
    """The decorated name is the function that it was."""
    assert tool(documented)("Oslo", units="imperial") == "Oslo 3 imperial"


def test_tool_description_is_the_docstring_before_its_sections() -> None:
    """The model reads the docstring up to its first section, or the description given."""
    told = tool(documented).declaration.description
    assert told == "Weather of a city.\n\nTwo paragraphs belong to the description."
    assert tool(description="Other.")(documented).declaration.description == "Other."


def test_tool_schema_is_the_signature() -> None:
    """Types, defaults, choices and descriptions of the signature are in the schema; nothing else is."""
    assert tool(documented).definition.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name, in English."},
            "days": {"type": "integer", "default": 3, "description": "How far to look."},
            "units": {"type": "string", "enum": ["metric", "imperial"], "default": "metric"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_tool_schema_keeps_definitions_and_recursion() -> None:
    """Models become definitions, and a recursive one refers to itself."""

    def plant(root: Node, at: Point) -> None:
        """Plant."""

    schema = tool(plant).definition.input_schema
    assert set(schema["$defs"]) == {"Node", "Point"}  # type: ignore[arg-type]
    assert schema["properties"]["root"] == {"$ref": "#/$defs/Node"}  # type: ignore[index, call-overload]


def test_tool_field_constraints_are_in_the_schema() -> None:
    """What `Field` says of a parameter is in the schema, and wins over nothing of the docstring."""

    def pick(n: Annotated[int, Field(ge=1, le=9, description="Which.")]) -> None:
        """Pick."""

    properties: Any = tool(pick).definition.input_schema["properties"]
    assert properties["n"] == {"type": "integer", "minimum": 1, "maximum": 9, "description": "Which."}


@pytest.mark.parametrize("name", ["schema", "copy", "model_config", "_private", "json", "self", "p0"])
async def test_tool_parameters_may_have_any_name(name: str) -> None:
    """No name of a parameter is taken by the machinery."""
    namespace: dict[str, Any] = {}
    exec(f"def odd({name}: int) -> int:\n    return {name}", namespace)
    assert await call(namespace["odd"], **{name: 7}) == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def bad(*args: int): pass", r"bad: \*args has no schema"),
        ("def bad(**rest: int): pass", r"bad: \*\*rest has no schema"),
        ("def bad(x): pass", "parameter 'x' has no type"),
        ("def bad(x: 'Nowhere'): pass", "a type cannot be resolved"),
        ("def bad(x: object()): pass", "bad"),
        ("def bad(x: int):\n    yield x", "a generator is not a tool"),
        ("async def bad(x: int):\n    yield x", "a generator is not a tool"),
    ],
)
def test_tool_refuses_what_has_no_schema(text: str, words: str) -> None:
    """A signature without a schema is refused when it is decorated, naming function and parameter."""
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    with pytest.raises(TypeError, match=words):
        tool(namespace["bad"])


@pytest.mark.parametrize(
    "name", ["a b", "nika:done", "mcp:x/y", "a//b", "/a", "a/", "x" * 129, "mainspring.arm", "é"]
)
def test_tool_refuses_a_name_that_is_not_its_own(name: str) -> None:
    """A name is one that the loop can hold; the namespaces of others are refused."""
    with pytest.raises(ValueError, match="cannot be a tool's name"):
        tool(name=name)(documented)


def test_tool_refuses_a_wrong_declaration() -> None:
    """A declaration out of its bounds is refused when it is decorated, naming the field."""
    with pytest.raises(ValueError, match="documented: attempts"):
        tool(attempts=0)(documented)


def test_tool_declares_claims() -> None:
    """Claims may be written as they are in the configuration."""
    made = tool(claims=[{"argument": "city"}], domain=["geo"])(documented)
    assert made.declaration.claims == (Claim(argument="city"),)
    assert made.declaration.domain == ("geo",)


def test_tool_context_is_not_in_the_schema() -> None:
    """A parameter of the type ToolContext is injected: the model never sees it."""

    def keyed(context: ToolContext, n: int) -> str:
        """Keyed."""
        return context.idempotency_key

    assert list(tool(keyed).definition.input_schema["properties"]) == ["n"]  # type: ignore[arg-type]


async def test_invoke_injects_the_context() -> None:
    """The function is given the context of its call."""

    def keyed(n: int, context: ToolContext) -> str:
        """Keyed."""
        return f"{context.idempotency_key} {context.attempt} {n}"

    assert await tool(keyed).invoke({"n": 1}, ToolContext("run:ab-1", 2)) == "run:ab-1 2 1"


async def test_invoke_converts_arguments_to_their_types() -> None:
    """Arguments arrive as the types that the signature names, models and enumerations among them."""

    def take(at: Point, on: date, colour: Colour, sizes: set[int], n: int) -> tuple[Any, ...]:
        """Take."""
        return at, on, colour, sizes, n

    taken = await call(take, at={"x": 1}, on="2026-01-02", colour="red", sizes=[1, 2], n="12")
    assert taken == (Point(x=1), date(2026, 1, 2), Colour.RED, {1, 2}, 12)


async def test_invoke_respects_how_parameters_are_passed() -> None:
    """Positional-only and keyword-only parameters are passed as they must be, defaults are left alone."""

    def take(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
        """Take."""
        return a, b, c, d

    assert await call(take, a=1, d=9) == (1, 2, 3, 9)


@pytest.mark.parametrize("arguments", [{}, {"n": "many"}, {"n": 1, "more": 2}, {"n": None}, {"n": [1]}])
async def test_invoke_refuses_arguments_that_do_not_fit(arguments: dict[str, Any]) -> None:
    """Arguments are validated at the tool, whoever validated them before; the function is not called."""
    called = []

    def take(n: int) -> None:
        """Take."""
        called.append(n)

    with pytest.raises(InvalidArguments, match=r"\b(n|more)\b") as refused:
        await call(take, **arguments)
    assert called == []
    assert refused.value.not_applied


async def test_invoke_runs_a_synchronous_function_in_a_thread() -> None:
    """A synchronous function never blocks the event loop, and sees the caller's context variables."""

    def where() -> tuple[str, bool]:
        """Where."""
        return TENANT.get(), threading.current_thread() is threading.main_thread()

    TENANT.set("acme")
    assert await call(where) == ("acme", False)


async def test_invoke_runs_many_synchronous_functions_at_once() -> None:
    """Blocking calls do not wait for each other, however many there are."""

    def block() -> None:
        """Block."""
        time.sleep(0.3)

    started = time.monotonic()
    await asyncio.gather(*(call(block) for _ in range(80)))
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("error", [StopIteration("over"), SystemExit(2), KeyError("k"), ToolError("no")])
async def test_invoke_raises_what_a_thread_raised(error: BaseException) -> None:
    """Whatever is raised in the thread reaches the caller; none of it is lost, none hangs the call."""

    def fail() -> None:
        """Fail."""
        raise error

    with pytest.raises((RuntimeError, type(error))):
        async with asyncio.timeout(5):
            await call(fail)


async def test_cancelling_tells_the_thread() -> None:
    """A cancelled synchronous call is told through its context, and may end at once."""
    ended = threading.Event()

    def wait(context: ToolContext) -> None:
        """Wait."""
        if context.wait_cancelled(20):
            ended.set()

    task = asyncio.create_task(tool(wait).invoke({}, ToolContext()))
    await asyncio.sleep(0.1)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert time.monotonic() - started < 1


async def test_cancelling_does_not_wait_for_a_deaf_thread() -> None:
    """A synchronous call that ignores cancellation delays nobody for long."""
    release = threading.Event()

    def deaf() -> None:
        """Deaf."""
        release.wait(30)

    task = asyncio.create_task(call(deaf))
    await asyncio.sleep(0.1)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 5
    release.set()


async def test_invoke_awaits_what_only_looks_synchronous() -> None:
    """A wrapper that hides an asynchronous function is awaited all the same."""

    async def inner(n: int) -> int:
        return n + 1

    def outer(n: int) -> Any:
        """Outer."""
        return inner(n)

    assert await call(outer, n=1) == 2


def test_pydantic_errors_do_not_leak_from_the_decorator() -> None:
    """A wrong declaration is a ValueError of ours, not pydantic's."""
    with pytest.raises(ValueError, match="effects") as refused:
        tool(effects="some")(documented)  # type: ignore[call-overload]
    assert not isinstance(refused.value, PydanticError)
