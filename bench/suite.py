"""The suite: every measurement on every contestant, interleaved, in one run on one server."""

import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from bench.contestant import ENGINE, FLOOR
from bench.remote import ContestantFailed, Remote
from bench.server import Server


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        turns: Length of the run whose history and replay have bars.
        peer_turns: Length of the run on which peers are compared; they grow with its square.
        early, late: The turns whose bytes are compared; each is the median of five around it.
        runs: Runs at once when a turn is timed, of `timed_turns` each.
        repetitions: Times that each timing is taken; every contestant once in each.
    """

    turns: int = 200
    peer_turns: int = 100
    early: int = 20
    late: int = 190
    runs: int = 50
    timed_turns: int = 20
    repetitions: int = 5
    compared_runs: int = 10


QUICK = Sizes(
    turns=60, peer_turns=30, early=10, late=50, runs=20, timed_turns=10, repetitions=1,
    compared_runs=4,
)  # fmt: skip


@dataclass(slots=True)
class Samples:
    """What was measured: measure → contestant → one value for each repetition.

    `failures` says why a contestant has no values: measure → contestant → reason.
    """

    values: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    failures: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def median(self, measure: str, name: str) -> float | None:
        """The median of the repetitions, or None when there are none."""
        values = self.values.get(measure, {}).get(name)
        return statistics.median(values) if values else None

    def ratio(self, measure: str, name: str) -> float | None:
        """The median of the ratios to the floor, each taken within one repetition.

        Pairing within a repetition cancels what slows the machine for a while.
        """
        ours = self.values.get(measure, {}).get(name, [])
        floors = self.values.get(measure, {}).get(FLOOR, [])
        pairs = [our / floor for our, floor in zip(ours, floors, strict=False) if floor]
        return statistics.median(pairs) if pairs else None


Another = Callable[[str], AbstractAsyncContextManager[Remote]]
"""Starts one more process of a contestant, for measurements with two workers."""


class Suite:
    """Takes measurements into `samples`. A contestant that fails is left out of that measure."""

    def __init__(
        self,
        server: Server,
        remotes: Mapping[str, Remote],
        another: Another,
        sizes: Sizes,
        note: Callable[[str], None],
    ) -> None:
        self._server = server
        self._remotes = remotes
        self._another = another
        self._sizes = sizes
        self._note = note
        self.samples = Samples()

    async def history(self) -> None:
        """Record a run of each length; measure its bytes and those of an early and a late turn."""
        for turns in self._lengths():
            for name in self._runners(turns):
                await self._try(f"history@{turns}", name, self._history_of(name, turns))

    async def replay(self) -> None:
        """Replay what `history` recorded."""
        for turns in self._lengths():
            failed = self.samples.failures[f"history@{turns}"]
            self.samples.failures[f"replay@{turns}"].update(failed)
            for name in self._interleaved(self._runners(turns)):
                await self._try(f"replay@{turns}", name, self._replay_of(name, turns))

    async def time(self) -> None:
        """Time a turn with many runs at once, and count the queries that the server was asked.

        A server just started is slower: the floor runs once unmeasured, so that its first
        repetition does not make everybody else look fast.
        """
        turns, runs = self._sizes.timed_turns, self._sizes.runs
        await self._remotes[FLOOR].ask("time", turns=turns, runs=runs)
        for name in self._interleaved(list(self._remotes)):
            await self._try("time", name, self._time_of(name))

    async def workers(self) -> None:
        """Compare the engine's transcripts under one worker with those under two."""
        if ENGINE in self._remotes:
            await self._try("workers", ENGINE, self._workers_of(ENGINE))

    def _lengths(self) -> list[int]:
        peers = set(self._remotes) - {FLOOR, ENGINE}
        return [self._sizes.turns, *([self._sizes.peer_turns] if peers else [])]

    def _runners(self, turns: int) -> list[str]:
        """Who runs a script of this length: peers only the shorter one."""
        short = turns == self._sizes.peer_turns
        return [name for name in self._remotes if short or name in (FLOOR, ENGINE)]

    def _interleaved(self, names: list[str]) -> list[str]:
        """Each repetition has every name once, each starting with the next name."""
        order = []
        for repetition in range(self._sizes.repetitions):
            start = repetition % len(names)
            order += names[start:] + names[:start]
        return order

    async def _try(self, measure: str, name: str, attempt: Callable[[], Awaitable[dict[str, float]]]) -> None:
        """Add what `attempt` measured, unless this contestant has failed this measure."""
        if name in self.samples.failures[measure]:
            return
        try:
            measured = await attempt()
        except ContestantFailed as failure:
            self.samples.failures[measure][name] = str(failure)
            self._note(f"{measure} · {name}: failed: {failure}")
            return
        for what, value in measured.items():
            self.samples.values[what][name].append(value)
        told = ", ".join(f"{what} {value:,.4g}" for what, value in measured.items())
        self._note(f"{measure} · {name}: {told}")

    def _history_of(self, name: str, turns: int) -> Callable[[], Awaitable[dict[str, float]]]:
        async def attempt() -> dict[str, float]:
            shape = await self._remotes[name].ask("history", turns=turns)
            if len(shape["turn_bytes"]) != turns:
                raise ContestantFailed(f"{len(shape['turn_bytes'])} turns in a run of {turns}")
            measured = {
                f"history@{turns}": shape["bytes"],
                f"events@{turns}": shape["events"] / turns,
            }
            if turns == self._sizes.turns:
                measured["growth"] = self._growth(shape)
            return measured

        return attempt

    def _growth(self, shape: dict[str, Any]) -> float:
        early, late = (
            statistics.median(shape["turn_bytes"][turn - 3 : turn + 2])
            for turn in (self._sizes.early, self._sizes.late)
        )
        return float(late / early)

    def _replay_of(self, name: str, turns: int) -> Callable[[], Awaitable[dict[str, float]]]:
        async def attempt() -> dict[str, float]:
            reply = await self._remotes[name].ask("replay", turns=turns, times=1)
            return {f"replay@{turns}": reply["seconds"][0]}

        return attempt

    def _time_of(self, name: str) -> Callable[[], Awaitable[dict[str, float]]]:
        async def attempt() -> dict[str, float]:
            runs, turns = self._sizes.runs, self._sizes.timed_turns
            asked = self._server.requests("QueryWorkflow")
            reply = await self._remotes[name].ask("time", turns=turns, runs=runs)
            return {
                "time": reply["seconds"] / (runs * turns),
                "cpu": reply["cpu_seconds"] / (runs * turns),
                "queries": self._server.requests("QueryWorkflow") - asked,
            }

        return attempt

    def _workers_of(self, name: str) -> Callable[[], Awaitable[dict[str, float]]]:
        async def attempt() -> dict[str, float]:
            remote = self._remotes[name]
            what = {"turns": self._sizes.timed_turns, "runs": self._sizes.compared_runs}
            alone = await remote.ask("digests", queue="bench-one-worker", **what)
            async with self._another(name) as second:
                await second.ask("serve", queue="bench-two-workers", turns=what["turns"])
                asked = self._server.requests("QueryWorkflow")
                shared = await remote.ask("digests", queue="bench-two-workers", **what)
                queries = self._server.requests("QueryWorkflow") - asked - shared["own_queries"]
                await second.ask("rest")
            # The directive, a reply and an observation a turn, the answer: fewer would compare equal too.
            expected = 2 * self._sizes.timed_turns + 2
            if set(alone["entries"] + shared["entries"]) != {expected}:
                raise ContestantFailed(f"transcripts of {shared['entries']} entries, not {expected}")
            if set(alone["workers"]) != {1} or set(shared["workers"]) != {2}:
                raise ContestantFailed(f"runs were not spread over two workers: {shared['workers']}")
            differ = sum(one != two for one, two in zip(alone["digests"], shared["digests"], strict=True))
            return {"workers": float(differ), "queries of two workers": float(queries)}

        return attempt
