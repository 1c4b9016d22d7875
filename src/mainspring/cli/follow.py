"""Following a run live, and saying how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rich.padding import Padding
from rich.text import Text

from mainspring.cli.app import EXIT_NO_ANSWER
from mainspring.cli.asking import Asking, Hints
from mainspring.cli.output import err, note, print_answer, print_json, problem
from mainspring.cli.terminal import Foot, attended
from mainspring.client import Run
from mainspring.errors import MainspringError
from mainspring.feed import CallInFlight, in_flight, is_served, unserved
from mainspring.narration import Narrator, stall_lines
from mainspring.render import (
    CallText,
    LiveView,
    count,
    hint_of_queue,
    shown,
    spend_line,
    started_line,
    styled,
)
from mainspring.run_errors import RunCancelled, RunFailed
from mainspring.schemas.run import RunResult
from mainspring.workflows.intrinsics import ASK

__all__ = ["end", "follow"]

LOOK_SECONDS = 0.4
QUIET_SECONDS = 5.0
"""After this long without anything new, whoever watches is told what it waits for."""
FIRST_LOOK_SECONDS = 1.0
ANSWER_SECONDS = 5.0
"""What only adds to the picture is waited for no longer."""


async def follow(run: Run[Any], start: int, stop: asyncio.Event, *, ask: bool = False) -> bool:
    """Show a run until it ends (True) or the person has seen enough (False).

    With `ask` its questions are put to the person at the terminal; where there is none, or without it, it is
    said how to answer them.
    """
    shown = asyncio.create_task(
        _live(run, start, ask and attended()) if err.is_terminal else _plain(run, start)
    )
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({shown, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not shown.done():
            return False
        await shown
        return True
    finally:
        for task in (shown, stopped):
            task.cancel()
            with suppress(asyncio.CancelledError, MainspringError):
                await task


class _Ledger:
    """What the ledger holds beside the events: arguments and results of calls, words of replies."""

    def __init__(self, run: Run[Any]) -> None:
        self.run = run
        self.calls: dict[str, CallText] = {}
        self.texts: dict[int, str] = {}
        self._next = 0
        self._reading = asyncio.Lock()

    async def call(self, event: Mapping[str, Any]) -> CallText | None:
        """The call that an event tells the end of."""
        if event["event"] != "ToolCompleted":
            return None
        told_by_result = event["status"] == "error" or event["tool"] == ASK
        if told_by_result or event["call_id"] not in self.calls:
            await self.learn()
        return self.calls.get(event["call_id"])

    async def text(self, event: Mapping[str, Any]) -> str | None:
        """What the model said beside its calls, once its reply is there."""
        if event["event"] != "BudgetCheckpoint":
            return None
        if event["turn"] not in self.texts:
            await self.learn()
        return self.texts.pop(event["turn"], None)

    async def learn(self) -> None:
        """Read on; what does not come soon is done without."""
        with suppress(MainspringError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS), self._reading:
                while page := await self.run.channel.query("transcript", {"from": self._next}):
                    for entry in page:
                        self._take(entry)
                    self._next = page[-1]["seq"] + 1

    def _take(self, entry: Mapping[str, Any]) -> None:
        for call in entry.get("calls", ()):
            self.calls[call["id"]] = CallText(call.get("arguments", {}), tool=call["tool"])
        if entry.get("calls") and entry.get("content"):
            self.texts[entry.get("turn", 0)] = shown(entry["content"])
        asked = self.calls.get(entry.get("call_id") or "")
        if asked is not None:
            self.calls[entry["call_id"]] = replace(asked, said=entry.get("content", ""))


class _Watch:
    """Looks on beside the events of a run, and says what keeps it waiting."""

    def __init__(self, run: Run[Any], ledger: _Ledger) -> None:
        self.run = run
        self.ledger = ledger
        self.told: set[str] = set()
        self.heard()

    def heard(self) -> None:
        """Something new has come."""
        self.since = asyncio.get_running_loop().time()
        self.told.clear()

    @property
    def quiet(self) -> float:
        """Seconds without anything new."""
        return asyncio.get_running_loop().time() - self.since

    async def complain(self) -> None:
        """Print what keeps the run waiting, each thing once until something new comes."""
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        while True:
            if self.quiet >= FIRST_LOOK_SECONDS:
                self._say(await self.hint(()))
            if self.quiet >= QUIET_SECONDS:
                for call in (await in_flight(self.run.channel)).calls:
                    if call.seconds >= QUIET_SECONDS:
                        self._say(await self._started(call))
                        self._say(await self.hint((call,)))
            await asyncio.sleep(min(QUIET_SECONDS, max(FIRST_LOOK_SECONDS, self.quiet / 10)))

    async def hint(self, calls: Sequence[CallInFlight]) -> str:
        """What to do about a task queue that nobody serves: one of a call's, else the run's."""
        client = self.run.channel.client
        for call in calls:
            waits = call.task_queue if call.seconds >= QUIET_SECONDS else None
            if waits is not None and not await is_served(client, waits, activities=True):
                return hint_of_queue(waits, call=True)
        queue = await unserved(self.run.channel)
        return "" if queue is None else hint_of_queue(queue)

    async def _started(self, call: CallInFlight) -> str:
        if call.id not in self.ledger.calls:
            await self.ledger.learn()
        return started_line(call.tool, self.ledger.calls.get(call.id))

    def _say(self, line: str) -> None:
        if line and line not in self.told:
            self.told.add(line)
            note(line if line.startswith("→") else f"! {line}")


async def _plain(run: Run[Any], start: int) -> None:
    """A line an event."""
    narrator, ledger, hints = Narrator(), _Ledger(run), Hints(run)
    watch = _Watch(run, ledger)
    looking = asyncio.create_task(_quietly(watch.complain()))
    try:
        async for event in run.events(start):
            watch.heard()
            for line in narrator.lines(event, await ledger.call(event)):
                note(line)
            await hints.heard(event)
    finally:
        looking.cancel()
    for line in narrator.held:
        note(line)


async def _quietly(looking: Coroutine[Any, Any, None]) -> None:
    """Look on beside the events; what goes wrong with the server, they report."""
    with suppress(MainspringError):
        await looking


async def _live(run: Run[Any], start: int, ask: bool) -> None:
    """Lines of events, and below them what is under way; what was said beside calls stays, dimmed."""
    narrator, ledger = Narrator(), _Ledger(run)
    watch, view = _Watch(run, ledger), LiveView(calls=ledger.calls)
    foot = Foot(view)
    questions = Asking(run, foot) if ask else Hints(run)
    foot.show()
    beside = [asyncio.create_task(_quietly(doing)) for doing in (_look(watch, view), questions.ask())]
    try:
        async for event in run.events(start):
            watch.heard()
            view.feed(event)
            if text := await ledger.text(event):
                view.flight = replace(view.flight, text="")
                foot.print(Padding(Text(text.strip(), "dim"), (0, 0, 0, 2)))
            if not questions.tells(event):
                for line in narrator.lines(event, await ledger.call(event)):
                    foot.print(styled(line))
            await questions.heard(event)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside, timeout=LOOK_SECONDS)
        foot.hide()
    for line in narrator.held:
        err.print(styled(line))


async def _look(watch: _Watch, view: LiveView) -> None:
    """Keep the live view up to date with what events do not hold."""
    loop = asyncio.get_running_loop()
    asked = loop.time()
    while True:
        view.flight = await in_flight(watch.run.channel)
        if any(call.id not in view.calls for call in view.flight.calls):
            await watch.ledger.learn()
        if loop.time() - asked > FIRST_LOOK_SECONDS:
            asked = loop.time()
            view.hint = await watch.hint(view.flight.calls) if watch.quiet > FIRST_LOOK_SECONDS else ""
        await asyncio.sleep(LOOK_SECONDS)


async def end(run: Run[Any], as_json: bool) -> int:
    """Print how the run ended; the exit status that says the same."""
    try:
        result, status = await run.result(), 0
    except RunFailed as error:
        problem(_stalled(run, error.result) or str(error))
        if error.result is not None:
            _print_partial(error.result, as_json)
        else:
            await _print_known(run, error, as_json)
        return EXIT_NO_ANSWER
    note(spend_line(result.spend.model_dump()))
    _note_unanswered(result)
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        print_answer(result.answer or "")
    return status


async def _print_known(run: Run[Any], error: RunFailed, as_json: bool) -> None:
    """What there is of a run that left no result: its worker, if one answers, knows what it spent."""
    known: dict[str, Any] = {}
    with suppress(MainspringError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            known = await run.state()
    if known:
        note(spend_line(known["spend"]))
    if as_json:
        outcome = "cancelled" if isinstance(error, RunCancelled) else None
        told = {name: known[name] for name in ("turn", "exchange", "spend") if name in known}
        print_json({"outcome": outcome, "message": str(error), **told})


def _stalled(run: Run[Any], result: RunResult | None) -> str | None:
    """Why a run that stalled ended, with what repeated, one turn a line."""
    if result is None or result.stall is None:
        return None
    stall = result.stall
    told = stall_lines(stall.period, stall.repeats, stall.steps)
    return f"run {run.id!r} ended without an answer: {result.outcome} ({result.code}): {told}"


def _note_unanswered(result: RunResult) -> None:
    if result.unanswered:
        note(f"! {count(len(result.unanswered), 'message')} unanswered")


def _print_partial(result: RunResult, as_json: bool) -> None:
    note(spend_line(result.spend.model_dump()))
    _note_unanswered(result)
    if as_json:
        print_json(result.model_dump(mode="json"))
    elif result.partial:
        note("its last words, which are no answer:")
        note(result.partial)
