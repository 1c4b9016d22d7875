"""From one attempt at a model call to a sink: never in the call's way, and no character lost to a slow sink.

Pieces wait until the sink is free and are joined then. Snapshots come in between, each only after the text
has grown by an eighth, so that they cost a bounded multiple of the text.

Source: shared design, loop.md "Live text"; README.md law 5.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from mainspring.activities.deltas import Delta, DeltaSink, Kind, Stamp
from mainspring.workflows.values import safe_text

__all__ = ["DeltaFeed", "DeltaFeeds"]

SEND_SECONDS = 5.0
"""A sink that takes longer for one batch is taken for dead."""
DRAIN_SECONDS = 1.0
"""At the end of an attempt a sink is waited for no longer."""
REST_SECONDS = 10.0
"""After a sink was too slow to wait for, this long nothing is sent: quick calls would wait once each. So long
nothing more is logged, too."""
DELTA_CHARACTERS = 64 * 1024
"""Of one piece; longer ones are sent in parts."""
BEHIND_CHARACTERS = 8 * 1024 * 1024
"""A sink that is further behind is taken for dead."""
SNAPSHOT_DELTAS = 64
SNAPSHOT_CHARACTERS = 512 * 1024
"""A longer text gets no more snapshots until its end."""

_log = logging.getLogger("mainspring.deltas")
_Streamed = Literal["text", "thinking"]


class DeltaFeeds:
    """Makes the feeds of one process's attempts."""

    def __init__(self, sink: DeltaSink) -> None:
        self.sink = sink
        self._rests_until = 0.0
        self._told_until = 0.0

    def open(self, stamp: Stamp) -> DeltaFeed | None:
        """The feed of an attempt, which must be closed; None while the sink rests. On the event loop only."""
        if asyncio.get_running_loop().time() < self._rests_until:
            return None
        return DeltaFeed(stamp, self)

    def failed(self, stamp: Stamp, error: BaseException) -> None:
        """An attempt's deltas end here. One line is logged; none for those that fail right after it."""
        now = asyncio.get_running_loop().time()
        if isinstance(error, TimeoutError):
            self._rests_until = now + REST_SECONDS
        if now >= self._told_until:
            self._told_until = now + REST_SECONDS
            # The kind alone: an error's own words may quote an address with its password.
            told = (type(error).__name__, stamp.run, stamp.call, stamp.attempt)
            _log.warning("%s: no more deltas of run %s, call %s, attempt %d; the call goes on", *told)


class DeltaFeed:
    """One attempt's deltas on their way to the sink. Nothing here raises for what a sink does."""

    def __init__(self, stamp: Stamp, feeds: DeltaFeeds) -> None:
        self._stamp = stamp
        self._feeds = feeds
        self._seq = 0
        self._waiting: list[tuple[_Streamed, list[str]]] = []
        self._behind = 0
        self._halves: dict[_Streamed, str] = {"text": "", "thinking": ""}
        self._shown = _Shown()
        self._last: tuple[Kind, str] | None = None
        self._wake = asyncio.Event()
        self._off = False
        self._pump = asyncio.create_task(self._send_all(), name="mainspring-deltas")

    def text(self, piece: str) -> None:
        """A piece of visible text."""
        self._add("text", piece)

    def thought(self, piece: str) -> None:
        """A piece of thinking."""
        self._add("thinking", piece)

    async def close(self, text: str | None = None) -> None:
        """The attempt is over: with the reply's text, or without a reply. Takes `DRAIN_SECONDS` at most."""
        self._last = ("withdrawn", "") if text is None else ("end", safe_text(text))
        self._wake.set()
        try:
            _, late = await asyncio.wait({self._pump}, timeout=DRAIN_SECONDS)
            if late:
                self._switch_off(TimeoutError())
        finally:
            self._pump.cancel()

    def _add(self, kind: _Streamed, piece: str) -> None:
        if self._off or not piece:
            return
        if not self._waiting or self._waiting[-1][0] != kind:
            self._waiting.append((kind, []))
        self._waiting[-1][1].append(piece)
        self._behind += len(piece)
        if self._behind > BEHIND_CHARACTERS:
            self._switch_off(TimeoutError())
            self._pump.cancel()
        self._wake.set()

    async def _send_all(self) -> None:
        batch = [self._next("snapshot", "")]
        try:
            while batch:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._feeds.sink.send(batch)
                batch = [] if batch[-1].kind in ("end", "withdrawn") else await self._batch()
        except (Exception, asyncio.CancelledError) as error:  # every sink fails in its own way
            self._switch_off(error)

    async def _batch(self) -> list[Delta]:
        """What waits, once there is something."""
        deltas: list[Delta] = []
        while not deltas:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting, self._behind = self._waiting, [], 0
            for kind, pieces in waiting:
                deltas += self._streamed(kind, "".join(pieces))
            if self._last is not None:
                deltas.append(self._next(*self._last))
            elif (whole := self._shown.due()) is not None:
                deltas.append(self._next("snapshot", whole))
        return deltas

    def _streamed(self, kind: _Streamed, text: str) -> list[Delta]:
        """Pieces as they are sent: half a character waits for its other half."""
        text = self._halves[kind] + text
        half = "\ud800" <= text[-1] <= "\udbff"
        self._halves[kind] = text[-1] if half else ""
        text = safe_text(text[:-1] if half else text)
        parts = [text[at : at + DELTA_CHARACTERS] for at in range(0, len(text), DELTA_CHARACTERS)]
        if kind == "text":
            self._shown.add(parts)
        return [self._next(kind, part) for part in parts]

    def _next(self, kind: Kind, text: str) -> Delta:
        delta = Delta(self._stamp, self._seq, kind, text)
        self._seq += 1
        return delta

    def _switch_off(self, error: BaseException) -> None:
        if self._off:
            return
        self._off = True
        self._waiting.clear()
        self._feeds.failed(self._stamp, error)


class _Shown:
    """The text so far, and whether it is time to send it whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._size_then = 0
        self._since = 0

    def add(self, parts: list[str]) -> None:
        """Text that is being sent."""
        self._size += sum(len(part) for part in parts)
        self._since += len(parts)
        self._pieces += parts
        if self._size > SNAPSHOT_CHARACTERS:
            self._pieces.clear()

    def due(self) -> str | None:
        """The whole text, when a snapshot is due."""
        grown = self._size - self._size_then
        if self._since < SNAPSHOT_DELTAS or grown * 8 < self._size or self._size > SNAPSHOT_CHARACTERS:
            return None
        self._size_then, self._since = self._size, 0
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]
