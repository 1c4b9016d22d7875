"""What people say to a run and ask of it. Handlers only enqueue and never wait: so no message is lost.

Source: shared design, loop.md "Talking to a run"; interfaces.md "On the wire"; temporal-facts.md 2, 3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from mainspring.workflows.shell.record import RunRecord

with workflow.unsafe.imports_passed_through():
    from mainspring.schemas.agent import BudgetPatch, BudgetSpec
    from mainspring.schemas.base import JsonValue, wire
    from mainspring.workflows import budget, events, questions, views
    from mainspring.workflows.messages import (
        SIGNALS,
        UPDATES,
        Answer,
        Extend,
        Finish,
        FollowUp,
        Interrupt,
        Message,
        Pause,
        Rejected,
        Resume,
        Steer,
        decode,
        size_of,
    )
    from mainspring.workflows.values import clip

__all__ = ["People"]

UPDATES_REMEMBERED = 500


class People(RunRecord):
    """Signals, updates and queries of a run."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: OrderedDict[str, JsonValue] = OrderedDict()
        self._extensions: list[BudgetPatch] = []

    # -- what people say ---------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take any signal. What is not understood becomes an event."""
        message = self._decode(name, args, SIGNALS)
        taken = message if isinstance(message, Rejected) else self._take(message)
        if isinstance(taken, Rejected):
            self.emit(events.SignalRejected(clip(name, 80), taken.reason))

    @workflow.update(dynamic=True)
    def on_update(self, name: str, args: Sequence[RawValue]) -> JsonValue:
        """Take an update that its validator let pass; one that is repeated gets its first answer again."""
        info = workflow.current_update_info()
        update_id = info.id if info else ""
        if update_id in self._answers:
            return self._answers[update_id]
        message = self._decode(name, args, UPDATES)
        if isinstance(message, Rejected):
            raise ApplicationError(message.reason, type="rejected", non_retryable=True)
        taken = self._take(message)
        if isinstance(taken, Rejected):
            raise ApplicationError(taken.reason, type="rejected", non_retryable=True)
        answer = self._told(message, taken)
        self._answers[update_id] = answer
        while len(self._answers) > UPDATES_REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    def _told(self, message: Message, taken: int | None) -> JsonValue:
        """What an update's sender gets."""
        if isinstance(message, Answer):
            return {"status": "answered", "question_id": message.question_id}
        return {"accepted": taken} if taken is not None else self.budget.model_dump(mode="json")

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse an update that cannot be understood or taken, before it is written to history.

        One that was taken before passes, whatever has become of what it was about: it gets its answer again.
        """
        info = workflow.current_update_info()
        if info is not None and info.id in self._answers:
            return
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
        if isinstance(message, Extend) and self.armed is None:
            return Rejected("extend_budget: the run is not armed yet; repeat it in a moment")
        if isinstance(message, Steer | FollowUp):
            return self._no_room(message) or message
        return self._unanswerable(message) or message if isinstance(message, Answer) else message

    def _unanswerable(self, answer: Answer) -> Rejected | None:
        size = len(answer.text.encode("utf-8", "replace"))
        if size > self.limits.spill_bytes:
            return Rejected(
                f"answer: text: {size} bytes; an observation holds {self.limits.spill_bytes} "
                "(limits.spill_bytes); send more as a follow_up"
            )
        match self.questions.find(answer.question_id):
            case questions.Closed(status):
                return Rejected(f"answer: question {clip(answer.question_id, 80)!r} is closed ({status})")
            case questions.Unknown(pending):
                known = ", ".join(pending) or "none"
                return Rejected(
                    f"answer: no question {clip(answer.question_id, 80)!r} waits; waiting: {known}"
                )
            case questions.Answered(question) if question.expires <= workflow.time_ns():
                return Rejected(f"answer: question {clip(question.id, 80)!r} is closed (expired)")
            case questions.Answered():
                return None

    def _no_room(self, message: Steer | FollowUp) -> Rejected | None:
        if self.inbox.waiting >= self.limits.queued_messages:
            return Rejected(f"{self.inbox.waiting} messages are queued; no more are taken")
        size = self.inbox.bytes + size_of(message)
        if size > self.limits.queued_bytes:
            return Rejected(f"queued messages would have {size} bytes; at most {self.limits.queued_bytes}")
        return None

    def _take(self, message: Message) -> int | Rejected | None:
        """Do what a message says, without waiting; the number of one that was queued."""
        refusal = self._refusal(message)
        if isinstance(refusal, Rejected):
            return refusal
        if isinstance(message, Steer | FollowUp):
            if isinstance(message, Steer) and message.interrupt:
                self.stop = self.stop or "steer"
            return self.inbox.put(message)
        self._obey(message)
        return None

    def _obey(self, message: Interrupt | Finish | Pause | Resume | Extend | Answer) -> None:
        match message:
            case Interrupt():
                self._interrupt()
            case Finish():
                self.finishing = True
            case Pause() | Resume():
                self._pause(isinstance(message, Pause))
            case Extend(more):
                self._extend(more)
            case Answer(question_id, text):
                waited = self.questions.answer(question_id, text, workflow.time_ns())
                self.emit(events.QuestionClosed(question_id, "answered", waited))
                if self.questions.settled and self.status == "acting":
                    self.show("acting")  # other calls still run, and nobody is waited for any longer

    def _interrupt(self) -> None:
        """End the exchange; between two of them it means the words that wait, and nothing where none do."""
        idle = self.exchange > 0 and not self.exchange_open and not self.inbox.waiting
        if not idle:
            self.stop = "interrupt"

    def _pause(self, paused: bool) -> None:
        if paused != self.paused:
            self.paused = paused
            self.emit(events.Paused() if paused else events.Resumed())

    def _extend(self, more: BudgetPatch) -> None:
        self._extensions.append(more)
        self.budget = budget.extend(self.budget, more)
        self.emit(events.BudgetExtended(**self.budget.model_dump()))

    def extended(self, ceilings: BudgetSpec) -> BudgetSpec:
        """A budget with everything that people have added to the run's."""
        for more in self._extensions:
            ceilings = budget.extend(ceilings, more)
        return ceilings

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
