"""Following a run live, and saying how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from rich.live import Live

from mainspring.cli.app import EXIT_NO_ANSWER
from mainspring.cli.output import err, note, print_answer, print_json, problem
from mainspring.client import Run
from mainspring.errors import MainspringError
from mainspring.feed import in_flight, is_served
from mainspring.render import LiveView, line_of, spend_line, styled
from mainspring.run_errors import RunCancelled, RunFailed
from mainspring.schemas.run import RunResult

__all__ = ["end", "follow"]

LOOK_SECONDS = 0.4
SERVED_SECONDS = 5.0


async def follow(run: Run[Any], start: int, stop: asyncio.Event) -> bool:
    """Show a run until it ends (True) or the person has seen enough (False)."""
    shown = asyncio.create_task(_live(run, start) if err.is_terminal else _plain(run, start))
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


async def _plain(run: Run[Any], start: int) -> None:
    """A line an event."""
    looking = asyncio.create_task(_quietly(_complain_once(run)))
    try:
        async for event in run.events(start):
            line = line_of(event)
            if line is not None:
                note(line)
    finally:
        looking.cancel()


async def _quietly(looking: Coroutine[Any, Any, None]) -> None:
    """Look on beside the events; what goes wrong with the server, they report."""
    with suppress(MainspringError):
        await looking


async def _complain_once(run: Run[Any]) -> None:
    await asyncio.sleep(1.0)
    queue = (await run.channel.describe()).task_queue
    if not await is_served(run.channel.client, queue):
        note(f"! no worker serves task queue {queue!r}; the run waits for one: mainspring worker")


async def _live(run: Run[Any], start: int) -> None:
    """Lines of events, and below them what is under way."""
    view = LiveView()
    with Live(view, console=err, refresh_per_second=10, transient=True) as live:
        looking = asyncio.create_task(_quietly(_look(run, view)))
        try:
            async for event in run.events(start):
                view.feed(event)
                line = line_of(event)
                if line is not None:
                    live.console.print(styled(line))
        finally:
            looking.cancel()


async def _look(run: Run[Any], view: LiveView) -> None:
    """Keep the live view up to date with what events do not hold."""
    loop = asyncio.get_running_loop()
    queue = (await run.channel.describe()).task_queue
    asked = 0.0
    while True:
        if loop.time() - asked > SERVED_SECONDS:
            view.served = await is_served(run.channel.client, queue)
            asked = loop.time()
        view.flight = await in_flight(run.channel)
        await asyncio.sleep(LOOK_SECONDS)


async def end(run: Run[Any], as_json: bool) -> int:
    """Print how the run ended; the exit status that says the same."""
    try:
        result, status = await run.result(), 0
    except RunFailed as error:
        problem(str(error))
        if error.result is not None:
            _print_partial(error.result, as_json)
        elif as_json:
            outcome = "cancelled" if isinstance(error, RunCancelled) else None
            print_json({"outcome": outcome, "message": str(error)})
        return EXIT_NO_ANSWER
    note(spend_line(result.spend.model_dump()))
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        print_answer(result.answer or "")
    return status


def _print_partial(result: RunResult, as_json: bool) -> None:
    note(spend_line(result.spend.model_dump()))
    if as_json:
        print_json(result.model_dump(mode="json"))
    elif result.partial:
        note("its last words, which are no answer:")
        note(result.partial)
