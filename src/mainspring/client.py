"""Start runs and talk to them: thin and typed. Everything here also works with the plain Temporal client.

    run = await start_run(client, agent="guide", prompt="Which module owns retries?")
    result = await run.result()

Source: shared design, interfaces.md "On the wire", "In Python".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload
from uuid import uuid4

from opentelemetry.trace import get_current_span
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError

from mainspring.attachments import attachment
from mainspring.channel import PATIENCE_SECONDS, server_errors
from mainspring.questions import Question
from mainspring.run import Run
from mainspring.run_errors import (
    ExchangeFailed,
    NoWorker,
    Refused,
    RunCancelled,
    RunClosed,
    RunExists,
    RunFailed,
    TooLarge,
    Unanswered,
    UnknownRun,
    Unreachable,
    UpdatesUsedUp,
    Wedged,
)
from mainspring.schemas.agent import AgentSpec, Overrides
from mainspring.schemas.base import JsonValue, problems, wire
from mainspring.schemas.ledger import Attachment
from mainspring.schemas.run import RunInput
from mainspring.workflows import trace
from mainspring.workflows.catalog import near
from mainspring.workflows.trace import SpanRef

__all__ = [
    "ExchangeFailed",
    "NoWorker",
    "Question",
    "Refused",
    "Run",
    "RunCancelled",
    "RunClosed",
    "RunExists",
    "RunFailed",
    "StartOptions",
    "TooLarge",
    "Unanswered",
    "UnknownRun",
    "Unreachable",
    "UpdatesUsedUp",
    "Wedged",
    "attachment",
    "get_run",
    "start_run",
]

TASK_QUEUE = "mainspring"
WORKFLOW = "AgentRun"
INPUT_BYTES_MAX = 1_900_000
SUMMARY_CHARACTERS = 100

M = TypeVar("M", bound=BaseModel)


class StartOptions(TypedDict, total=False):
    """What `start_run` takes beside agent, prompt and output.

    Args:
        id: The run's id; made from the agent's name without one. An open run of that id is never replaced.
        task_queue: Where the workers listen; default `mainspring`.
        lifetime: `single` (default) ends after the first answer; `conversation` waits for follow-ups.
        attended: Somebody can be asked (default); without, a question of the model is put to nobody, and what
            would need approval is denied.
        attachments: Images and files that go with the prompt; see `attachment`.
        criteria: What the answer must meet, checked by the engine.
        overrides: What this run changes of its agent, as `{"model": "deep", "budgets": {"turns": 40}}`.
        metadata: Text by name, for whoever looks the run up later.
        idle_timeout: How long a conversation waits for a follow-up, in seconds or as `"2h"`.
        traceparent: W3C Trace Context of the span that the run hangs from; default the caller's current
            OpenTelemetry span, where there is one.
        patience_seconds: How long the run's methods repeat what fails for a passing reason; default 60.
    """

    id: str | None
    task_queue: str
    lifetime: Literal["single", "conversation"]
    attended: bool
    attachments: Sequence[Attachment]
    criteria: Sequence[JsonValue]
    overrides: Overrides | Mapping[str, JsonValue] | None
    metadata: Mapping[str, str] | None
    idle_timeout: float | str | None
    traceparent: str | None
    patience_seconds: float


@overload
async def start_run(
    client: Client,
    *,
    agent: str | AgentSpec,
    prompt: str,
    output: type[M],
    **options: Unpack[StartOptions],
) -> Run[M]: ...


@overload
async def start_run(
    client: Client,
    *,
    agent: str | AgentSpec,
    prompt: str,
    output: None = None,
    **options: Unpack[StartOptions],
) -> Run[JsonValue]: ...


async def start_run(
    client: Client,
    *,
    agent: str | AgentSpec,
    prompt: str,
    output: type[BaseModel] | None = None,
    **options: Unpack[StartOptions],
) -> Run[Any]:
    """Start a run; it goes on whatever becomes of the caller.

    Args:
        client: Connected to Temporal; it needs no plugin of ours to start runs.
        agent: A configured name, or an inline specification.
        prompt: The first message.
        output: A pydantic model: the run's output must meet its schema, and `Run.output()` is of it.
        options: See `StartOptions`.

    Raises: Refused, TooLarge, RunExists, Unreachable. What only a worker can know (an unknown agent or model)
        ends the run instead, and `Run.result()` raises it. TypeError, for an option that there is not.
    """
    _known(options)
    name = agent if isinstance(agent, str) else "inline"
    run_id = options.get("id") or f"{name}-{uuid4().hex[:12]}"
    request = _request(agent, prompt, output, options)
    try:
        with server_errors(client):
            await client.start_workflow(
                WORKFLOW,
                wire(request),
                id=run_id,
                task_queue=options.get("task_queue", TASK_QUEUE),
                static_summary=f"{name}: {' '.join(prompt.split())}"[:SUMMARY_CHARACTERS],
            )
    except WorkflowAlreadyStartedError as error:
        raise RunExists(f"a run {run_id!r} is open; choose another id, or talk to that one") from error
    return Run(client, run_id, output, options.get("patience_seconds", PATIENCE_SECONDS))


def get_run(client: Client, id: str, *, patience_seconds: float = PATIENCE_SECONDS) -> Run[JsonValue]:
    """A run that was started before, by its id. Whether it exists is found out by the first call."""
    return Run(client, id, None, patience_seconds)


def _known(options: StartOptions) -> None:
    """A misspelt option would start another run than the one that was meant.

    Raises: TypeError, naming the nearest known one.
    """
    for name in options:
        if name not in StartOptions.__annotations__:
            meant = "".join(
                f"; did you mean {found!r}?" for found in near(name, StartOptions.__annotations__, 1)
            )
            raise TypeError(f"start_run() got an unexpected option {name!r}{meant}")


def _request(
    agent: str | AgentSpec, prompt: str, output: type[BaseModel] | None, options: StartOptions
) -> RunInput:
    """The run's argument, checked here as far as it can be.

    Raises: Refused, TooLarge.
    """
    sent = ("lifetime", "attended", "attachments", "criteria", "metadata", "idle_timeout", "traceparent")
    told = cast(dict[str, Any], options)
    given = {key: told[key] for key in sent if told.get(key) is not None}
    given.setdefault("traceparent", _current_span())
    overrides = options.get("overrides") or {}
    plain = wire(overrides) if isinstance(overrides, Overrides) else dict(overrides)
    if output is not None:
        plain["output_schema"] = output.model_json_schema()
    try:
        request = RunInput.model_validate(given | {"agent": agent, "prompt": prompt, "overrides": plain})
    except ValidationError as error:
        raise Refused(problems(error)) from error
    try:
        size = len(request.model_dump_json(exclude_defaults=True).encode())
    except PydanticSerializationError as error:
        what = "prompt, metadata or overrides: half of a character (a lone surrogate), which no text may hold"
        raise Refused(what) from error
    if size > INPUT_BYTES_MAX:
        raise TooLarge(
            f"prompt, attachments and overrides: {size} bytes; at most {INPUT_BYTES_MAX} start a run"
        )
    return request


def _current_span() -> str | None:
    """The traceparent of the OpenTelemetry span that the caller is in."""
    found = get_current_span().get_span_context()
    return trace.write(SpanRef(found.trace_id, found.span_id, found.trace_flags)) if found.is_valid else None
