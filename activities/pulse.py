"""Heartbeats of one attempt at a model call: the text so far, and what has been billed.

They keep the attempt alive, deliver cancellation, show live text in the UI, and carry what a failed attempt
has cost to the next one. A call that is quick sends none: heartbeats cost. Every piece also goes to the
attempt's delta feed, where there is one.

Source: shared design, loop.md "Live text"; temporal-facts.md 7; field-faults.md H3.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from temporalio import activity

from mainspring.activities.prices import added
from mainspring.schemas.activities import Usage
from mainspring.schemas.base import unwire, wire
from mainspring.workflows.values import safe_text

if TYPE_CHECKING:
    from mainspring.activities.delta_feed import DeltaFeed

__all__ = ["Pulse", "carried_usage"]

FIRST_SECONDS = 0.4
EVERY_SECONDS = 0.5
TAIL_BYTES = 4_096


def carried_usage(details: Sequence[Any]) -> Usage | None:
    """What earlier attempts were billed, from the details of their last heartbeat; None when unknown."""
    last: Any = details[0] if details else None
    usage: Any = cast("dict[str, Any]", last).get("usage") if isinstance(last, dict) else None
    try:
        return None if usage is None else unwire(Usage, usage)
    except ValidationError:
        return None


class Pulse:
    """Beats while it is entered. `carried` is what earlier attempts were billed; `feed` is for the deltas."""

    def __init__(self, carried: Usage | None = None, feed: DeltaFeed | None = None) -> None:
        self.carried = carried
        self._feed = feed
        self.first_token_ms: int | None = None
        self._started = time.perf_counter()
        self._tail = ""
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Pulse:
        self._timer = asyncio.get_running_loop().call_later(FIRST_SECONDS, self._beat)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def asked(self) -> None:
        """The request is being sent: the time to the first token counts from here."""
        self._started = time.perf_counter()

    def token(self, text: str = "") -> None:
        """Something was streamed: `text` of it is visible."""
        if self.first_token_ms is None:
            self.first_token_ms = round((time.perf_counter() - self._started) * 1_000)
        if text:
            self._pieces.append(text)
            if self._feed is not None:
                self._feed.text(text)

    def thought(self, text: str) -> None:
        """Thinking was streamed: it is shown in deltas, and not in heartbeats."""
        self.token()
        if self._feed is not None:
            self._feed.thought(text)

    def billed(self, usage: Usage | None) -> None:
        """This attempt is about to fail after the provider reported usage: the next one must know.

        Seen with temporalio 1.35 and server 1.32: the last heartbeat before a failure is delivered, throttled
        or not, and the next attempt finds it in its details.
        """
        if usage is not None:
            self.carried = added(self.carried, usage)
            self._send()

    def _beat(self) -> None:
        self._send()
        self._timer = asyncio.get_running_loop().call_later(EVERY_SECONDS, self._beat)

    def _send(self) -> None:
        joined = self._tail + "".join(self._pieces)[-TAIL_BYTES:]
        self._pieces.clear()
        self._tail = safe_text(joined[-TAIL_BYTES:]).encode()[-TAIL_BYTES:].decode("utf-8", "ignore")
        details: dict[str, Any] = {"text": self._tail}
        if self.carried is not None:
            details["usage"] = wire(self.carried)
        activity.heartbeat(details)
