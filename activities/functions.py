"""Python functions as tools: `@tool`, and what a tool may raise.

    @tool(effects="read", observes=True)
    async def lookup(city: str) -> dict:
        '''Current weather of a city.'''

What a tool raises is for whoever can act on it:

    any exception       the model reads "TypeName: message" as an error observation
    ToolUnavailable     a fault of transport or process: Temporal retries, as far as the tool's attempts allow
    ToolForbidden       a hard refusal: the run ends with outcome `security`, nothing is fed back

Source: shared design, tools.md "A tool is an activity", "What a tool declares".
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack, overload

from pydantic import ValidationError

from mainspring.activities.signatures import Signature, read_docstring, read_signature
from mainspring.schemas.base import problems
from mainspring.schemas.tools import Claim, Effects, ToolDeclaration, ToolDefinition, ToolSource

__all__ = [
    "InvalidArguments",
    "ToolContext",
    "ToolError",
    "ToolForbidden",
    "ToolFunction",
    "ToolUnavailable",
    "define",
    "tool",
]

HEARTBEAT_SECONDS = 30.0
"""Heartbeat timeout of a Python tool that declares none: without one, no cancellation would reach it."""

CANCEL_GRACE_SECONDS = 2.0
"""How long a cancelled call waits for the thread of its synchronous function."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_NAME_MAX = 128


class ToolError(Exception):
    """The tool failed, and says whether anything happened.

    Args:
        message: For the model.
        not_applied: The tool vouches that the call had no effect, so that the same call may be repeated.
    """

    def __init__(self, message: str, *, not_applied: bool = False) -> None:
        super().__init__(message)
        self.not_applied = not_applied


class ToolUnavailable(Exception):
    """What the tool needs cannot be reached; trying again may help.

    Args:
        message: What was tried and what came of it.
        retry_after: Seconds to wait before the next attempt.
        not_applied: Nothing can have happened: the request never left.
    """

    def __init__(
        self, message: str = "", *, retry_after: float | None = None, not_applied: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.not_applied = not_applied


class ToolForbidden(Exception):
    """A hard refusal by the tool's own sandbox."""


class InvalidArguments(ToolError):
    """The arguments do not meet the tool's schema; the text names the field and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the arguments were not accepted: {message}", not_applied=True)


@dataclass(slots=True)
class ToolContext:
    """What a tool may know of its call. A parameter of this type is injected and is not in the schema.

    Args:
        idempotency_key: `<workflow id>:<activity id>`; the same in every attempt at this call.
        attempt: From 1.
    """

    idempotency_key: str = "none:none-0"
    attempt: int = 1
    on_heartbeat: Callable[[Any], None] = field(default=lambda detail: None, repr=False)
    _cancelled: threading.Event = field(default_factory=threading.Event, repr=False)

    def heartbeat(self, detail: Any = None) -> None:
        """Show how far the call is; callable from any thread. Calls heartbeat by themselves without it."""
        self.on_heartbeat(detail)

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled: a synchronous tool should look at it, and return soon."""
        return self._cancelled.is_set()

    def wait_cancelled(self, seconds: float) -> bool:
        """Sleep, but not beyond a cancellation; for threads. Returns whether the call was cancelled."""
        return self._cancelled.wait(seconds)

    def cancel(self) -> None:
        """Tell the tool."""
        self._cancelled.set()


class ToolOptions(TypedDict, total=False):
    """What a tool declares beside its signature: the fields of `ToolDeclaration`."""

    effects: Effects
    idempotent: bool
    observes: bool
    executes: bool
    presents: str | None
    polls: bool
    domain: Sequence[str]
    claims: Sequence[Claim | Mapping[str, Any]]
    approval: Literal["never", "always"]
    timeout: float | str
    heartbeat: float | str | None
    attempts: int | None
    local: bool
    retry_safe: bool
    spill_bytes: int | None
    core: bool


@dataclass(frozen=True)
class ToolFunction:
    """A function that is a tool. It still can be called as the function it was.

    Args:
        function: The function as it was written.
        declaration: What the loop knows of it.
    """

    function: Callable[..., Any]
    declaration: ToolDeclaration
    signature: Signature

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.declaration.name

    @property
    def definition(self) -> ToolDefinition:
        """The tool for a catalog."""
        return ToolDefinition(declaration=self.declaration, input_schema=self.signature.schema)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were no tool."""
        return self.function(*args, **kwargs)

    async def invoke(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Validate the arguments and run the function; a synchronous one in a thread of its own.

        Raises: InvalidArguments, or whatever the function raises.
        """
        args, kwargs = self._bound(arguments, context)
        if inspect.iscoroutinefunction(inspect.unwrap(self.function)):
            return await self.function(*args, **kwargs)
        value = await in_thread(lambda: self.function(*args, **kwargs), context, self.name)
        # A partial or a wrapper may hide that the function is asynchronous.
        return await value if isinstance(value, Awaitable) else value

    def _bound(self, arguments: Mapping[str, Any], context: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        try:
            checked = self.signature.model.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(problems(error)) from None
        values = {p.name: getattr(checked, f"p{n}") for n, p in enumerate(self.signature.parameters)}
        if self.signature.injected:
            values[self.signature.injected] = context
        order = inspect.signature(self.function).parameters.values()
        positional = [p.name for p in order if p.kind is inspect.Parameter.POSITIONAL_ONLY]
        return [values.pop(name) for name in positional], values


@overload
def tool(function: Callable[..., Any], /) -> ToolFunction: ...


@overload
def tool(
    *,
    name: str | None = None,
    group: str | None = None,
    description: str | None = None,
    **declared: Unpack[ToolOptions],
) -> Callable[[Callable[..., Any]], ToolFunction]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    group: str | None = None,
    description: str | None = None,
    **declared: Unpack[ToolOptions],
) -> ToolFunction | Callable[[Callable[..., Any]], ToolFunction]:
    """Make a typed function a tool; bare, or with what it declares.

    Args:
        function: The function, when used bare.
        name: Its name; the function's where it is None.
        group: Makes the name `<group>/<name>`.
        description: What the model reads; the docstring up to its first section where it is None.
        declared: See `ToolDeclaration`. `effects` is `external` unless declared.

    Raises: TypeError, when no schema can be made of the signature; ValueError, for a bad name or declaration.
    """
    if function is not None:
        return define(function)

    def decorate(decorated: Callable[..., Any]) -> ToolFunction:
        plain = name or getattr(decorated, "__name__", "")
        full = f"{group}/{plain}" if group else plain
        return define(decorated, name=full, description=description, **declared)

    return decorate


def define(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    source: ToolSource = "python",
    **declared: Unpack[ToolOptions],
) -> ToolFunction:
    """The tool that a function is. `tool` is the decorator over it.

    Raises: TypeError, ValueError, as `tool` does.
    """
    full = _checked_name(name or str(getattr(function, "__name__", "")))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{full}: a generator is not a tool; return a list, or report progress by heartbeat")
    docstring = read_docstring(function)
    signature = read_signature(function, docstring, ToolContext)
    options: dict[str, Any] = {"heartbeat": HEARTBEAT_SECONDS, **declared}
    text = docstring.description if description is None else description
    try:
        declaration = ToolDeclaration(name=full, description=text, source=source, **options)
    except ValidationError as error:
        raise ValueError(f"{full}: {problems(error)}") from error
    return ToolFunction(function, declaration, signature)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > _NAME_MAX:
        raise ValueError(
            f"{name!r} cannot be a tool's name: at most {_NAME_MAX} letters, digits, _ . -, groups apart by /"
        )
    if name.startswith("mainspring."):
        raise ValueError(f"{name!r} cannot be a tool's name: mainspring.* are activities of the engine")
    return name


async def in_thread(function: Callable[[], Any], context: ToolContext, name: str) -> Any:
    """Run a function in a daemon thread of its own, in the caller's context variables.

    A pool would let calls that never end starve the others; a thread that is no daemon would keep the
    process from ending. On cancellation the context is told, and the thread has a moment to end.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    variables = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, raised = None, None
        try:
            value = variables.run(function)
        except BaseException as error:  # carried to the caller, who judges it
            raised = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, raised)

    threading.Thread(target=run, name=f"tool {name}", daemon=True).start()
    try:
        await asyncio.wait({ended})
    except asyncio.CancelledError:
        context.cancel()
        await asyncio.wait({ended}, timeout=CANCEL_GRACE_SECONDS)
        raise
    value, error = ended.result()
    if error is not None:
        raise error
    return value
