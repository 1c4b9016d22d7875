"""What a run shows of itself: state, explanations, the catalog, the markdown for the Temporal UI.

Pure: views read a run and change nothing.

Source: shared design, loop.md "Talking to a run" (queries, Temporal UI); interfaces.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from mainspring.schemas.activities import Armed
from mainspring.schemas.agent import COUNT_MAX, BudgetSpec
from mainspring.schemas.base import JsonValue, wire
from mainspring.schemas.ledger import LedgerRef, Plan
from mainspring.schemas.run import RunInput
from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows import budget, guard
from mainspring.workflows.budget import Meter
from mainspring.workflows.events import Journal, instant
from mainspring.workflows.ledger import AssistantMessage, Ledger, Message, project, select
from mainspring.workflows.messages import Inbox
from mainspring.workflows.questions import Questions
from mainspring.workflows.router import Offer
from mainspring.workflows.values import clip

__all__ = [
    "TurnRecord",
    "Viewed",
    "agent_name",
    "catalog",
    "details",
    "differences",
    "explain",
    "message_json",
    "number",
    "state",
    "window",
    "with_wall",
]

EXPLAIN_BYTES = 1_500_000
NAMES_MAX = 1_000
PAGE_ENTRIES = 200


@dataclass(slots=True)
class TurnRecord:
    """What a turn's request was made of, and how its reply was judged."""

    turn: int
    exchange: int
    ledger: LedgerRef
    plan: Plan
    offer: Offer
    model: str
    verdicts: list[str] = field(default_factory=list)


class Viewed(Protocol):
    """The part of a run that views read."""

    input: RunInput | None
    armed: Armed | None
    in_flight: dict[str, str]
    tools: dict[str, ToolDeclaration]
    budget: BudgetSpec
    meter: Meter
    ledger: Ledger
    inbox: Inbox
    questions: Questions
    guard: guard.Guard | None
    journal: Journal
    turns: list[TurnRecord]
    exchange: int
    offer: Offer | None
    status: str
    awaiting: str
    outcome: str | None
    last_text: str
    paused: bool
    finishing: bool


def with_wall(meter: Meter, wall_ms: int) -> Meter:
    """The meter at a later wall time; time never runs back."""
    return replace(meter, wall_ms=max(meter.wall_ms, wall_ms))


def agent_name(request: RunInput) -> str:
    """The configured name, or `inline`."""
    return request.agent if isinstance(request.agent, str) else "inline"


def state(run: Viewed) -> dict[str, Any]:
    """The answer of the query `state`."""
    armed = run.armed
    offer = run.offer
    return {
        "status": run.status,
        "awaiting": run.awaiting,
        "outcome": run.outcome,
        "agent": armed.agent if armed else (agent_name(run.input) if run.input else None),
        "model": armed.models[0].name if armed else None,
        "lifetime": run.input.lifetime if run.input else None,
        "metadata": dict(run.input.metadata) if run.input else {},
        "exchange": run.exchange,
        "turn": run.meter.turns,
        "exchange_turn": run.meter.exchange_turns,
        "spend": run.meter.spend().model_dump(mode="json"),
        "budget": run.budget.model_dump(mode="json"),
        "left": budget.left(run.budget, run.meter),
        "guard": guard.view(run.guard) if run.guard else None,
        "offered": {
            "count": offer.offered if offer else 0,
            "universe": offer.universe if offer else 0,
            "why": offer.why if offer else None,
            "names": list(offer.names) if offer and offer.names != "all" else "all",
        },
        "approvals": [],
        "questions": run.questions.shown(instant),
        "queued": [
            {"number": said.number, "kind": kind, "message": clip(said.message.text, 200)}
            for kind, queue in (("steer", run.inbox.steering), ("follow_up", run.inbox.follow_ups))
            for said in list(queue)[:50]
        ],
        "in_flight": [{"call_id": call_id, "tool": tool} for call_id, tool in run.in_flight.items()],
        "paused": run.paused,
        "finishing": run.finishing,
        "last_text": run.last_text[-4_000:],
        "ledger": wire(run.ledger.ref),
        "next_event": run.journal.next_seq,
        "notes": list(armed.notes) if armed else [],
    }


def details(run: Viewed) -> str:
    """Markdown for the run's page in the Temporal UI; short, since it is rendered at every turn."""
    meter = run.meter
    spend = f"{meter.tokens} tokens, {meter.tool_calls} calls"
    if meter.dollars is not None:
        spend += f", ${meter.dollars:.4f}"
    lines = [
        f"**{run.outcome or run.status}**" + (f" · waiting for {run.awaiting}" * (run.awaiting != "none")),
        f"exchange {run.exchange} · turn {meter.turns} of {run.budget.turns} · {spend}",
    ]
    lines += [f"**asks:** {clip(question.text, 300)}" for question in run.questions.open()[:3]]
    if run.last_text:
        lines.append("> " + clip(run.last_text, 300))
    return "\n\n".join(lines)


def number(value: JsonValue) -> int:
    """A count that a caller gave, 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(min(max(0, value), COUNT_MAX))


def window(value: JsonValue) -> tuple[int, int]:
    """`{"from": 0, "limit": 200}` or a bare start.

    Raises: ValueError, naming the key.
    """
    if not isinstance(value, dict):
        return number(value), PAGE_ENTRIES
    unknown = set(value) - {"from", "limit"}
    if unknown:
        raise ValueError(f"transcript takes 'from' and 'limit', not {sorted(unknown)!r}")
    return number(value.get("from", 0)), number(value.get("limit", PAGE_ENTRIES))


def catalog(run: Viewed, digest: JsonValue) -> dict[str, Any]:
    """The answer of the query `catalog`.

    Raises: ValueError, when the run has no catalog of that digest.
    """
    armed = run.armed
    if armed is None:
        return {"digest": None, "tools": []}
    if digest is not None and digest != armed.digest:
        raise ValueError(f"this run's catalog has the digest {armed.digest}")
    tools = None if armed.tools is None else [wire(tool) for tool in armed.tools]
    blob = wire(armed.catalog_blob) if armed.catalog_blob else None
    return {"digest": armed.digest, "tools": tools, "blob": blob}


def explain(run: Viewed, turn: JsonValue) -> dict[str, Any]:
    """The answer of the query `explain`: a turn's request, rebuilt from the ledger, and its verdicts.

    Raises: ValueError, when there is no such turn.
    """
    found = _turn(run.turns, turn)
    messages = [
        message_json(message)
        for message in project(select(run.ledger.entries[: found.ledger.length], found.plan))
    ]
    names = list(run.tools) if found.offer.names == "all" else list(found.offer.names)
    names = names[:NAMES_MAX]
    kept, left_out = _newest(messages, EXPLAIN_BYTES - len(json.dumps(names)))
    instructions = run.armed.spec.instructions if run.armed else ""
    return {
        "turn": found.turn,
        "exchange": found.exchange,
        "model": found.model,
        "ledger": wire(found.ledger),
        "plan": wire(found.plan),
        "offered": {
            "names": names,
            "count": found.offer.offered,
            "universe": found.offer.universe,
            "by_source": found.offer.by_source,
            "why": found.offer.why,
            "ranked": [{"name": item.name, "score": round(item.score, 6)} for item in found.offer.ranked],
            "pinned": list(found.offer.pinned[:NAMES_MAX]),
            "recent": list(found.offer.recent),
        },
        "verdicts": list(found.verdicts),
        "instructions": instructions,
        "messages": kept,
        "left_out": left_out,
    }


def _turn(turns: Sequence[TurnRecord], turn: JsonValue) -> TurnRecord:
    if not turns:
        raise ValueError("no turn has begun yet")
    if turn is None:
        return turns[-1]
    for record in turns:
        if record.turn == turn:
            return record
    raise ValueError(f"there is no turn {turn!r}; turns {turns[0].turn} to {turns[-1].turn} are known")


def _newest(messages: list[dict[str, Any]], bytes_max: int) -> tuple[list[dict[str, Any]], int]:
    """As many of the newest messages as fit."""
    size = 0
    for index in range(len(messages) - 1, -1, -1):
        size += len(json.dumps(messages[index], ensure_ascii=False).encode("utf-8", "replace"))
        if size > bytes_max:
            return messages[index + 1 :], index + 1
    return messages, 0


def message_json(message: Message) -> dict[str, Any]:
    """A message of a request as JSON."""
    if isinstance(message, AssistantMessage):
        return {
            "role": "assistant",
            "text": message.text,
            "calls": [wire(call) for call in message.calls],
            "thinking": [wire(block) for block in message.thinking],
        }
    return {
        "role": "user",
        "results": [
            {
                "call_id": result.call_id,
                "tool": result.tool,
                "content": result.content,
                "is_error": result.is_error,
                "files": [wire(blob) for blob in result.files],
            }
            for result in message.results
        ],
        "texts": [
            {"text": said.text, "attachments": [wire(item) for item in said.attachments]}
            for said in message.texts
        ],
    }


def differences(before: Armed, after: Armed) -> tuple[str, ...]:
    """What a refreshed configuration changed: names of the specification's fields, `models`, `tools`."""
    old, new = before.spec, after.spec
    changed = [name for name in type(new).model_fields if getattr(old, name) != getattr(new, name)]
    if before.models != after.models:
        changed.append("models")
    if (before.tools, before.catalog_blob) != (after.tools, after.catalog_blob):
        changed.append("catalog")
    return tuple(changed)
