"""`AgentRun`: one agent run. The turn loop, top to bottom as the design's page "The turn loop".

This file owns the control flow of a run and nothing else: decisions are in the pure modules beside it,
dealings with Temporal in `shell`.

Source: shared design, loop.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from mainspring.workflows.shell.failures import CallOutcome, ModelGone, Withdrawn
from mainspring.workflows.shell.outside import RunShell

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from mainspring.schemas.activities import ModelReply
    from mainspring.schemas.base import problems, unwire
    from mainspring.schemas.ledger import Entry
    from mainspring.schemas.run import RunInput
    from mainspring.schemas.tools import ToolOutcome
    from mainspring.workflows import events
    from mainspring.workflows.budget import Exhausted, Within, check, check_batch
    from mainspring.workflows.dispatch import Batch, Refused, check_calls, waves
    from mainspring.workflows.gates import Close, Facts, Redo, judge
    from mainspring.workflows.gates.output_schema import repair_text
    from mainspring.workflows.intrinsics import DONE
    from mainspring.workflows.ledger import control_entry, observation_entry, reply_entry, user_entry
    from mainspring.workflows.messages import FollowUp, Said
    from mainspring.workflows.outcomes import Ending, result_of, sentence
    from mainspring.workflows.plan import plan
    from mainspring.workflows.router import route
    from mainspring.workflows.values import clip, render, safe_text
    from mainspring.workflows.views import TurnRecord, agent_name

__all__ = ["AgentRun"]

HISTORY_EVENTS_MAX = 45_000
HISTORY_BYTES_MAX = 45_000_000
"""Short of the server's own limits (51,200 and 50 MB), at which it ends a run for good."""


@workflow.defn(name="AgentRun")
class AgentRun(RunShell):
    """An agent run. Its argument is a `RunInput`, its result a `RunResult`, both plain JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._repairs = 0
        self._empties = 0
        self._cut_replies = 0
        self._answered: Ending | None = None

    @workflow.run
    async def run(self, *args: Any) -> dict[str, Any]:
        """Run an agent to its end.

        Raises: ApplicationError, not retryable, with the outcome as its type and the `RunResult` as its
            details, when the run ends without an answer; CancelledError when it is cancelled.
        """
        self.start_clock()
        try:
            ending = await self._run(args)
        except asyncio.CancelledError:
            self._finish(Ending("cancelled", message="the run was cancelled"))
            raise
        return self._finish(ending)

    async def _run(self, args: Sequence[Any]) -> Ending:
        refused = await self._arm(args)
        if refused is not None:
            return refused
        assert self.input is not None
        request = self.input
        said: Said | None = Said(0, FollowUp(safe_text(request.prompt), request.attachments))
        while said is not None:
            ending = await self._exchange(said)
            self._close_exchange(ending)
            said = await self._next_directive(ending)
        return ending if ending.answered or request.lifetime == "single" else self._answered or ending

    # -- arm ---------------------------------------------------------------------------------------

    async def _arm(self, args: Sequence[Any]) -> Ending | None:
        """Resolve agent and catalog, once; what is refused is refused before anything is paid for."""
        try:
            self.input = _run_input(args)
            self.armed = await self.arm(self.input)
            declarations = await self.catalog_pages(self.armed)
        except ApplicationError as error:
            if error.type == "catalog_unavailable":
                return Ending("catalog_unavailable", message=error.message)
            return Ending("invalid_input", message=error.message)
        spec = self.armed.spec
        self.budget, self.limits = spec.budgets, spec.limits
        self.journal.kept = self.limits.events_kept
        self.tools = {tool.name: tool for tool in declarations}
        self.emit_first(
            events.RunStarted(
                agent=self.armed.agent,
                model=self.armed.models[0].name,
                lifetime=self.input.lifetime,
                tools=len(self.tools),
                notes=self.armed.notes,
            )
        )
        return None

    # -- exchange ----------------------------------------------------------------------------------

    async def _exchange(self, said: Said) -> Ending:
        """Work on one directive until it is answered, or cannot be."""
        self._open_exchange(said)
        while True:
            ending = await self._turn()
            if ending is not None:
                return ending

    def _open_exchange(self, said: Said) -> None:
        self.exchange += 1
        self.meter = self.meter.exchange()
        self.stop = None
        self._reset_counters()
        entry = self._append_words(said, source="prompt" if said.number == 0 else "follow_up")
        source = "prompt" if said.number == 0 else "follow_up"
        self.emit(events.ExchangeStarted(self.exchange, source, said.number, entry.seq))

    def _reset_counters(self) -> None:
        self._repairs = self._empties = self._cut_replies = 0

    def _append_words(self, said: Said, source: str) -> Entry:
        words = said.message
        seq, turn = self.ledger.length, self.meter.turns
        entry = user_entry(seq, self.exchange, turn, words.text, words.attachments, source=source)
        return self.append(entry)

    def _close_exchange(self, ending: Ending) -> None:
        self.tick()
        if ending.answered:
            self._answered = ending
        self.emit(
            events.ExchangeEnded(
                exchange=self.exchange,
                outcome=ending.outcome,
                code=ending.code,
                message=ending.message,
                answer=None if ending.answer is None else ending.answer[:2_048],
                entry=ending.entry,
            )
        )

    async def _next_directive(self, ending: Ending) -> Said | None:
        """The message that the next exchange works on; None when the run is over."""
        assert self.input is not None
        if self.input.lifetime == "single":
            goes_on = ending.answered or ending.outcome == "interrupted"
            return self.inbox.next_directive() if goes_on else None
        if ending.outcome == "security":
            return None
        idle = self.input.idle_timeout or self.limits.idle_timeout
        if not self.inbox.waiting and not self.finishing:
            await self.wait_for_person(
                "follow_up", lambda: bool(self.inbox.waiting) or self.finishing, timeout=idle
            )
        self.raise_if_cancelled()
        return self.inbox.next_directive()

    # -- turn --------------------------------------------------------------------------------------

    async def _turn(self) -> Ending | None:
        """One model reply and everything it causes; the exchange's ending, when this turn ends it."""
        self.raise_if_cancelled()
        self._drain_steering()
        exhausted = await self._exhausted(0)
        if exhausted is not None:
            return exhausted
        await self.unpaused()
        if self.stop == "interrupt":
            return self._interrupted(0)
        self._drain_steering()

        self.meter = self.meter.turn()
        self.emit(events.TurnStarted(self.exchange, self.meter.exchange_turns))
        self.offer = offer = route(list(self.tools.values()))
        self.emit(events.ToolsSelected(offer.offered, offer.universe, offer.by_source))
        planned = plan(self.ledger.length, self.context_tokens)
        self.emit(events.ContextPlanned(planned.entries, planned.shown, planned.tokens))
        assert self.armed is not None
        self.turns.append(
            TurnRecord(self.meter.turns, self.exchange, self.ledger.ref, planned.plan, offer, self.model_name)
        )

        self.show("thinking")
        try:
            called = await self.call_model(offer, planned.plan)
        except asyncio.CancelledError:
            self._account(None)
            raise
        match called:
            case Withdrawn():
                self._account(None)
                return self._interrupted(0)
            case ModelGone():
                self._account(None, counted=False)
                return self._without_model(called)
            case (reply, number):
                self._account(reply)
                return await self._reply(reply, number)

    def _drain_steering(self) -> None:
        """Steering enters the ledger after the observations, before the next model call."""
        if self.stop == "steer":
            self.stop = None
        while self.inbox.steering:
            said = self.inbox.steering.popleft()
            entry = self._append_words(said, source="steer")
            self._reset_counters()
            self.emit(events.Steered(said.number, entry.seq))

    async def _exhausted(self, calls: int) -> Ending | None:
        """The ending that a spent budget brings; where the agent waits for a top-up, wait for it first."""
        info = workflow.info()
        if (
            info.get_current_history_length() > HISTORY_EVENTS_MAX
            or info.get_current_history_size() > HISTORY_BYTES_MAX
        ):
            return Ending("budget", message="the run's history is full")
        while True:
            self.tick()
            verdict = check_batch(self.budget, self.meter, calls) if calls else check(self.budget, self.meter)
            if isinstance(verdict, Within):
                return None
            if self.limits.on_exhausted == "fail" or self.finishing:
                return _spent(verdict)
            before = self.budget
            await self.wait_for_person(
                "budget",
                lambda was=before: self.budget != was or self.finishing or self.stop == "interrupt",  # type: ignore[misc]
            )
            if self.stop == "interrupt":
                return self._interrupted(0)

    def _account(self, reply: ModelReply | None, *, counted: bool = True) -> None:
        """Bill the turn's model call; exactly one checkpoint a turn, whatever became of it."""
        self.tick()
        if counted:
            self.meter = self.meter.reply(reply.usage if reply else None)
        meter = self.meter
        self.emit(
            events.BudgetCheckpoint(
                tokens=meter.tokens,
                input_tokens=meter.input_tokens,
                output_tokens=meter.output_tokens,
                cached_tokens=meter.cached_tokens,
                dollars=meter.dollars,
                wall_ms=meter.wall_ms,
                calls=meter.tool_calls,
                first_token_ms=reply.first_token_ms if reply else None,
                model=reply.model if reply else None,
            )
        )

    def _interrupted(self, calls: int) -> Ending | None:
        """After a person withdrew what was in flight: steering goes on, an interruption ends the exchange."""
        self.emit(events.Interrupted(calls))
        if self.stop == "steer":
            return None
        told = "A person interrupted this exchange before it was answered."
        seq, turn = self.ledger.length, self.meter.turns
        self.append(control_entry(seq, self.exchange, turn, "interrupted", told))
        return Ending("interrupted", message="a person interrupted the exchange")

    def _without_model(self, gone: ModelGone) -> Ending:
        self._verdict(f"model: {gone.error}")
        if gone.error == "timeout" and not isinstance(check(self.budget, self.meter), Within):
            return Ending("budget", message=f"wall time is spent: {gone.message}")
        return Ending("refused", message=f"the model call failed for good: {gone.message}")

    def _verdict(self, text: str) -> None:
        self.turns[-1].verdicts.append(text)

    # -- reply -------------------------------------------------------------------------------------

    async def _reply(self, reply: ModelReply, number: int) -> Ending | None:
        """Judge a reply: refused, an answer, or calls."""
        prefix = workflow.info().first_execution_run_id[:8]
        call_ids = [f"{prefix}-{number + 1 + index}" for index in range(len(reply.calls))]
        seq, turn = self.ledger.length, self.meter.turns
        entry = self.append(reply_entry(seq, self.exchange, turn, reply, call_ids), n=number)
        self.last_text = reply.text or self.last_text
        refused = self._refused(reply)
        if refused is not None:
            self._answer_all(entry, "not run: the reply was refused")
            return refused
        if reply.calls:
            return await self._act(reply, entry)
        return self._judge(reply, entry)

    def _refused(self, reply: ModelReply) -> Ending | None:
        assert self.armed is not None
        if reply.finish_reason in ("refusal", "content_filter"):
            self._verdict(reply.finish_reason)
            return Ending("refused", message=f"the model refused ({reply.finish_reason})")
        if reply.usage is None and self.armed.models[self.model_index].priced:
            return Ending("unmetered", message="a priced model returned no usage")
        return None

    def _judge(self, reply: ModelReply, entry: Entry) -> Ending | None:
        """A reply without calls wants to be the answer: the gates decide, bounded."""
        repairs_left = self.limits.schema_repairs - self._repairs
        verdict = judge(Facts(reply, repairs_left, 1 - self._empties))
        if isinstance(verdict, Close):
            self._verdict(f"{verdict.gate}: close: {verdict.message}")
            return Ending(verdict.outcome, message=verdict.message, entry=entry.seq)
        if isinstance(verdict, Redo):
            return self._redo(verdict)
        if self.inbox.steering:
            self._verdict("superseded: steering arrived before the answer was committed")
            return None
        self._verdict("answer")
        return Ending(
            "completed",
            answer=reply.text,
            output=reply.output,
            entry=entry.seq,
            answer_blob=reply.text_blob,
        )

    def _redo(self, verdict: Redo) -> Ending | None:
        """Send a reply back; a redo for which no turn is left ends the exchange with the draft as partial."""
        self._verdict(f"{verdict.gate}: redo: {verdict.reason}")
        self.emit(events.GateHeld(verdict.gate, clip(verdict.reason, 300), verdict.bound_left))
        left = check(self.budget, self.meter)
        if isinstance(left, Exhausted) and self.limits.on_exhausted == "fail":
            return _spent(left)
        if verdict.kind == "schema_repair":
            self._repairs += 1
        else:
            self._empties += 1
        seq, turn = self.ledger.length, self.meter.turns
        self.append(control_entry(seq, self.exchange, turn, verdict.kind, verdict.text))
        return None

    # -- calls -------------------------------------------------------------------------------------

    async def _act(self, reply: ModelReply, entry: Entry) -> Ending | None:
        """Check the whole batch before any of it runs, dispatch, fold in the order of the calls."""
        batch = check_calls(reply.calls, entry.calls, self.tools, self.limits)
        if batch.forbidden is not None and self.limits.strict_tools:
            self._answer_all(entry, "not run: a call in this reply is not on the whitelist")
            return Ending("forbidden_tool", message=f"{clip(batch.forbidden, 256)!r} is not on the whitelist")
        if batch.done is not None:
            return self._done(batch, reply, entry)
        unfit = self._unfit(batch)
        if unfit is not None:
            self._answer_all(entry, f"not run: {unfit.message}")
            return unfit
        exhausted = await self._exhausted(len(batch.runs))
        if exhausted is not None:
            self._answer_all(entry, f"not run: {exhausted.message}")
            return exhausted
        return await self._dispatch(batch, entry)

    def _done(self, batch: Batch, reply: ModelReply, entry: Entry) -> Ending:
        """`nika:done` wins: its siblings are not run."""
        assert batch.done is not None
        result = batch.done.arguments.get("result")
        outcomes = {
            call.id: CallOutcome(
                ToolOutcome(content="Not run: nika:done ended the exchange.", is_error=True), "not_run"
            )
            for call in entry.calls
        }
        outcomes[batch.done.id] = CallOutcome(ToolOutcome(content="Accepted."), "ok")
        self._fold(entry, outcomes)
        self._verdict("done")
        answer = result if isinstance(result, str) else reply.text or render(result)
        return Ending("done", answer=answer, output=result, entry=entry.seq)

    def _unfit(self, batch: Batch) -> Ending | None:
        """A batch that uses up a bound: replies cut at the length limit, a result that misses its schema."""
        refused = [item for item in batch.items if isinstance(item, Refused)]
        cut = any(item.kind == "truncated" for item in refused)
        self._cut_replies = self._cut_replies + 1 if cut else 0
        if self._cut_replies > 1:
            return Ending("refused", message="the model's replies are cut at its length limit")
        missed = next((item for item in refused if item.call.tool == DONE and item.kind == "schema"), None)
        if missed is None:
            return None
        if self._repairs >= self.limits.schema_repairs:
            return Ending("schema", message=f"the result does not meet its schema: {missed.message}")
        self._repairs += 1
        self._verdict(f"output_schema: redo: {missed.message}")
        left = self.limits.schema_repairs - self._repairs
        self.emit(events.GateHeld("output_schema", clip(repair_text(missed.message), 300), left))
        return None

    async def _dispatch(self, batch: Batch, entry: Entry) -> Ending | None:
        self.show("acting")
        outcomes: dict[str, CallOutcome] = {
            item.call.id: CallOutcome(ToolOutcome(content=item.message, is_error=True), "refused")
            for item in batch.items
            if isinstance(item, Refused)
        }
        try:
            for wave in waves(batch.runs, self.limits.parallel_calls):
                await self.unpaused()
                if self.stop is not None:
                    break
                self.meter = self.meter.calls(len(wave))
                await self.run_calls(wave, outcomes)
        except asyncio.CancelledError:
            self._fold(entry, outcomes, otherwise="not run: the run was cancelled")
            raise
        self._fold(entry, outcomes, otherwise="not run: a person interrupted")
        self.tick()
        if any(outcome.status == "forbidden" for outcome in outcomes.values()):
            return Ending("security", message="a tool refused a call for good")
        if self.stop is not None:
            return self._interrupted(len(batch.runs))
        return None

    def _answer_all(self, entry: Entry, why: str) -> None:
        """Every call has exactly one observation, also one that never ran."""
        self._fold(entry, {}, otherwise=why)

    def _fold(self, entry: Entry, outcomes: dict[str, CallOutcome], otherwise: str = "not run") -> None:
        """Append the observations in the order of the calls, as if they had run one after the other."""
        for call in entry.calls:
            found = outcomes.get(call.id) or CallOutcome(
                ToolOutcome(content=f"{otherwise[0].upper()}{otherwise[1:]}.", is_error=True), "not_run"
            )
            seq, turn = self.ledger.length, self.meter.turns
            observation = observation_entry(
                seq, self.exchange, turn, call.id, call.tool, found.outcome, self.limits.spill_bytes
            )
            self.append(observation, n=found.n)
            self.emit(
                events.ToolCompleted(
                    call_id=call.id,
                    tool=call.tool,
                    status=found.status,
                    ms=found.ms,
                    bytes=len(render(observation.content)),
                    spilled=observation.spilled is not None,
                )
            )

    # -- end ---------------------------------------------------------------------------------------

    def _finish(self, ending: Ending) -> dict[str, Any]:
        """The run's result; raised as a typed failure when there is no answer."""
        if not self.journal.next_seq:
            self.emit_first(events.RunStarted(agent=agent_name(self.input) if self.input else "?"))
        self.tick()
        unanswered = tuple(said.message.text for said in (*self.inbox.steering, *self.inbox.follow_ups))
        self.outcome = ending.outcome
        self.emit(
            events.Finished(
                outcome=ending.outcome,
                code=ending.code,
                message=ending.message,
                exchanges=self.exchange,
                unanswered=len(unanswered),
            )
        )
        self.show("closed")
        result = result_of(
            ending,
            partial=self.last_text,
            spend=self.meter.spend(),
            exchanges=self.exchange,
            unanswered=unanswered,
        ).model_dump(mode="json")
        if not ending.answered and ending.outcome != "cancelled":
            raise ApplicationError(sentence(ending), result, type=ending.outcome, non_retryable=True)
        return result


def _run_input(args: Sequence[Any]) -> RunInput:
    """The run's argument.

    Raises: ApplicationError(invalid_input), naming the field, the value and what is allowed.
    """
    if len(args) != 1 or not isinstance(args[0], dict):
        kinds = ", ".join(type(arg).__name__ for arg in args) or "none"
        told = f"AgentRun takes one JSON object, for example {{'agent': …, 'prompt': …}}; given: {kinds}"
        raise ApplicationError(told, type="invalid_input", non_retryable=True)
    try:
        return unwire(RunInput, args[0])
    except ValidationError as error:
        raise ApplicationError(
            safe_text(problems(error)), type="invalid_input", non_retryable=True
        ) from error


def _spent(verdict: Exhausted) -> Ending:
    if verdict.dimension == "turns":
        return Ending("max_turns", message=verdict.message)
    return Ending("budget", message=f"{verdict.dimension}: {verdict.message}")
