"""Which number the run gave a message that was sent as a signal.

A signal has no answer. What the run made of the message is read from its queue and its events; they are
complete, because a query sees every signal that has arrived before it. Messages are told apart by kind, text
and when they came: of two with the same text that are sent in the same moment, the first may be taken for
the second.

Source: shared design, interfaces.md "On the wire".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from mainspring.channel import Channel
from mainspring.run_errors import Refused
from mainspring.workflows.values import clip, safe_text

__all__ = ["Mark", "holds", "mark", "number_of"]

QUEUED_CHARACTERS = 200
"""How much of a queued message `state` shows."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a run had come before a message was sent.

    Args:
        event: The seq of its next event.
        number: The highest number in its queue; what is sent later has a higher one.
    """

    event: int
    number: int


async def mark(channel: Channel) -> Mark:
    """How far the run has come now.

    Raises: UnknownRun, NoWorker, Wedged, Unreachable.
    """
    state = await channel.query("state")
    return Mark(int(state["next_event"]), max((item["number"] for item in state["queued"]), default=0))


async def number_of(channel: Channel, kind: str, text: str, since: Mark) -> int | None:
    """The number of a message that was sent after `since`; None when it waits far back in a long queue.

    Args:
        channel: The line to the run.
        kind: The signal's name.
        text: Of the message.
        since: Taken before the message was sent.

    Raises: Refused, with the run's reason; UnknownRun, NoWorker, Wedged, Unreachable.
    """
    shown = clip(safe_text(text), QUEUED_CHARACTERS)
    for item in (await channel.query("state"))["queued"]:
        if (item["kind"], item["message"]) == (kind, shown) and item["number"] > since.number:
            return int(item["number"])
    for event in cast(list[dict[str, Any]], await channel.query("events", since.event)):
        if event["event"] == "SignalRejected" and event["signal"] == kind:
            told = event["reason"].removeprefix(f"{kind}: ")
            raise Refused(f"{kind}: {told}")
        taken = event["event"] in ("Steered", "ExchangeStarted") and event["accepted"] > since.number
        if taken and await holds(channel, event["entry"], text):
            return int(event["accepted"])
    return None


async def holds(channel: Channel, entry: int, text: str) -> bool:
    """Whether that entry of the ledger is that message.

    Raises: UnknownRun, NoWorker, Wedged, Unreachable.
    """
    found = await channel.query("transcript", {"from": entry, "limit": 1})
    return bool(found) and found[0].get("content") == safe_text(text)
