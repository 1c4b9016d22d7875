"""`AgentRun`: one agent run. The turn loop, top to bottom as the design's page "The turn loop".

This file owns the control flow of a run and nothing else: decisions are in the pure modules beside it, what a
run carries, records, hears and has done outside is in `shell`.

Source: shared design, loop.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from mainspring.workflows.shell.failures import CallOutcome, ModelGone, Withdrawn
from mainspring.workflows.shell.served import ServedCalls

with workflow.unsafe.imports_passed_through():
    from mainspring.schemas.activities import Armed, ModelReply
    from mainspring.schemas.ledger import Entry, EntryCall
    from mainspring.schemas.run import RunInput
    from mainspring.schemas.tools import ToolOutcome
    from mainspring.workflows import events, guard
    from mainspring.workflows.budget import Exhausted, Within, check, check_batch, check_spend
    from mainspring.workflows.dispatch import Batch, Refused, check_calls, waves
    from mainspring.workflows.gates import Close, Facts, Pass, Redo, empty_reply, judge
    from mainspring.workflows.gates.output_schema import judge_output
    from mainspring.workflows.intrinsics import DONE
    from mainspring.workflows.messages import FollowUp, Rejected, Said
    from mainspring.workflows.outcomes import Ending, result_of, sentence
    from mainspring.workflows.plan import plan
    from mainspring.workflows.router import Offer, everything, query, recent, route, universe
    from mainspring.workflows.run_input import read_input
    from mainspring.workflows.values import clip, render, safe_text
    from mainspring.workflows.views import agent_name, differences

__all__ = ["AgentRun"]

HISTORY_EVENTS_MAX = 45_000
HISTORY_BYTES_MAX = 45_000_000
"""Short of the server's own limits (51,200 and 50 MB), at which it ends a run for good."""


@workflow.defn(name="AgentRun", sandboxed=False)
class AgentRun(ServedCalls):
    """An agent run. Its argument is a `RunInput`, its result a `RunResult`, both plain JSON."""

    def __init__(self) -> None:
        super().__init__()
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
        except (asyncio.CancelledError, FailureError) as error:
            if is_cancelled_exception(error):
                self._finish(Ending("cancelled", message="the run was cancelled"))
                raise
            ending = Ending("refused", message=f"the run failed: {error}")
        result = self._finish(ending)
        if not ending.answered:
            raise ApplicationError(sentence(ending), result, type=ending.outcome, non_retryable=True)
        return result

    async def _run(self, args: Sequence[Any]) -> Ending:
        """Arm; then one exchange after the other, until there is nothing left to answer."""
        try:
            self.input = request = _run_input(args)
            self._take_up(await self.arm(request))
        except ApplicationError as error:
            refused = error.type == "catalog_unavailable"
            return Ending("catalog_unavailable" if refused else "invalid_input", message=error.message)
        self._start()
        said: Said | None = Said(0, FollowUp(safe_text(request.prompt), request.attachments))
        while said is not None:
            ending = await self._exchange(said)
            self._answered = ending if ending.answered else self._answered
            said = await self._next_directive(request, ending)
        return ending if request.lifetime == "single" else self._answered or ending

    # -- arm ---------------------------------------------------------------------------------------

    def _take_up(self, armed: Armed) -> None:
        """Work with this record from here on."""
        self.armed = armed
        self.budget, self.limits = self.extended(armed.spec.budgets), armed.spec.limits
        self.tools = {tool.name: tool for tool in self.declarations}
        self.universe = universe(self.declarations)
        self.journal.kept = self.limits.events_kept

    def _start(self) -> None:
        assert self.input is not None
        armed = self.armed
        self.emit_first(
            events.RunStarted(
                agent=armed.agent if armed else agent_name(self.input),
                model=self.model_name or None,
                lifetime=self.input.lifetime,
                tools=len(self.tools),
                notes=armed.notes if armed else (),
            )
        )

    async def _refresh(self) -> None:
        """Take up a changed configuration, where the agent opted in; a refused one changes nothing."""
        before, request = self.armed, self.input
        assert before is not None
        assert request is not None
        if before.spec.refresh != "exchange":
            return
        try:
            armed = await self.arm(request)
        except ApplicationError as error:
            self.emit(events.ConfigurationRefreshed((), refused=clip(error.message, 300)))
            return
        if armed.digest != before.digest:
            self._take_up(armed)
            self.emit(events.ConfigurationRefreshed(differences(before, armed)))

    # -- exchange ----------------------------------------------------------------------------------

    async def _exchange(self, said: Said) -> Ending:
        """Work on one directive until it is answered, or cannot be."""
        self.model_index = 0
        self._cut_replies = 0
        self.redos.clear()
        self.guard = guard.fresh(self.spec.guard) if self.decides(2) else None
        self.searches, self.offer = 0, None
        self.exchange_opened(said)
        ending: Ending | None = None
        while ending is None:
            ending = await self._turn()
        if ending.outcome == "interrupted":
            self.control("interrupted", "A person interrupted this exchange before it was answered.")
        self.exchange_closed(ending)
        return ending

    async def _next_directive(self, request: RunInput, ending: Ending) -> Said | None:
        """The message that the next exchange works on; None when the run is over."""
        self.raise_if_cancelled()
        if ending.outcome == "security" or self._history_full():
            return None
        self.stop = None  # what interrupted before was meant for the exchange that has ended
        if request.lifetime == "conversation":
            await self.wait_for_person(
                "follow_up",
                lambda: bool(self.inbox.waiting) or self.finishing or self._history_full(),
                timeout=request.idle_timeout or self.limits.idle_timeout,
            )
        elif not (ending.answered or ending.outcome == "interrupted"):
            return None
        if self.inbox.waiting:
            await self._refresh()
        self.raise_if_cancelled()
        return self.inbox.next_directive()

    # -- turn --------------------------------------------------------------------------------------

    async def _turn(self) -> Ending | None:
        """One model reply and everything it causes; the exchange's ending, when this turn ends it."""
        self.raise_if_cancelled()
        self._drain_steering()
        ending = await self._exhausted()
        if ending is not None:
            return ending
        while self.paused and self.stop != "interrupt":
            self._drain_steering()
            await self.unpaused()
        if self.stop == "interrupt":
            return self._withdrawn(0)
        self._drain_steering()

        self.turn_started()
        offer = self._route()
        planned = plan(self.ledger.length, self.context_tokens)
        self.request_made(offer, planned)
        self.show("thinking")
        try:
            called = await self.call_model(offer, planned.plan)
        except asyncio.CancelledError:
            self.billed(None)
            raise
        match called:
            case Withdrawn():
                self.billed(None)
                return self._withdrawn(0)
            case ModelGone():
                self.billed(None, counted=False)
                return self._without_model(called)
            case (reply, number):
                self.billed(reply)
                return await self._replied(reply, self.replied(reply, number))

    def _route(self) -> Offer:
        """What of the catalog this turn's request offers."""
        turn, spec = self.meter.turns, self.spec.routing
        if not self.decides(2) or len(self.universe) < spec.threshold:
            return everything(self.universe)
        kept = self.offer.names if spec.sticky and self.offer is not None else None
        words = query(self.directive, self.last_text, self.ledger.newest_observations())
        widen, self.widen = self.widen, False
        return route(self.universe, spec, words, recent(self.used, turn), kept=kept, widen=widen)

    def _drain_steering(self) -> None:
        """Steering enters the ledger after the observations, before the next model call; redos start anew."""
        if self.stop == "steer":
            self.stop = None
        while (said := self.inbox.next_steering()) is not None:
            self.steered(said)
            self.redos.clear()

    async def _exhausted(self, calls: int = 0) -> Ending | None:
        """The ending that a spent budget brings; where the agent waits for a top-up, after waiting for it."""
        if self._history_full():
            return Ending("budget", message="the run's history is full")
        while True:
            self.tick()
            verdict = check_batch(self.budget, self.meter, calls) if calls else check(self.budget, self.meter)
            if isinstance(verdict, Within):
                return None
            if self.limits.on_exhausted == "fail" or self.finishing:
                return _spent(verdict)
            await self.wait_for_top_up()
            if self.stop == "interrupt":
                return self._withdrawn(0)

    def _history_full(self) -> bool:
        info = workflow.info()
        events_full = info.get_current_history_length() > HISTORY_EVENTS_MAX
        return events_full or info.get_current_history_size() > HISTORY_BYTES_MAX

    def _withdrawn(self, calls: int) -> Ending | None:
        """After a person withdrew what was in flight: steering goes on, an interruption ends the exchange."""
        self.interrupted(calls)
        if self.stop == "steer":
            return None
        return Ending("interrupted", message="a person interrupted the exchange")

    def _without_model(self, gone: ModelGone) -> Ending | None:
        """No reply came. Where wall time ran out and the agent waits, the next turn waits for a top-up."""
        self.verdict(f"model: {gone.error}")
        if gone.error == "timeout" and isinstance(check_spend(self.budget, self.meter), Exhausted):
            if self.limits.on_exhausted == "wait":
                return None
            return Ending("budget", message=f"wall time is spent: {gone.message}")
        return Ending("refused", message=f"the model call failed for good: {gone.message}")

    # -- reply -------------------------------------------------------------------------------------

    async def _replied(self, reply: ModelReply, entry: Entry) -> Ending | None:
        """Judge a reply: refused, calls, or what wants to be the answer."""
        refused = self._refused(reply)
        if refused is not None:
            self.fold(entry, {}, "Not run: the reply was refused.")
            return refused
        if reply.calls:
            return await self._act(reply, entry)
        return self._judge(reply, entry)

    def _refused(self, reply: ModelReply) -> Ending | None:
        assert self.armed is not None
        if reply.finish_reason in ("refusal", "content_filter"):
            self.verdict(reply.finish_reason)
            return Ending("refused", message=f"the model refused ({reply.finish_reason})")
        if reply.usage is None and self.armed.models[self.model_index].priced:
            return Ending("unmetered", message="a priced model returned no usage")
        return None

    def _judge(self, reply: ModelReply, entry: Entry) -> Ending | None:
        """A reply without calls wants to be the answer: the gates decide, bounded."""
        match judge(self._facts(reply)):
            case Close(gate, outcome, message):
                self.verdict(f"{gate}: close: {message}")
                return Ending(outcome, message=message, entry=entry.seq)
            case Redo() as redo:
                return self._redo(redo, entry)
            case Pass():
                pass
        if self.inbox.steering:
            self.verdict("superseded: steering arrived before the answer was committed")
            return None
        self.verdict("answer")
        return Ending(
            "completed",
            answer=reply.text,
            output=reply.output,
            entry=entry.seq,
            answer_blob=reply.text_blob,
        )

    def _facts(self, reply: ModelReply) -> Facts:
        explicit = self.limits.completion == "explicit"
        return Facts(reply, self.redos, self.limits.schema_repairs, explicit)

    def _redo(self, redo: Redo, entry: Entry) -> Ending | None:
        """Send a reply back; where no turn is left for it the exchange ends, with the draft as partial."""
        self.held(redo)
        spent = check(self.budget, self.meter)
        if isinstance(spent, Exhausted) and self.limits.on_exhausted == "fail":
            return _spent(spent)
        self.control(redo.kind, redo.text)
        self.widen = True
        return self._judge_progress(guard.Held(str(entry.content), redo.gate))

    # -- guard -------------------------------------------------------------------------------------

    def _judge_progress(self, turn: guard.Turn) -> Ending | None:
        """Let the guard judge the turn: go on, tell the model that it repeats itself, or end the exchange."""
        if self.guard is None:
            return None
        self.guard, verdict = guard.observe(self.guard, turn)
        match verdict:
            case guard.Nudge() as nudge:
                self.nudged(nudge, self.guard.reflections_left)
            case guard.Stall() as stall:
                return self.stalled(stall)
            case guard.Proceed():
                pass
        return None

    # -- calls -------------------------------------------------------------------------------------

    async def _act(self, reply: ModelReply, entry: Entry) -> Ending | None:
        """Check the whole batch before any of it runs, dispatch, fold in the order of the calls."""
        batch = check_calls(reply.calls, entry.calls, self.tools, self.limits)
        ending = self._forbidden(batch)
        if ending is None and batch.done is not None:
            return self._done(batch.done, reply, entry)
        try:
            ending = ending or self._unfit(batch, reply) or await self._exhausted(len(batch.runs))
        except asyncio.CancelledError:
            self.fold(entry, {}, "Not run: the run was cancelled.")
            raise
        if ending is None:
            return await self._dispatch(batch, entry)
        self.fold(entry, {}, f"Not run: {ending.message}.")
        return ending

    def _forbidden(self, batch: Batch) -> Ending | None:
        if batch.forbidden is None or not self.limits.strict_tools:
            return None
        return Ending("forbidden_tool", message=f"{clip(batch.forbidden, 256)!r} is not on the whitelist")

    def _done(self, done: EntryCall, reply: ModelReply, entry: Entry) -> Ending | None:
        """`nika:done` wins: its siblings are not run. Words that arrived meanwhile are answered first."""
        superseded = bool(self.inbox.steering)
        told = "Not final: a person wrote meanwhile." if superseded else "Accepted."
        accepted = CallOutcome(ToolOutcome(content=told), "ok")
        self.fold(entry, {done.id: accepted}, "Not run: nika:done ended the exchange.")
        if superseded:
            self.verdict("superseded: steering arrived before the result was committed")
            return None
        self.verdict("done")
        result = done.arguments.get("result")
        answer = result if isinstance(result, str) else reply.text or render(result)
        return Ending("done", answer=answer, output=result, entry=entry.seq)

    def _unfit(self, batch: Batch, reply: ModelReply) -> Ending | None:
        """A batch that uses up a bound: replies cut at the length limit, a result that misses its schema."""
        refused = [item for item in batch.items if isinstance(item, Refused)]
        cut = any(item.kind == "truncated" for item in refused)
        self._cut_replies = self._cut_replies + 1 if cut else 0
        if self._cut_replies > 1:
            return Ending("refused", message="the model's replies are cut at its length limit")
        for item in refused:
            if item.call.tool == DONE and item.kind == "schema":
                match judge_output(self._facts(reply), item.message):
                    case Close(_, outcome, message):
                        return Ending(outcome, message=message)
                    case Redo() as redo:
                        self.held(redo)
                    case Pass():
                        pass
        return None

    async def _dispatch(self, batch: Batch, entry: Entry) -> Ending | None:
        """Run the calls in waves; whatever happens, every call ends up with exactly one observation."""
        self.show("acting")
        outcomes: dict[str, CallOutcome] = {
            item.call.id: CallOutcome(ToolOutcome(content=item.message, is_error=True), "refused")
            for item in batch.items
            if isinstance(item, Refused)
        }
        self.serve(batch.served, outcomes)
        try:
            if await self._run_waves(batch, outcomes):
                await self.wait_for_answers()
        except asyncio.CancelledError:
            self.close_questions(outcomes)
            self.fold(entry, outcomes, "Not run: the run was cancelled.")
            raise
        self.close_questions(outcomes)
        self.fold(entry, outcomes, "Not run: the batch was ended before its turn came.")
        self.used.update({run.call.tool: self.meter.turns for run in batch.allowed})
        self.redos.pop(empty_reply.NAME, None)
        if any(outcome.status == "forbidden" for outcome in outcomes.values()):
            return Ending("security", message="a tool refused a call for good")
        if self.stop is not None:
            return self._withdrawn(len(batch.runs))
        return self._judge_progress(guard.Acted(self.acts(entry, outcomes)))

    async def _run_waves(self, batch: Batch, outcomes: dict[str, CallOutcome]) -> bool:
        """One wave after the other, until a person interrupts, a tool refuses for good, or money runs out.

        Returns: Whether the exchange goes on: none of that happened, or the agent waits for a top-up.
        """
        for wave in waves(batch.runs, self.limits.parallel_calls):
            await self.unpaused()
            self.tick()
            if self.stop is not None:
                return False
            if isinstance(check_spend(self.budget, self.meter), Exhausted):
                return self.limits.on_exhausted == "wait" and not self.finishing
            self.meter = self.meter.calls(len(wave))
            await self.run_calls(wave, outcomes)
            if any(outcomes[run.call.id].status == "forbidden" for run in wave):
                return False
        return True

    # -- end ---------------------------------------------------------------------------------------

    def _finish(self, ending: Ending) -> dict[str, Any]:
        """The run's result and its last event."""
        if not self.journal.next_seq:
            agent = agent_name(self.input) if self.input else "?"
            self.emit_first(events.RunStarted(agent=agent))
        if self.exchange_open:
            self.exchange_closed(ending)
        self.tick()
        unanswered = tuple(said.message.text for said in (*self.inbox.steering, *self.inbox.follow_ups))
        self.finished(ending, len(unanswered))
        return result_of(
            ending,
            partial=self.last_text,
            spend=self.meter.spend(),
            exchanges=self.exchange,
            unanswered=unanswered,
        ).model_dump(mode="json")


def _run_input(args: Sequence[Any]) -> RunInput:
    """The run's argument.

    Raises: ApplicationError(invalid_input), naming the field, the value and what is allowed.
    """
    read = read_input(args)
    if isinstance(read, Rejected):
        raise ApplicationError(read.reason, type="invalid_input", non_retryable=True)
    return read


def _spent(verdict: Exhausted) -> Ending:
    if verdict.dimension == "turns":
        return Ending("max_turns", message=verdict.message)
    return Ending("budget", message=f"{verdict.dimension}: {verdict.message}")
