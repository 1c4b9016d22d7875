"""What of a run touches Temporal, apart from the loop: activities, messages, queries, status.

`RunShell` carries the state of a run and does what the loop in `agent_run.py` asks for. It decides nothing:
the decisions are in the pure modules. Handlers only enqueue and never wait, so that no message is lost.

Source: shared design, loop.md "Talking to a run"; temporal-facts.md 2, 3, 5, 6.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, SearchAttributeKey
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutType,
    is_cancelled_exception,
)
from temporalio.exceptions import TimeoutError as TimedOut

with workflow.unsafe.imports_passed_through():
    from mainspring.schemas import errors
    from mainspring.schemas.activities import Armed, ModelReply, ModelRequest
    from mainspring.schemas.agent import BudgetSpec, LimitSpec
    from mainspring.schemas.base import JsonValue, unwire, wire
    from mainspring.schemas.ledger import Entry, NewEntry, Plan
    from mainspring.schemas.run import RunInput
    from mainspring.schemas.tools import ToolDeclaration, ToolOutcome
    from mainspring.workflows import budget, events, views
    from mainspring.workflows.dispatch import Run, attempts, summary
    from mainspring.workflows.ledger import Ledger
    from mainspring.workflows.messages import (
        SIGNALS,
        UPDATES,
        Extend,
        Finish,
        FollowUp,
        Inbox,
        Interrupt,
        Message,
        Pause,
        Rejected,
        Resume,
        Steer,
        decode,
    )
    from mainspring.workflows.router import Offer
    from mainspring.workflows.values import clip, safe_value

__all__ = ["CallOutcome", "ModelGone", "RunShell", "Withdrawn"]

INLINE_BYTES = 2_048
"""An entry up to this size rides along whole in a model request; a larger one is read by query."""
NEW_MAX = 200
UPDATES_REMEMBERED = 500
ATTRIBUTE_CHARACTERS = 200
ATTRIBUTES_EVERY_TURNS = 20
PAUSE_SECONDS_MAX = 60.0
SPILL_BYTES_DEFAULT = 16_384
CALL_TOOL = "mainspring.call_tool"
"""The plain activity that serves MCP tools by name, where a worker's dynamic activity is the user's own."""

CallStatus = Literal["ok", "error", "refused", "not_run", "interrupted", "unknown", "forbidden"]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What became of one call. `n` is the number of the activity whose result it is, if it is one's."""

    outcome: ToolOutcome
    status: CallStatus
    ms: int = 0
    n: int | None = None


@dataclass(frozen=True, slots=True)
class ModelGone:
    """The model call failed for good, on every model there was."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A person withdrew what was in flight."""


class RunShell:
    """State of a run, and its dealings with Temporal."""

    def __init__(self) -> None:
        self.input: RunInput | None = None
        self.armed: Armed | None = None
        self.tools: dict[str, ToolDeclaration] = {}
        self.budget = BudgetSpec()
        self.limits = LimitSpec()
        self.meter = budget.Meter()
        self.ledger = Ledger()
        self.context_tokens = 0
        self.journal = events.Journal()
        self.inbox = Inbox()
        self.turns: list[views.TurnRecord] = []
        self.exchange = 0
        self.offer: Offer | None = None
        self.status = "thinking"
        self.awaiting = "none"
        self.outcome: str | None = None
        self.last_text = ""
        self.paused = False
        self.finishing = False
        self.stop: Literal["interrupt", "steer"] | None = None
        self._withheld: list[events.Event] | None = []
        self._new: list[NewEntry] = []
        self._number = 0
        self._model = 0
        self._started_ns = 0
        self._waited_ns = 0
        self._answers: OrderedDict[str, JsonValue] = OrderedDict()
        self._shown: dict[str, JsonValue] = {}

    @property
    def model_index(self) -> int:
        """The model in use: 0, or a fallback."""
        return self._model

    @property
    def model_name(self) -> str:
        """Its name in the configuration."""
        return self.armed.models[self._model].name if self.armed else ""

    # -- time and identity -------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Wall time counts from here."""
        self._started_ns = workflow.time_ns()

    def tick(self) -> None:
        """Bring the spend's wall time up to date."""
        elapsed = workflow.time_ns() - self._started_ns
        self.meter = views.with_wall(self.meter, budget.wall_ms(elapsed, self._waited_ns))

    def next_id(self) -> tuple[str, int]:
        """The next activity or call id of the chain of this run, and its number."""
        number = self._number
        self._number += 1
        return f"{workflow.info().first_execution_run_id[:8]}-{number}", number

    def raise_if_cancelled(self) -> None:
        """A cancellation that an activity's failure hid would be lost: look for it where it matters."""
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    # -- events and status -------------------------------------------------------------------------

    def emit(self, event: events.Event) -> None:
        """Record an event. Until the run has started they are withheld: `RunStarted` comes first."""
        if self._withheld is not None:
            self._withheld.append(event)
            return
        at = workflow.now().isoformat(timespec="milliseconds")
        self.journal.append(event, self.meter.turns, at)

    def emit_first(self, event: events.RunStarted) -> None:
        """Record the first event, then those that were withheld."""
        withheld, self._withheld = self._withheld or [], None
        self.emit(event)
        for earlier in withheld:
            self.emit(earlier)

    def show(self, status: str, awaiting: str = "none") -> None:
        """Set the status; the server is told of what a person would look for, not of every turn."""
        self.status, self.awaiting = status, awaiting
        settled = ("waiting", "closed")
        told = self._shown.get("MainspringStatus")
        if told is None or status in settled or told in settled or self._due():
            self._upsert()
        workflow.set_current_details(views.details(self))

    def _due(self) -> bool:
        return self.status == "acting" and self.meter.turns % ATTRIBUTES_EVERY_TURNS == 0

    def _upsert(self) -> None:
        armed = self.armed
        if armed is None or not armed.search_attributes:
            return
        wanted: dict[str, JsonValue] = {
            "MainspringAgent": clip(armed.agent, ATTRIBUTE_CHARACTERS),
            "MainspringStatus": self.status,
            "MainspringAwaiting": self.awaiting,
            "MainspringOutcome": self.outcome,
            "MainspringTurns": self.meter.turns,
            "MainspringTokens": self.meter.input_tokens + self.meter.output_tokens,
        }
        changed = {
            name: value
            for name, value in wanted.items()
            if value is not None and name in armed.search_attributes and self._shown.get(name) != value
        }
        if changed:
            self._shown.update(changed)
            workflow.upsert_search_attributes(
                [
                    SearchAttributeKey.for_int(name).value_set(value)
                    if isinstance(value, int)
                    else SearchAttributeKey.for_keyword(name).value_set(str(value))
                    for name, value in changed.items()
                ]
            )

    # -- ledger ------------------------------------------------------------------------------------

    def append(self, entry: Entry, n: int | None = None) -> Entry:
        """Append an entry, and note how the next model call learns of it."""
        self.ledger.append(entry)
        self.context_tokens += entry.tokens_estimate
        elsewhere = (entry.exchange != self.exchange) or None
        if n is not None:
            new = NewEntry(seq=entry.seq, n=n, turn=entry.turn, exchange=elsewhere and entry.exchange)
        elif _small(entry):
            new = NewEntry(seq=entry.seq, entry=entry)
        else:
            new = NewEntry(seq=entry.seq)
        self._new = [*self._new[-NEW_MAX:], new]
        return entry

    # -- waiting -----------------------------------------------------------------------------------

    async def wait_for_person(
        self, awaiting: str, ready: Callable[[], bool], timeout: float | None = None
    ) -> bool:
        """Wait durably until `ready`; False when the time is up. Not billed as wall time."""
        if ready():
            return True
        before, began = self.status, workflow.time_ns()
        self.show("waiting", awaiting)
        try:
            await workflow.wait_condition(ready, timeout=timeout)
        except TimeoutError:
            return False
        finally:
            self._waited_ns += workflow.time_ns() - began
        self.show(before)
        return True

    async def unpaused(self) -> None:
        """Wait while a person has paused the run; an interruption ends the wait."""
        if self.paused:
            await self.wait_for_person("resume", lambda: not self.paused or self.stop is not None)

    async def settle(self, handles: Sequence[workflow.ActivityHandle[Any]], grace: float) -> None:
        """Wait until all are done, or until a person withdraws them: then cancel, and wait `grace` seconds.

        Raises: asyncio.CancelledError, after the same, when the run is cancelled.
        """

        def done() -> bool:
            return all(handle.done() for handle in handles)

        try:
            await workflow.wait_condition(lambda: self.stop is not None or done())
        except asyncio.CancelledError:
            await self._cancel(handles, grace)
            raise
        if not done():
            await self._cancel(handles, grace)

    async def _cancel(self, handles: Sequence[workflow.ActivityHandle[Any]], grace: float) -> None:
        pending = [handle for handle in handles if not handle.done()]
        for handle in pending:
            handle.cancel()
        if pending and grace > 0:
            try:
                await workflow.wait_condition(lambda: all(handle.done() for handle in pending), timeout=grace)
            except TimeoutError:
                return

    # -- activities --------------------------------------------------------------------------------

    async def arm(self, request: RunInput) -> Armed:
        """Resolve agent and catalog, once.

        Raises: ApplicationError with the type `invalid_input` or `catalog_unavailable`; ActivityError.
        """
        try:
            result: dict[str, Any] = await workflow.execute_activity(
                "mainspring.arm",
                {"input": wire(request)},
                start_to_close_timeout=timedelta(seconds=120),
                schedule_to_close_timeout=timedelta(seconds=600),
                retry_policy=RetryPolicy(maximum_attempts=5, maximum_interval=timedelta(seconds=20)),
                summary=clip(f"arm {views.agent_name(request)}", 100),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause = error.cause
            known = (errors.INVALID_INPUT, errors.CATALOG_UNAVAILABLE)
            if isinstance(cause, ApplicationError) and cause.type in known:
                raise cause from error
            told = clip(str(cause or error), 500)
            raise ApplicationError(f"arming failed: {told}", type=errors.CATALOG_UNAVAILABLE) from error
        return unwire(Armed, result)

    async def catalog_pages(self, armed: Armed) -> list[ToolDeclaration]:
        """Declarations of a catalog that is too large for one record."""
        if armed.tools is not None:
            return [tool.declaration for tool in armed.tools]
        declarations: list[ToolDeclaration] = []
        for page in range(armed.catalog_pages):
            result: dict[str, Any] = await workflow.execute_activity(
                "mainspring.catalog_page",
                args=[wire(armed.catalog_blob) if armed.catalog_blob else None, page],
                start_to_close_timeout=timedelta(seconds=60),
                retry_policy=RetryPolicy(maximum_attempts=5),
            )
            declarations += [unwire(ToolDeclaration, item) for item in result["tools"]]
        return declarations

    async def call_model(self, offer: Offer, plan: Plan) -> tuple[ModelReply, int] | ModelGone | Withdrawn:
        """Call the model, then its fallbacks; the reply comes with its number.

        Raises: asyncio.CancelledError, when the run is cancelled.
        """
        armed = self.armed
        assert armed is not None
        while True:
            called = await self._call_model(armed, offer, plan)
            if not isinstance(called, ModelGone):
                return called
            failed = armed.models[self._model].name
            more = self._model + 1 < len(armed.models) and called.error in _FALLBACK
            fallback = armed.models[self._model + 1].name if more else None
            self.emit(events.ModelFailed(failed, called.error, clip(called.message, 300), fallback))
            if fallback is None:
                return called
            self._model += 1

    async def _call_model(
        self, armed: Armed, offer: Offer, plan: Plan
    ) -> tuple[ModelReply, int] | ModelGone | Withdrawn:
        activity_id, number = self.next_id()
        request = ModelRequest(
            armed=armed.digest,
            call=self.meter.model_calls,
            turn=self.meter.turns,
            exchange=self.exchange,
            ledger=self.ledger.ref,
            new=tuple(self._compact(new) for new in self._new),
            plan=plan,
            offered=offer.names,
            model=self._model,
        )
        model = armed.models[self._model]
        whole = self.limits.model_timeout * 2
        if self.budget.wall is not None:
            whole = min(whole, max(0.001, self.budget.wall - self.meter.wall_ms / 1000))
        handle = workflow.start_activity(
            "mainspring.call_model",
            wire(request),
            activity_id=activity_id,
            start_to_close_timeout=timedelta(seconds=min(self.limits.model_timeout, whole)),
            schedule_to_close_timeout=timedelta(seconds=whole),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(
                maximum_attempts=self.limits.model_attempts,
                maximum_interval=timedelta(seconds=PAUSE_SECONDS_MAX),
            ),
            summary=clip(f"turn {self.meter.turns} · {model.name}", 100),
        )
        await self.settle([handle], grace=0)
        if not handle.done():
            return Withdrawn()
        failure = handle.exception()
        if failure is None:
            reply = unwire(ModelReply, handle.result())
            self._new = []
            self._number += len(reply.calls)
            return reply, number
        if is_cancelled_exception(failure):
            self.raise_if_cancelled()
            return Withdrawn()
        return _model_gone(failure)

    def _compact(self, new: NewEntry) -> NewEntry:
        """Leave out what the activity can infer."""
        if new.turn is not None and new.turn == self.meter.turns - 1:
            return new.model_copy(update={"turn": None})
        return new

    async def run_calls(self, wave: Sequence[Run], into: dict[str, CallOutcome]) -> None:
        """Run a wave of calls at once and note what became of each, by call id.

        Raises: asyncio.CancelledError, when the run is cancelled; `into` is filled first.
        """
        handles: dict[str, workflow.ActivityHandle[Any]] = {}
        ended: dict[str, int] = {}
        began = workflow.time_ns()
        for run in wave:
            handle = self._start_call(run)
            handle.add_done_callback(_note_end(ended, run.call.id))
            handles[run.call.id] = handle
        try:
            await self.settle(list(handles.values()), grace=self.limits.cancel_grace)
        finally:
            for run in wave:
                took = ended.get(run.call.id, began) - began
                into[run.call.id] = self._call_outcome(run, handles[run.call.id], -(-took // 1_000_000))

    def _start_call(self, run: Run) -> workflow.ActivityHandle[Any]:
        tool = run.tool
        wall_left = None if self.budget.wall is None else self.budget.wall - self.meter.wall_ms / 1000
        bounds = attempts(tool, wall_left)
        arguments: list[Any] = [run.call.arguments]
        if tool.activity == CALL_TOOL:
            arguments.insert(0, tool.name)
        if tool.source != "activity" and self.limits.spill_bytes != SPILL_BYTES_DEFAULT:
            arguments.append({"spill_bytes": self.limits.spill_bytes})
        return workflow.start_activity(
            tool.activity or tool.name,
            args=arguments,
            activity_id=run.call.id,
            task_queue=tool.task_queue,
            start_to_close_timeout=timedelta(seconds=bounds.start_to_close),
            schedule_to_close_timeout=timedelta(seconds=bounds.schedule_to_close),
            heartbeat_timeout=None if bounds.heartbeat is None else timedelta(seconds=bounds.heartbeat),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            retry_policy=RetryPolicy(
                maximum_attempts=bounds.attempts, maximum_interval=timedelta(seconds=30)
            ),
            summary=summary(self.meter.turns, run.call),
        )

    def _call_outcome(self, run: Run, handle: workflow.ActivityHandle[Any], ms: int) -> CallOutcome:
        if not handle.done():
            return CallOutcome(_unknown("it was interrupted"), "unknown", ms)
        failure = handle.exception()
        if failure is not None:
            return _failed_call(run, failure, ms)
        result = handle.result()
        if run.tool.source == "activity":
            content = safe_value(result, depth=self.limits.depth)
            return CallOutcome(ToolOutcome(content=content), "ok", ms)
        outcome = unwire(ToolOutcome, result)
        number = int(run.call.id.rpartition("-")[2])
        return CallOutcome(outcome, "error" if outcome.is_error else "ok", ms, number)

    # -- what people say ---------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take any signal. What is not understood becomes an event."""
        message = self._decode(name, args, SIGNALS)
        if not isinstance(message, Rejected):
            message = self._take(message)
        if isinstance(message, Rejected):
            self.emit(events.SignalRejected(clip(name, 80), message.reason))

    @workflow.update(dynamic=True)
    def on_update(self, name: str, args: Sequence[RawValue]) -> JsonValue:
        """Take an update that its validator let pass; one that is repeated gets its first answer again."""
        info = workflow.current_update_info()
        update_id = info.id if info else ""
        if update_id in self._answers:
            return self._answers[update_id]
        message = self._decode(name, args, UPDATES)
        taken = message if isinstance(message, Rejected) else self._take(message)
        if isinstance(taken, Rejected):
            raise ApplicationError(taken.reason, type="rejected", non_retryable=True)
        answer: JsonValue = (
            {"accepted": taken} if isinstance(taken, int) else self.budget.model_dump(mode="json")
        )
        self._answers[update_id] = answer
        while len(self._answers) > UPDATES_REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse an update that cannot be understood or taken, before it is written to history."""
        message = self._decode(name, args, UPDATES)
        if not isinstance(message, Rejected):
            message = self._refusal(message)
        if isinstance(message, Rejected):
            raise ApplicationError(message.reason, type="rejected", non_retryable=True)

    def _decode(self, name: str, args: Sequence[RawValue], known: Sequence[str]) -> Message | Rejected:
        decoded: list[object] = []
        for value in args:
            try:
                decoded.append(workflow.payload_converter().from_payload(value.payload))
            except Exception as error:
                return Rejected(f"{clip(name, 80)}: the argument cannot be decoded ({type(error).__name__})")
        if name not in known:
            return Rejected(f"{clip(name, 80)!r} is not known here; known: {', '.join(known)}")
        return decode(name, decoded, message_bytes=self.limits.message_bytes)

    def _refusal(self, message: Message) -> Message | Rejected:
        """The message, or why it cannot be taken now."""
        if self.outcome is not None:
            return Rejected(f"the run has ended ({self.outcome})")
        queued = isinstance(message, Steer | FollowUp)
        if queued and self.inbox.waiting >= self.limits.queued_messages:
            return Rejected(f"{self.inbox.waiting} messages are queued; no more are taken")
        return message

    def _take(self, message: Message) -> int | Rejected | None:
        """Do what a message says, without waiting; the number of one that was queued."""
        refusal = self._refusal(message)
        if isinstance(refusal, Rejected):
            return refusal
        match message:
            case Steer() | FollowUp():
                if isinstance(message, Steer) and message.interrupt:
                    self.stop = self.stop or "steer"
                return self.inbox.put(message)
            case Interrupt():
                self.stop = "interrupt"
            case Finish():
                self.finishing = True
            case Pause() | Resume():
                self._pause(isinstance(message, Pause))
            case Extend(more):
                self._extend(more)
        return None

    def _pause(self, paused: bool) -> None:
        if paused != self.paused:
            self.paused = paused
            self.emit(events.Paused() if paused else events.Resumed())

    def _extend(self, more: Any) -> None:
        self.budget = budget.extend(self.budget, more)
        self.emit(events.BudgetExtended(**self.budget.model_dump()))

    # -- what people ask ---------------------------------------------------------------------------

    @workflow.query(name="state")
    def query_state(self) -> dict[str, Any]:
        """Status, turn, spend and what is left, what is queued, the last text."""
        return views.state(self)

    @workflow.query(name="events")
    def query_events(self, start: JsonValue = 0) -> list[dict[str, Any]]:
        """Events from a sequence number on, in pages below 1 MB."""
        return self.journal.page(views.number(start))

    @workflow.query(name="transcript")
    def query_transcript(self, window: JsonValue = None) -> list[dict[str, Any]]:
        """Ledger entries `{"from": 0, "limit": 200}`, in pages below 1 MB."""
        start, limit = views.window(window)
        return self.ledger.page(start, limit)

    @workflow.query(name="explain")
    def query_explain(self, turn: JsonValue = None) -> dict[str, Any]:
        """Why this offer, this plan, these verdicts; and the request's messages. Default: the newest turn."""
        return views.explain(self, turn)

    @workflow.query(name="catalog")
    def query_catalog(self, digest: JsonValue = None) -> dict[str, Any]:
        """Tool definitions of the run, by the digest of its arming record or without one."""
        return views.catalog(self, digest)

    @workflow.query(name="armed")
    def query_armed(self) -> dict[str, Any]:
        """The arming record: what the run works with, whatever the configuration says now."""
        return {} if self.armed is None else wire(self.armed)


_FALLBACK = frozenset(
    {
        errors.MODEL_RATE_LIMITED,
        errors.MODEL_UNAVAILABLE,
        errors.MODEL_REJECTED,
        errors.MODEL_MISCONFIGURED,
        "timeout",
    }
)


def _small(entry: Entry) -> bool:
    return (
        isinstance(entry.content, str)
        and len(entry.content) <= INLINE_BYTES
        and not entry.calls
        and not entry.attachments
    )


def _note_end(ended: dict[str, int], call_id: str) -> Callable[[Any], None]:
    def note(_: Any) -> None:
        ended[call_id] = workflow.time_ns()

    return note


def _model_gone(failure: BaseException) -> ModelGone:
    cause = failure.cause if isinstance(failure, ActivityError) else failure
    if isinstance(cause, ApplicationError):
        return ModelGone(cause.type or errors.MODEL_UNAVAILABLE, cause.message)
    if isinstance(cause, TimedOut):
        kind = cause.type.name.lower() if cause.type else "timeout"
        return ModelGone("timeout", f"the model call ran out of time ({kind})")
    return ModelGone(errors.MODEL_UNAVAILABLE, str(cause or failure))


def _failed_call(run: Run, failure: BaseException, ms: int) -> CallOutcome:
    """A call whose activity failed, as an observation that says what is known of its effect."""
    cause = failure.cause if isinstance(failure, ActivityError) else failure
    if is_cancelled_exception(failure):
        told = "Interrupted while it ran; whether it took effect is unknown. Verify before repeating."
        return CallOutcome(ToolOutcome(content=told, is_error=True), "interrupted", ms)
    if isinstance(cause, TimedOut):
        return _timed_out(run, cause, ms)
    if isinstance(cause, ApplicationError):
        status: CallStatus = "forbidden" if cause.type == errors.TOOL_FORBIDDEN else "error"
        told = clip(cause.message, 2_000) or cause.type or "the tool failed"
        label = f"{cause.type}: " if cause.type and cause.type not in told else ""
        return CallOutcome(ToolOutcome(content=f"{label}{told}", is_error=True), status, ms)
    told = clip(str(cause or failure), 2_000)
    return CallOutcome(ToolOutcome(content=told, is_error=True), "error", ms)


def _timed_out(run: Run, cause: TimedOut, ms: int) -> CallOutcome:
    if cause.type == TimeoutType.SCHEDULE_TO_START:
        told = "Not started: no worker took it in time."
        return CallOutcome(ToolOutcome(content=told, is_error=True), "not_run", ms)
    if run.tool.effects in ("none", "read"):
        told = f"Timed out: no result within {run.tool.timeout:g} s an attempt."
        return CallOutcome(ToolOutcome(content=told, is_error=True), "error", ms)
    return CallOutcome(_unknown("it was lost or timed out"), "unknown", ms)


def _unknown(why: str) -> ToolOutcome:
    told = f"Outcome unknown ({why}): it may or may not have happened. Verify before repeating."
    return ToolOutcome(content=told, is_error=True)
