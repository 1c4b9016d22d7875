"""The record of a run as it happens: entries of the ledger, and the events that go with them.

Source: shared design, context.md "Ledger"; loop.md "Events".
"""

from __future__ import annotations

from collections.abc import Mapping

from temporalio import workflow

from mainspring.workflows.shell.failures import CallOutcome
from mainspring.workflows.shell.state import RunState

with workflow.unsafe.imports_passed_through():
    from mainspring.schemas.activities import ModelReply
    from mainspring.schemas.ledger import Entry, EntryCall
    from mainspring.schemas.run import Stall
    from mainspring.schemas.tools import ToolOutcome
    from mainspring.workflows import events, guard
    from mainspring.workflows.acts import act_of
    from mainspring.workflows.gates import Redo
    from mainspring.workflows.ledger import control_entry, observation_entry, reply_entry, user_entry
    from mainspring.workflows.messages import Said
    from mainspring.workflows.outcomes import Ending
    from mainspring.workflows.plan import Planned
    from mainspring.workflows.router import Offer
    from mainspring.workflows.values import clip, render
    from mainspring.workflows.views import TurnRecord

__all__ = ["RunRecord"]

EVENT_ANSWER_CHARACTERS = 2_048


class RunRecord(RunState):
    """Writes down what happened; it decides nothing."""

    def verdict(self, text: str) -> None:
        """Note a verdict on the newest turn, for `explain`."""
        self.turns[-1].verdicts.append(clip(text, 500))

    def exchange_opened(self, said: Said) -> None:
        """A directive is taken up."""
        source = "prompt" if said.number == 0 else "follow_up"
        self.exchange += 1
        self.exchange_open = True
        self.meter = self.meter.exchange()
        entry = self.words(said, source)
        self.directive = said.message.text
        self.emit(events.ExchangeStarted(self.exchange, source, said.number, entry.seq))

    def exchange_closed(self, ending: Ending) -> None:
        """A directive's exchange has ended."""
        self.exchange_open = False
        self.tick()
        answer = ending.answer
        self.emit(
            events.ExchangeEnded(
                exchange=self.exchange,
                outcome=ending.outcome,
                code=ending.code,
                message=ending.message,
                answer=None if answer is None else answer[:EVENT_ANSWER_CHARACTERS],
                entry=ending.entry,
            )
        )

    def turn_started(self) -> None:
        """A turn begins."""
        self.meter = self.meter.turn()
        self.emit(events.TurnStarted(self.exchange, self.meter.exchange_turns))

    def request_made(self, offer: Offer, planned: Planned) -> None:
        """What the turn's request is made of."""
        self.offer = offer
        self.emit(events.ToolsSelected(offer.offered, offer.universe, offer.by_source))
        self.emit(events.ContextPlanned(planned.entries, planned.shown, planned.tokens))
        self.turns.append(
            TurnRecord(self.meter.turns, self.exchange, self.ledger.ref, planned.plan, offer, self.model_name)
        )

    def billed(self, reply: ModelReply | None, *, counted: bool = True) -> None:
        """Bill the turn's model call; exactly one checkpoint a turn, whatever became of it."""
        self.tick()
        if counted:
            self.meter = self.meter.reply(reply.usage if reply else None)
        meter, usage = self.meter, reply.usage if reply else None
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
                call_id=self.asked[0],
                ms=-(-(workflow.time_ns() - self.asked[1]) // 1_000_000),
                finish_reason=reply.finish_reason if reply else None,
                call_input_tokens=usage.input_tokens if usage else None,
                call_output_tokens=usage.output_tokens if usage else None,
                call_cached_tokens=usage.cached_tokens if usage else None,
            ),
            about=reply,
        )

    def words(self, said: Said, source: str) -> Entry:
        """A person's words enter the ledger."""
        words = said.message
        seq, turn = self.ledger.length, self.meter.turns
        entry = user_entry(seq, self.exchange, turn, words.text, words.attachments, source=source)
        return self.append(entry)

    def steered(self, said: Said) -> None:
        """Steering enters the ledger."""
        entry = self.words(said, "steer")
        self.directive = said.message.text
        self.emit(events.Steered(said.number, entry.seq))

    def replied(self, reply: ModelReply, number: int) -> Entry:
        """A reply enters the ledger; its calls get the ids that follow `number`."""
        call_ids = [f"{self.prefix}-{number + 1 + index}" for index in range(len(reply.calls))]
        seq, turn = self.ledger.length, self.meter.turns
        entry = self.append(reply_entry(seq, self.exchange, turn, reply, call_ids), n=number)
        self.last_text = str(entry.content) or self.last_text
        return entry

    def control(self, kind: str, text: str) -> None:
        """A message of the engine's enters the ledger."""
        self.append(control_entry(self.ledger.length, self.exchange, self.meter.turns, kind, text))

    def held(self, redo: Redo) -> None:
        """A gate has sent a reply back."""
        self.redos[redo.gate] = self.redos.get(redo.gate, 0) + 1
        self.verdict(f"{redo.gate}: redo: {redo.reason}")
        self.emit(events.GateHeld(redo.gate, clip(redo.reason, 300), redo.bound_left))

    def acts(self, entry: Entry, outcomes: Mapping[str, CallOutcome]) -> tuple[guard.Act, ...]:
        """A reply's calls with what was observed of them, as the guard judges them: after `fold`."""
        observed = {item.call_id: item for item in self.ledger.entries[entry.seq + 1 :]}
        return tuple(self._act_of(call, observed[call.id], outcomes.get(call.id)) for call in entry.calls)

    def _act_of(self, call: EntryCall, observed: Entry, outcome: CallOutcome | None) -> guard.Act:
        status, cut = (outcome.status, outcome.digest) if outcome is not None else ("not_run", None)
        return act_of(call, observed, self.tools.get(call.tool), status, cut)

    def nudged(self, nudge: guard.Nudge, reflections_left: int) -> None:
        """The guard told the model that it repeats itself."""
        self.control("nudge", nudge.text)
        self.verdict(f"guard: nudge: {nudge.reason}, {nudge.repeats} times a cycle of {nudge.period}")
        self.emit(events.Nudged(nudge.reason, nudge.period, nudge.repeats, reflections_left))

    def stalled(self, stall: guard.Stall) -> Ending:
        """The guard ended the exchange."""
        self.verdict(f"guard: stall: {stall.repeats} times a cycle of {stall.period}")
        self.emit(events.Stalled(stall.period, stall.repeats))
        turns = "turn" if stall.period == 1 else f"{stall.period} turns"
        told = f"the same {turns} came {stall.repeats} times in a row, with the same results: "
        return Ending(
            "stalled",
            message=told + ", ".join(stall.steps),
            stall=Stall(period=stall.period, repeats=stall.repeats, steps=stall.steps),
        )

    def interrupted(self, calls: int) -> None:
        """A person withdrew what was in flight."""
        self.emit(events.Interrupted(calls))

    def fold(self, entry: Entry, outcomes: Mapping[str, CallOutcome], otherwise: str = "Not run.") -> None:
        """Append one observation a call, in the order of the calls, as if they had run one after the other.

        Args:
            entry: The reply.
            outcomes: By call id.
            otherwise: What is told of a call that has no outcome: it never ran.
        """
        not_run = CallOutcome(ToolOutcome(content=otherwise, is_error=True), "not_run")
        for call in entry.calls:
            found = outcomes.get(call.id, not_run)
            seq, turn = self.ledger.length, self.meter.turns
            observation = self.append(
                observation_entry(seq, self.exchange, turn, call.id, call.tool, found.outcome), n=found.n
            )
            self.emit(
                events.ToolCompleted(
                    call_id=call.id,
                    tool=call.tool,
                    status=found.status,
                    ms=found.ms,
                    bytes=len(render(observation.content).encode()),
                    spilled=observation.spilled is not None,
                    began=None if found.began is None else events.instant(found.began),
                    digest=found.digest,
                ),
                about=observation,
            )

    def finished(self, ending: Ending, unanswered: int) -> None:
        """The run's last event."""
        self.outcome = ending.outcome
        self.emit(
            events.Finished(
                outcome=ending.outcome,
                code=ending.code,
                message=ending.message,
                exchanges=self.exchange,
                unanswered=unanswered,
            )
        )
        self.show("closed")
