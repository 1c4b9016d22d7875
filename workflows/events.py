"""Events: each decision of a run as one typed value, and the journal that numbers them.

Pure. Events are a function of history: replaying it gives the same again.

Source: shared design, loop.md "Events".
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from mainspring.schemas.base import JsonValue

__all__ = [
    "BudgetCheckpoint",
    "BudgetExtended",
    "ComposeChecked",
    "ConfigurationRefreshed",
    "ContextPlanned",
    "ExchangeEnded",
    "ExchangeStarted",
    "Finished",
    "GateHeld",
    "Interrupted",
    "Journal",
    "ModelFailed",
    "Nudged",
    "Paused",
    "QuestionAsked",
    "QuestionClosed",
    "Resumed",
    "RunStarted",
    "SignalRejected",
    "Stalled",
    "Steered",
    "ToolCompleted",
    "ToolsSelected",
    "TurnStarted",
    "instant",
]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """First event of a run."""

    agent: str
    model: str | None = None
    lifetime: str = "single"
    tools: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigurationRefreshed:
    """A conversation took up the configuration as it is now; `changed` names what is different."""

    changed: tuple[str, ...]
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class ExchangeStarted:
    """A directive is taken up. `accepted` is the number that its sender was given; 0 for the prompt."""

    exchange: int
    source: str
    accepted: int
    entry: int


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn begins; `exchange_turn` counts within the exchange."""

    exchange: int
    exchange_turn: int


@dataclass(frozen=True, slots=True)
class ToolsSelected:
    """How many definitions the model is sent, of how many, by source."""

    offered: int
    universe: int
    by_source: dict[str, int]


@dataclass(frozen=True, slots=True)
class ContextPlanned:
    """Composition of the request in estimated tokens, never content."""

    entries: int
    shown: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class BudgetCheckpoint:
    """Spend after the turn's model call, and that call: its id, time, finish reason and tokens.

    `ms` is the time of all its attempts, fallbacks included; the tokens of the call are absent when none
    were reported.
    """

    tokens: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    dollars: float | None
    wall_ms: int
    calls: int
    first_token_ms: int | None = None
    model: str | None = None
    call_id: str | None = None
    ms: int | None = None
    finish_reason: str | None = None
    call_input_tokens: int | None = None
    call_output_tokens: int | None = None
    call_cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """A model call failed for good; `fallback` is the model that is tried next, if any."""

    model: str
    error: str
    message: str
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCompleted:
    """A call has its observation. `status`: ok, error, refused, not_run, interrupted, unknown, forbidden.

    `began` is when it was dispatched; absent when it was not. `digest` is that of a content that is shown cut
    and kept nowhere whole.
    """

    call_id: str
    tool: str
    status: str
    ms: int = 0
    bytes: int = 0
    spilled: bool = False
    began: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class ComposeChecked:
    """A workflow draft was checked: its size, and the verdict; `valid` is absent where none was reached."""

    call_id: str
    bytes: int
    valid: bool | None = None
    findings: int = 0
    stage: str = "check"


@dataclass(frozen=True, slots=True)
class Nudged:
    """The guard told the model that it repeats itself. `reason`: repeated_actions, error_streak."""

    reason: str
    period: int
    repeats: int
    reflections_left: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """The guard ended the exchange: the last `period` turns repeated `repeats` times."""

    period: int
    repeats: int


@dataclass(frozen=True, slots=True)
class GateHeld:
    """A gate held a reply back."""

    gate: str
    reason: str
    bound_left: int


@dataclass(frozen=True, slots=True)
class Steered:
    """A steering message entered the ledger."""

    accepted: int
    entry: int


@dataclass(frozen=True, slots=True)
class SignalRejected:
    """A signal that could not be understood or taken; it harmed nothing."""

    signal: str
    reason: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A person interrupted what was in flight."""

    calls: int


@dataclass(frozen=True, slots=True)
class Paused:
    """No new call starts."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Calls start again."""


@dataclass(frozen=True, slots=True)
class BudgetExtended:
    """A person topped the budget up."""

    turns: int
    tokens: int | None
    dollars: float | None
    wall: float | None
    calls: int | None


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The model asked the person; the run waits for `answer` until `expires`."""

    question_id: str
    question: str
    expires: str


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """A question waits no more. `status`: answered, expired, withdrawn, unattended."""

    question_id: str
    status: str
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class ExchangeEnded:
    """A directive's exchange ended; `entry` is the ledger entry that holds the answer whole."""

    exchange: int
    outcome: str
    code: str | None = None
    message: str | None = None
    answer: str | None = None
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Last event of a run."""

    outcome: str
    code: str | None = None
    message: str | None = None
    exchanges: int = 0
    unanswered: int = 0


Event = (
    RunStarted
    | ConfigurationRefreshed
    | ExchangeStarted
    | TurnStarted
    | ToolsSelected
    | ContextPlanned
    | BudgetCheckpoint
    | ModelFailed
    | ToolCompleted
    | ComposeChecked
    | Nudged
    | Stalled
    | GateHeld
    | Steered
    | SignalRejected
    | Interrupted
    | Paused
    | Resumed
    | BudgetExtended
    | QuestionAsked
    | QuestionClosed
    | ExchangeEnded
    | Finished
)


def instant(nanoseconds: int) -> str:
    """A time of the workflow's clock as ISO text, to the millisecond."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1_000_000 * 1_000)
    return at.isoformat(timespec="milliseconds")


PAGE_BYTES = 900_000
TEXT_CHARACTERS = 4_096
LIST_ITEMS = 100


def _bounded(value: JsonValue | tuple[str, ...]) -> JsonValue:
    """A field as it is kept: an event may name what a model or a provider wrote, at any length."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARACTERS else value[: TEXT_CHARACTERS - 1] + "…"
    return [_bounded(item) for item in value[:LIST_ITEMS]] if isinstance(value, tuple) else value


@dataclass(slots=True)
class Journal:
    """Numbers events from 0 and keeps the newest `kept` of them."""

    kept: int = 20_000
    next_seq: int = 0
    records: deque[dict[str, Any]] = field(default_factory=deque)

    def append(self, event: Event, turn: int, at: str) -> dict[str, Any]:
        """Record one event. `at` is an ISO time of the workflow's clock."""
        record: dict[str, Any] = {
            "seq": self.next_seq,
            "turn": turn,
            "at": at,
            "event": type(event).__name__,
        }
        for item in fields(event):
            value = getattr(event, item.name)
            if value is not None:
                record[item.name] = _bounded(value)
        self.next_seq += 1
        self.records.append(record)
        while len(self.records) > self.kept:
            self.records.popleft()
        return record

    def page(self, start: int, bytes_max: int = PAGE_BYTES) -> list[dict[str, Any]]:
        """Events from seq `start`, about `bytes_max` of them but at least one where there is one."""
        page: list[dict[str, Any]] = []
        size = 0
        first = self.next_seq - len(self.records)
        for index in range(max(0, start - first), len(self.records)):
            record = self.records[index]
            size += len(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
            if page and size > bytes_max:
                break
            page.append(record)
        return page
