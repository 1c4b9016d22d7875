"""From a run's thread to the exporters: a bounded queue, and one thread that drains it.

Nothing that an exporter does is waited for by a workflow. What the queue cannot hold is dropped, counted and
said. What is told again, after a workflow task that had to be done again, makes nothing again.

Source: shared design, README.md law 8; loop.md "Events".
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from opentelemetry.trace import Tracer

from mainspring.telemetry import conventions, logs, spans
from mainspring.telemetry.meters import Meters
from mainspring.telemetry.providers import Providers
from mainspring.telemetry.told import Told

__all__ = ["Pipeline", "Seen"]

QUEUED_MAX = 20_000
RUNS_MAX = 10_000
MARKS_MAX = 256
SETTLE_SECONDS = 10.0
"""An ending is made this much later, or when the worker stops: a message that comes just then has the server
refuse the run's last task, and the run goes on. To do the task again takes as long as it takes to replay the
run, half a second and more on a busy machine; after 10 s, a task's usual time, another worker has it."""
LOOK_SECONDS = 0.2
GATHER_SECONDS = 0.05
"""Between two looks: many events at once disturb the workflows' threads less than each by itself."""

_log = logging.getLogger("mainspring.telemetry")


@dataclass(slots=True)
class Seen:
    """Which events of one run have been told: the highest number, and what the newest ones were."""

    highest: int = -1
    marks: dict[int, str] = field(default_factory=dict[int, str])

    def is_new(self, told: Told) -> bool:
        """Whether an event is to be told.

        A task that is done again tells the same events again, up to where it learns of something new: from
        there on the run went another way, and what was told before under those numbers is void.
        """
        record = told.record
        seq, mark = record["seq"], f"{told.event} {record['turn']} {record.get('call_id', '')}"
        if seq <= self.highest and self.marks.get(seq, mark) == mark:
            return False
        for later in range(seq, self.highest + 1):
            self.marks.pop(later, None)
        self.highest = seq
        self.marks[seq] = mark
        self.marks.pop(seq - MARKS_MAX, None)
        return True


class Pipeline:
    """Takes what runs tell and makes spans, figures and log records of it.

    Args:
        providers: Where they go.
        queued_max: Events that may wait; more are dropped.
        settle_seconds: How long an ending waits to be final.
    """

    def __init__(
        self,
        providers: Providers,
        *,
        queued_max: int = QUEUED_MAX,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._providers = providers
        self._queued_max = queued_max
        self._settle_seconds = settle_seconds
        self._queue: SimpleQueue[Told | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._drops = itertools.count(1)
        self._dropped = 0
        self._reported = 0
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._held: dict[str, tuple[float, Told]] = {}
        self._meters: tuple[object, Meters] | None = None
        self._tracer: tuple[object, Tracer, bool] | None = None
        self._complained: set[str] = set()

    @property
    def dropped(self) -> int:
        """Events that were dropped so far."""
        return self._dropped

    def tell(self, told: Told) -> None:
        """Take one event, at once or not at all.

        Contract: may be called from any thread; it neither raises nor waits.
        """
        if self._queue.qsize() >= self._queued_max:
            self._dropped = next(self._drops)
            return
        self._queue.put(told)

    def start(self) -> None:
        """Drain from here on. May be called again."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._drain, name="mainspring-telemetry", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> bool:
        """Make all that has been told so far, endings too, and have the providers send it.

        Returns: False, when `seconds` were not enough.
        """
        deadline = time.monotonic() + seconds
        done = threading.Event()
        self._queue.put(done)
        self.start()
        drained = done.wait(seconds)
        self._providers.flush(max(0.1, deadline - time.monotonic()))
        return drained

    # -- the thread ------------------------------------------------------------------------------------

    def _drain(self) -> None:
        while True:
            flushed = self._take_all()
            self._settle(whatever=bool(flushed))
            self._report()
            for done in flushed:
                done.set()
            time.sleep(GATHER_SECONDS)

    def _take_all(self) -> list[threading.Event]:
        """Take what is there, after waiting for it; who waits for a flush."""
        flushed: list[threading.Event] = []
        try:
            taken = self._queue.get(timeout=LOOK_SECONDS)
            while not isinstance(taken, threading.Event):
                self._take(taken)
                taken = self._queue.get_nowait()
            flushed.append(taken)
        except Empty:
            pass
        return flushed

    def _take(self, told: Told) -> None:
        if not self._is_new(told):
            return
        if told.event == "Finished":
            self._held[told.run_id] = (time.monotonic() + self._settle_seconds, told)
            return
        self._held.pop(told.run_id, None)  # the run has not ended after all
        self._make(told)

    def _is_new(self, told: Told) -> bool:
        seen = self._seen.setdefault(told.run_id, Seen())
        self._seen.move_to_end(told.run_id)
        if len(self._seen) > RUNS_MAX:
            self._seen.popitem(last=False)
        return seen.is_new(told)

    def _settle(self, *, whatever: bool) -> None:
        """Make the endings that are final."""
        if not self._held:
            return
        now = time.monotonic()
        for run_id in [run_id for run_id, (due, _) in self._held.items() if whatever or due <= now]:
            self._make(self._held.pop(run_id)[1])

    def _make(self, told: Told) -> None:
        for name, make in (("metrics", self._measure), ("spans", self._trace), ("logs", self._write)):
            try:
                make(told)
            except Exception:  # an exporter or a sampler of anybody's; the next event may fare better
                if name not in self._complained:
                    self._complained.add(name)
                    _log.exception("no %s were made of %s; this is said once", name, told.event)

    def _measure(self, told: Told) -> None:
        self._instruments().record(told)

    def _trace(self, told: Told) -> None:
        provider = self._providers.tracing()
        if provider is None or not spans.makes_one(told):
            return
        if self._tracer is None or self._tracer[0] is not provider:
            self._tracer = (provider, spans.tracer_of(provider), self._providers.exact())
        _, tracer, exact = self._tracer
        made = spans.of_event(told, exact=exact)
        if made is not None:
            spans.make(tracer, made)

    def _write(self, told: Told) -> None:
        if conventions.logged(told.event):
            logs.write(self._providers.logging(), told)

    def _instruments(self) -> Meters:
        provider = self._providers.metering()
        if self._meters is None or self._meters[0] is not provider:
            self._meters = (provider, Meters(provider))
        return self._meters[1]

    def _report(self) -> None:
        dropped = self._dropped
        if dropped == self._reported:
            return
        if not self._reported:
            _log.warning("telemetry cannot keep up: %d events are dropped so far; runs go on", dropped)
        self._instruments().dropped(dropped - self._reported)
        self._reported = dropped
