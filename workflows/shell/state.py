"""What a run carries, and how it shows itself to the server: events, status, search attributes.

Source: shared design, loop.md "Events", "Talking to a run"; temporal-facts.md 6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Protocol

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from mainspring.schemas.activities import Armed, ModelReply
    from mainspring.schemas.agent import AgentSpec, BudgetSpec, LimitSpec
    from mainspring.schemas.base import JsonValue
    from mainspring.schemas.ledger import Entry, NewEntry
    from mainspring.schemas.run import RunInput
    from mainspring.schemas.tools import ToolDeclaration
    from mainspring.workflows import budget, events, views
    from mainspring.workflows.guard import Guard
    from mainspring.workflows.ledger import Ledger
    from mainspring.workflows.messages import Inbox
    from mainspring.workflows.questions import Questions
    from mainspring.workflows.router import Offer, universe
    from mainspring.workflows.values import clip, render

__all__ = ["Observer", "RunState"]

INLINE_BYTES = 2_048
"""An entry up to this size rides along whole in a model request; a larger one is read by query."""
RIDING_CHARACTERS = 200_000
"""Of all entries that ride along: whatever they hold, a request stays within a payload."""
NEW_MAX = 200
ATTRIBUTE_CHARACTERS = 200
ATTRIBUTES_EVERY_TURNS = 20


class Observer(Protocol):
    """Who is told of each event as it happens: telemetry.

    Contract: it neither raises nor waits, and is told of no event that a replay only repeats. After a
    workflow task that had to be done again it is told twice; `seq` says so.
    """

    def __call__(self, run: RunState, record: dict[str, Any], about: Entry | ModelReply | None) -> None:
        """Take note of `record`, the event as kept; `about` is what it is about, for who shows content."""
        ...


class RunState:
    """State of a run. It waits for nobody."""

    def __init__(self) -> None:
        self.input: RunInput | None = None
        self.armed: Armed | None = None
        self.attributes: tuple[str, ...] = ()  # search attributes of ours that the server has
        self.in_flight: dict[str, str] = {}  # tools by call id
        self.declarations: list[ToolDeclaration] = []
        self.tools: dict[str, ToolDeclaration] = {}
        self.budget = BudgetSpec()
        self.limits = LimitSpec()
        self.meter = budget.Meter()
        self.ledger = Ledger()
        self.context_tokens = 0
        self.journal = events.Journal()
        self.inbox = Inbox()
        self.questions = Questions()
        self.guard: Guard | None = None
        self.turns: list[views.TurnRecord] = []
        self.exchange = 0
        self.exchange_open = False
        self.offer: Offer | None = None
        self.status = "thinking"
        self.awaiting = "none"
        self.outcome: str | None = None
        self.last_text = ""
        self.redos: dict[str, int] = {}
        self.universe = universe(())
        self.used: dict[str, int] = {}  # tools by the turn that they were last called in, or found
        self.searches = 0  # of the catalog, in this exchange
        self.directive = ""
        self.widen = False  # a sticky offer may grow by what ranks best now
        self.paused = False
        self.finishing = False
        self.stop: Literal["interrupt", "steer"] | None = None
        self.observer: Observer | None = None
        self._withheld: list[events.Event] | None = []
        self.new: list[NewEntry] = []
        self._number = 0
        self.model_index = 0  # the model in use: 0, or a fallback
        self.asked: tuple[str, int] = ("", 0)  # the newest model call: its id, and when it began (ns)
        self._started_ns = 0
        self._waited_ns = 0
        self._shown: dict[str, JsonValue] = {}

    @property
    def spec(self) -> AgentSpec:
        """What the run works with; the defaults until it is armed."""
        return self.armed.spec if self.armed else AgentSpec()

    def decides(self, since: int) -> bool:
        """Whether the run was armed by a version that makes the decisions of `since`, see `DECISIONS`."""
        return self.armed is not None and self.armed.decisions >= since

    @property
    def model_name(self) -> str:
        """Its name in the configuration."""
        return self.armed.models[self.model_index].name if self.armed else ""

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
        return f"{self.prefix}-{number}", number

    @property
    def prefix(self) -> str:
        """What the ids of this chain's activities and calls begin with.

        The last digits of a run id are random; its first ones are the time, the same for a minute.
        """
        return workflow.info().first_execution_run_id[-8:]

    def raise_if_cancelled(self) -> None:
        """A cancellation that an activity's failure hid would be lost: look for it where it matters."""
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    # -- events and status -------------------------------------------------------------------------

    def emit(self, event: events.Event, about: Entry | ModelReply | None = None) -> None:
        """Record an event. Until the run has started they are withheld: `RunStarted` comes first."""
        if self._withheld is not None:
            self._withheld.append(event)
            return
        at = workflow.now().isoformat(timespec="milliseconds")
        record = self.journal.append(event, self.meter.turns, at)
        if self.observer is not None and not workflow.unsafe.is_replaying():
            self.observer(self, record, about)

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
        asks = self._shown.get("MainspringAwaiting", awaiting) != awaiting
        if told is None or status in settled or told in settled or asks or self._due():
            self._upsert()
        workflow.set_current_details(views.details(self))

    def _due(self) -> bool:
        return self.status == "acting" and self.meter.turns % ATTRIBUTES_EVERY_TURNS == 0

    def _upsert(self) -> None:
        if not self.attributes or self.input is None:
            return
        agent = self.armed.agent if self.armed else views.agent_name(self.input)
        wanted: dict[str, JsonValue] = {
            "MainspringAgent": clip(agent, ATTRIBUTE_CHARACTERS),
            "MainspringStatus": self.status,
            "MainspringAwaiting": self.awaiting,
            "MainspringOutcome": self.outcome,
            "MainspringTurns": self.meter.turns,
            "MainspringTokens": self.meter.input_tokens + self.meter.output_tokens,
        }
        changed = {
            name: value
            for name, value in wanted.items()
            if value is not None and name in self.attributes and self._shown.get(name) != value
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
        if n is not None:
            new = NewEntry(seq=entry.seq, n=n, exchange=entry.exchange, turn=entry.turn)
        elif _small(entry) and self._riding() + len(str(entry.content)) <= RIDING_CHARACTERS:
            new = NewEntry(seq=entry.seq, entry=entry)
        else:
            new = NewEntry(seq=entry.seq)
        self.new = [*self.new[-NEW_MAX:], new]
        return entry

    def _riding(self) -> int:
        return sum(len(str(new.entry.content)) for new in self.new if new.entry is not None)

    # -- waiting -----------------------------------------------------------------------------------

    async def wait_for_person(
        self, awaiting: str, ready: Callable[[], bool], timeout: float | None = None
    ) -> bool:
        """Wait durably until `ready`; False when the time is up. Not billed as wall time."""
        if ready():
            return True
        before, asks, began = self.status, self.awaiting, workflow.time_ns()
        self.show("waiting", awaiting)
        try:
            await workflow.wait_condition(ready, timeout=timeout)
        except TimeoutError:
            self._waited(began)
            return False
        except asyncio.CancelledError:
            self._waited(began)
            raise
        self._waited(began)
        self.show(before, asks if awaiting != "answer" and self.questions.open() else "none")
        return True

    def _waited(self, began: int) -> None:
        """Bill no wall time for a wait. Not in a `finally`: a run that a worker drops has no clock there."""
        self._waited_ns += workflow.time_ns() - began

    async def wait_for_answers(self) -> None:
        """Wait until every question is answered or its time is up, or a person ends the wait otherwise."""

        def over() -> bool:
            return self.questions.settled or self.finishing or self.stop is not None

        if not over():
            expires = min(question.expires for question in self.questions.open())
            left = (expires - workflow.time_ns()) / 1e9
            await self.wait_for_person("answer", over, max(0.001, left))

    async def wait_for_top_up(self) -> None:
        """Wait until a person extends the budget, or ends the exchange or the run."""
        before = self.budget
        await self.wait_for_person(
            "budget", lambda: self.budget != before or self.finishing or self.stop == "interrupt"
        )

    async def unpaused(self) -> None:
        """Wait while a person has paused the run; an interruption ends the wait."""
        if self.paused:
            await self.wait_for_person("resume", lambda: not self.paused or self.stop is not None)


def _small(entry: Entry) -> bool:
    return not entry.calls and not entry.attachments and len(render(entry.content)) <= INLINE_BYTES
