"""The line to one run: queries, updates and signals that get through a change-over, and errors in our words.

A run continues as new, and its worker may be replaced, while somebody talks to it. What fails for such a
reason is repeated for a while: a query because it changes nothing, an update under the same id, which the run
knows. Whoever gives up repeating can go on later under that id: the error names it.

Source: shared design, temporal-facts.md 1, 2, 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from mainspring.run_errors import (
    NoWorker,
    Refused,
    RunClosed,
    TooLarge,
    Unanswered,
    UnknownRun,
    Unreachable,
    UpdatesUsedUp,
    Wedged,
)

__all__ = ["ARGUMENT_BYTES_MAX", "PATIENCE_SECONDS", "Channel", "address_of", "server_errors"]

ARGUMENT_BYTES_MAX = 1_000_000
"""An update argument above 2 MB would wedge the run; half of that leaves room for what a codec adds."""

PATIENCE_SECONDS = 60.0
RPC_SECONDS = 15.0
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 1.0

_PASSING = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.ABORTED,
        RPCStatusCode.UNAVAILABLE,
    }
)
_OPEN = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)
_GONE = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,  # how the client library reports that our own time limit has passed
)
_CHANGED_OVER = "AcceptedUpdateCompletedWorkflow"
_NOT_YET = "not armed yet"
"""What a run refuses with these words it takes a moment later."""

_USED_UP = re.compile(r"limit on .*\btotal\b.*\bupdates\b", re.IGNORECASE)
"""The server's words when an execution has had all of its updates; that never passes by itself."""


def address_of(client: Client) -> str:
    """Where the client is connected to, for a person."""
    return client.service_client.config.target_host


@contextlib.contextmanager
def server_errors(client: Client) -> Generator[None]:
    """Turn what the connection raises into ours.

    Raises: Unreachable, Refused.
    """
    try:
        yield
    except RPCError as error:
        if _gone(error):
            raise Unreachable(f"Temporal at {address_of(client)} does not answer: {error.message}") from error
        raise Refused(f"Temporal at {address_of(client)}: {error.message}") from error


@dataclass(slots=True)
class _Patience:
    """How long to go on, with growing pauses."""

    seconds: float
    started: float = field(default_factory=time.monotonic)
    pause: float = PAUSE_SECONDS

    async def allows(self) -> bool:
        """Whether there is another try, after a pause."""
        if time.monotonic() - self.started > self.seconds:
            return False
        await asyncio.sleep(self.pause)
        self.pause = min(PAUSE_SECONDS_MAX, self.pause * 2)
        return True


class Channel:
    """Talks to one run by its workflow id, through all of its Temporal runs.

    Args:
        patience_seconds: How long to repeat what fails for a passing reason.
    """

    def __init__(self, client: Client, run_id: str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.client = client
        self.id = run_id
        self.patience_seconds = patience_seconds
        self._handle = client.get_workflow_handle(run_id)

    async def query(self, name: str, *args: object, execution: str | None = None) -> Any:
        """Ask the run, or one execution of its chain (a Temporal run id), also when it is closed.

        Raises: UnknownRun, NoWorker, Wedged, Unreachable, Refused.
        """
        handle = self.client.get_workflow_handle(self.id, run_id=execution)
        patience = _Patience(self.patience_seconds)
        while True:
            try:
                return await handle.query(name, args=args, rpc_timeout=self._rpc_timeout)
            except WorkflowQueryFailedError as error:
                raise Refused(f"query {name} of run {self.id!r}: {error.message}") from error
            except RPCError as error:
                await self._judge(error, open_only=False)
            if not await patience.allows():
                raise await self._nobody(f"query {name}")

    async def update(self, name: str, argument: object, *, id: str | None = None) -> Any:
        """Send an update once, however often it has to be repeated.

        Args:
            name: Of the update.
            argument: Plain JSON.
            id: Of this one message, up to 1,000 characters; made up without one. The run takes an id once
                and answers a repetition as it answered the first.

        Raises: TooLarge, UnknownRun, RunClosed, UpdatesUsedUp, Refused; NoWorker, Wedged, Unreachable, which
            name the id under which to repeat it.
        """
        _check_size(name, argument)
        update_id = id or str(uuid4())
        try:
            return await self._updated(name, argument, update_id)
        except Unanswered as error:
            error.update_id = update_id
            raise

    async def _updated(self, name: str, argument: object, update_id: str) -> Any:
        patience = _Patience(self.patience_seconds)
        while True:
            refusal: Refused | None = None
            try:
                return await self._handle.execute_update(
                    name, argument, id=update_id, rpc_timeout=self._rpc_timeout
                )
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                _if_cancelled()
            except WorkflowUpdateFailedError as error:
                if getattr(error.cause, "type", None) == _CHANGED_OVER:
                    await self._if_closed()
                else:
                    told = _reason(error.cause).removeprefix(f"{name}: ")
                    refusal = Refused(f"{name}: {told}")
                    if _NOT_YET not in str(refusal):
                        raise refusal from error
            except RPCError as error:
                await self._judge(error, open_only=True)
            if not await patience.allows():
                raise refusal or await self._nobody(f"update {name}")

    async def signal(self, name: str, *arguments: object) -> None:
        """Send a signal; it has arrived when this returns, and what the run makes of it is not known.

        Raises: TooLarge, UnknownRun, RunClosed, Unreachable, Refused.
        """
        for argument in arguments:
            _check_size(name, argument)
        await self._sent(self._handle.signal(name, args=arguments, rpc_timeout=self._rpc_timeout))

    async def cancel(self) -> None:
        """Ask the run to end as cancelled.

        Raises: UnknownRun, RunClosed, Unreachable, Refused.
        """
        await self._if_closed()  # the server itself takes a cancellation of a closed run, and does nothing
        await self._sent(self._handle.cancel(rpc_timeout=self._rpc_timeout))

    async def describe(self) -> WorkflowExecutionDescription:
        """What the server knows of the newest execution; needs no worker.

        Raises: UnknownRun, Unreachable, Refused.
        """
        try:
            with server_errors(self.client):
                return await self._handle.describe()
        except Refused as error:
            if _status(error.__cause__) is RPCStatusCode.NOT_FOUND:
                raise self._unknown() from error
            raise

    async def closed(self) -> bool:
        """Whether the run has ended; one that continues as new has not.

        Raises: UnknownRun, Unreachable, Refused.
        """
        return (await self.describe()).status not in _OPEN

    async def execution_before(self, execution: str | None) -> str | None:
        """The Temporal run id that `execution` (None: the newest) continues; None for the first, or one gone.

        Raises: Unreachable.
        """
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.client.namespace,
            execution=WorkflowExecution(workflow_id=self.id, run_id=execution or ""),
            maximum_page_size=1,
        )
        try:
            with server_errors(self.client):
                answer = await self.client.workflow_service.get_workflow_execution_history(
                    request, retry=True
                )
        except Refused:
            return None  # retention has deleted it
        first = answer.history.events[0].workflow_execution_started_event_attributes
        return first.continued_execution_run_id or None

    @property
    def _rpc_timeout(self) -> timedelta:
        return timedelta(seconds=min(RPC_SECONDS, max(1.0, self.patience_seconds)))

    async def _sent(self, sending: Awaitable[None]) -> None:
        """Wait for what the server alone answers.

        Raises: UnknownRun, RunClosed, Unreachable, Refused.
        """
        try:
            with server_errors(self.client):
                await sending
        except Refused as error:
            if _status(error.__cause__) is RPCStatusCode.NOT_FOUND:
                await self._if_closed()
            raise

    async def _nobody(self, what: str) -> NoWorker:
        """The error for patience used up; raises when it is the server that is gone."""
        await self.describe()
        return NoWorker(
            f"no worker answered {what} of run {self.id!r} within {self.patience_seconds:.0f} s; "
            "start one with `mainspring worker` — the run goes on where it is"
        )

    async def _judge(self, error: RPCError, *, open_only: bool) -> None:
        """Return when the fault may pass; else raise what it means."""
        if error.status not in _PASSING and not _gone(error):
            raise Refused(f"run {self.id!r}: {error.message}") from error
        if error.status is RPCStatusCode.FAILED_PRECONDITION and _USED_UP.search(error.message):
            raise UpdatesUsedUp(f"run {self.id!r} has had all of its updates: {error.message}") from error
        if "workflow task in failed state" in error.message.lower():
            raise Wedged(
                f"run {self.id!r} cannot go on: its workflow task fails; the worker's log says why"
            ) from error
        if error.status is RPCStatusCode.NOT_FOUND:
            await (self._if_closed() if open_only else self.describe())

    async def _if_closed(self) -> None:
        """Raise when the run is unknown or has ended."""
        description = await self.describe()
        if description.status not in _OPEN:
            ended = description.status.name.lower() if description.status else "closed"
            raise RunClosed(f"run {self.id!r} has ended ({ended}) and takes no more messages")

    def _unknown(self) -> UnknownRun:
        return UnknownRun(
            f"no run {self.id!r} in namespace {self.client.namespace!r} at {address_of(self.client)}"
        )


def _gone(error: RPCError) -> bool:
    """Whether the server did not answer; a connection that breaks under a call has no status of its own."""
    broken = error.status is RPCStatusCode.UNKNOWN and error.message == "transport error"
    return broken or error.status in _GONE


def _check_size(name: str, argument: object) -> None:
    try:
        size = len(json.dumps(argument, ensure_ascii=False).encode("utf-8"))
    except UnicodeEncodeError:
        raise Refused(f"{name}: it holds half of a character (a lone surrogate), which no text may") from None
    if size > ARGUMENT_BYTES_MAX:
        raise TooLarge(
            f"{name}: {size} bytes; at most {ARGUMENT_BYTES_MAX} fit a message — attach larger text as a file"
        )


def _if_cancelled() -> None:
    """The client library hides our own cancellation in its timeout error; it must not be repeated away."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _status(error: BaseException | None) -> RPCStatusCode | None:
    return error.status if isinstance(error, RPCError) else None


def _reason(cause: BaseException) -> str:
    return cause.message if isinstance(cause, ApplicationError) else str(cause)
