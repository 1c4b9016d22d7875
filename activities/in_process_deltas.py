"""The sink for readers in the worker's own process: a web backend and a worker in one."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Sequence

from mainspring.activities.deltas import Delta, LiveText

__all__ = ["InProcessDeltas"]

RUNS_MAX = 1_000
READER_DELTAS = 1_000
READER_CHARACTERS = 4 * 1024 * 1024


class InProcessDeltas:
    """Hands deltas to readers of this process; any number of them, on any event loop, in any thread.

    Contract: `send` never waits for a reader. A reader that is behind by more than 1,000 deltas or 4 Mi
    characters gets a snapshot in place of what it missed; one that comes late begins with a snapshot. The
    newest texts are remembered for 1,000 runs, and for every run that has a reader.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    async def send(self, deltas: Sequence[Delta]) -> None:
        """Take some deltas."""
        with self._lock:
            for delta in deltas:
                run = self._run(delta.stamp.run)
                if not run.text.feed(delta):
                    continue  # of an attempt that another one has replaced
                for reader in run.readers:
                    reader.put(delta, run.text)

    async def of(self, run: str) -> AsyncGenerator[Delta]:
        """The deltas of a run, by its workflow id, from now on; first where its newest call stands.

        It goes on for as long as it is read: `mainspring.deltas.during` ends it with the run. Its place is
        taken when the first delta is asked for.
        """
        reader = _Reader(asyncio.get_running_loop())
        with self._lock:
            known = self._run(run)
            reader.catch_up(known.text)
            known.readers.append(reader)
        try:
            while True:
                await reader.wake.wait()
                with self._lock:
                    waiting = reader.taken()
                for delta in waiting:
                    yield delta
        finally:
            with self._lock:
                known.readers.remove(reader)

    def _run(self, name: str) -> _Run:
        """A run, newest last; runs that nobody reads are forgotten, oldest first, beyond `RUNS_MAX`."""
        known = self._runs.setdefault(name, _Run())
        self._runs.move_to_end(name)
        if len(self._runs) > RUNS_MAX:
            unread = (each for each, run in self._runs.items() if each != name and not run.readers)
            if (oldest := next(unread, None)) is not None:
                del self._runs[oldest]
        return known


class _Run:
    """Where a run's newest call stands, and who reads it."""

    __slots__ = ("readers", "text")

    def __init__(self) -> None:
        self.text = LiveText()
        self.readers: list[_Reader] = []


class _Reader:
    """What one reader has not taken yet. Touched under the sink's lock, but for `wake`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.wake = asyncio.Event()
        self._loop = loop
        self._waiting: deque[Delta] = deque()
        self._characters = 0

    def put(self, delta: Delta, live: LiveText) -> None:
        """A delta that the text has been fed."""
        self._waiting.append(delta)
        self._characters += len(delta.text)
        if len(self._waiting) > READER_DELTAS or self._characters > READER_CHARACTERS:
            self._waiting.clear()
            self._characters = 0
            self.catch_up(live)
        if len(self._waiting) == 1:
            self._awake()

    def catch_up(self, live: LiveText) -> None:
        """Where the newest call stands, in place of what led there; nothing where that is not known whole."""
        for delta in _state_of(live):
            self._waiting.append(delta)
            self._characters += len(delta.text)
        if self._waiting:
            self._awake()

    def taken(self) -> list[Delta]:
        """What waits; it waits no longer."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._characters = 0
        self.wake.clear()
        return waiting

    def _awake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.wake.set)
        except RuntimeError:  # the reader's loop is closed; it left without a word
            self._waiting.clear()


def _state_of(live: LiveText) -> list[Delta]:
    """The deltas that bring a new reader to where this text stands."""
    if live.stamp is None or not live.whole:
        return []
    if live.state == "ended":
        return [Delta(live.stamp, live.seq, "end", live.text)]
    if live.state == "withdrawn":
        before = Delta(live.stamp, max(0, live.seq - 1), "snapshot", live.text)
        return [before, Delta(live.stamp, live.seq, "withdrawn")]
    return [Delta(live.stamp, live.seq, "snapshot", live.text)]
