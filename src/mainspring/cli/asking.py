"""Putting a run's questions to the person at the terminal, beside whatever else is shown of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from rich.text import Text

from mainspring.cli.output import err, note
from mainspring.cli.terminal import Foot, attended, typed
from mainspring.client import Run
from mainspring.errors import MainspringError
from mainspring.questions import Question, how_to_answer, picked
from mainspring.render import visible
from mainspring.run_errors import NoWorker, Refused

__all__ = ["Asking", "Hints", "attending", "put"]

LOOK_SECONDS = 1.0
"""So often it is seen whether somebody else has answered meanwhile."""
TOLD_SECONDS = 2.5
"""An event that tells more of what was seen comes within this time."""
ANSWER_SECONDS = 5.0
LINE_BYTES_MAX = 4_095
"""What a terminal takes of one line; it drops the rest without a word."""
HOW_LONG = "mainspring answer RUN - < FILE"

Event = Mapping[str, Any]


class Hints:
    """Says how to answer where nobody can be asked: each question that still waits, once."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run

    async def ask(self) -> None:
        """Ask nobody."""

    def tells(self, event: Event) -> bool:
        """Whether the event needs no line of its own."""
        return False

    async def heard(self, event: Event) -> None:
        """Take an event in; what cannot be found out soon is left unsaid."""
        if event["event"] != "QuestionAsked":
            return
        with suppress(MainspringError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                waiting = [question.id for question in await self._run.questions()]
            if event["question_id"] in waiting:
                which = event["question_id"] if len(waiting) > 1 else None
                note(f"! the run waits for an answer: {how_to_answer(self._run.id, which)}")


class Asking:
    """Asks the person what the run asks, one question after the other.

    Somebody else may answer first: the question is dropped then. A question that the person leaves (Ctrl-D)
    is not asked again.
    """

    def __init__(self, run: Run[Any], foot: Foot) -> None:
        self._run = run
        self._foot = foot
        self._news = asyncio.Event()
        self._closed: dict[str, str] = {}
        self._left: set[str] = set()

    def tells(self, event: Event) -> bool:
        """Whether the event needs no line of its own."""
        return bool(event["event"] == "QuestionAsked")

    async def heard(self, event: Event) -> None:
        """Take an event in."""
        if event["event"] == "QuestionClosed":
            self._closed[event["question_id"]] = event["status"]
        if event["event"] in ("QuestionAsked", "QuestionClosed"):
            self._news.set()

    async def ask(self) -> None:
        """Ask whenever there is something to ask, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while question := await self._next():
                try:
                    await self._settle(question)
                finally:
                    self._foot.show()

    async def _next(self) -> Question | None:
        try:
            waiting = await self._run.questions()
        except NoWorker:
            self._news.set()  # the question waits with the run for one
            return None
        return next((question for question in waiting if question.id not in self._left), None)

    async def _settle(self, question: Question) -> None:
        entering = asyncio.create_task(put(question, self._foot))
        gone = asyncio.create_task(self._gone(question))
        try:
            await asyncio.wait({entering, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (entering, gone):
                task.cancel()
            await asyncio.wait({entering, gone}, timeout=LOOK_SECONDS)
        self._foot.show()
        if entering.cancelled():
            gone.result()
            await self._tell_why(question)
            return
        if (words := entering.result()) is None:
            self._left.add(question.id)
            self._foot.print(
                Text(f"! not answered; later: {how_to_answer(self._run.id, question.id)}", "yellow")
            )
        else:
            await self._send(question, words)

    async def _gone(self, question: Question) -> None:
        """Return once the question waits no more."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_SECONDS)
            self._news.clear()
            with suppress(NoWorker):
                if question.id not in [item.id for item in await self._run.questions()]:
                    return

    async def _tell_why(self, question: Question) -> None:
        """Say that somebody else answered; all else the run's events say."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                while question.id not in self._closed:
                    await self._news.wait()
                    self._news.clear()
        if self._closed.get(question.id, "answered") == "answered":
            self._foot.print(Text("! somebody else has answered it", "yellow"))
        self._news.set()

    async def _send(self, question: Question, words: str) -> None:
        """Send the answer once, however long the run has no worker; a refusal is told and may be mended."""
        message, told = str(uuid4()), False
        while True:
            try:
                await self._run.answer(words, question.id, id=message)
                return
            except NoWorker:
                if not told:
                    self._foot.print(
                        Text("! no worker takes the answer yet; it is kept until one does", "yellow")
                    )
                told = True
            except Refused as error:
                self._foot.print(Text(f"! {error}", "yellow"))
                return


@asynccontextmanager
async def attending(run: Run[Any]) -> AsyncGenerator[None]:
    """While the block waits for a run, its questions are asked here, or it is said how to answer them."""
    foot = Foot()
    questions = Asking(run, foot) if attended() else Hints(run)
    state = await run.state()
    start = int(state.get("next_event", 0))

    async def listen() -> None:
        for waiting in state.get("questions", ()):
            await questions.heard({"event": "QuestionAsked", "question_id": waiting["question_id"]})
        async with aclosing(run.events(start)) as events:
            async for event in events:
                await questions.heard(event)

    beside = [asyncio.create_task(_quietly(doing)) for doing in (listen(), questions.ask())]
    try:
        yield
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside, timeout=LOOK_SECONDS)
        foot.hide()


async def _quietly(doing: Coroutine[Any, Any, None]) -> None:
    with suppress(MainspringError):
        await doing


async def put(question: Question, foot: Foot) -> str | None:
    """Show a question and read its answer; None when the person leaves it. A blank line asks again.

    On a foreground terminal only, see `attended`.
    """
    foot.hide()
    err.print(Text(f"? {visible(question.text)}", "yellow"))
    for number, option in enumerate(question.options, 1):
        err.print(f"  {number}) {visible(option)}", markup=False, soft_wrap=True)
    err.print(Text(_how(question), "dim"))
    while True:
        words = await typed(foot)
        if words is None:
            return None
        foot.entered()
        if any(len(line.encode()) >= LINE_BYTES_MAX for line in words.splitlines()):
            note("! a line of a terminal ends here, and may have been cut; send a long answer from a file:")
            note(f"  {HOW_LONG}")
        elif answer := picked(words, question.options):
            return answer


def _how(question: Question) -> str:
    """What may be typed, and until when."""
    choice = "a number, or any other answer" if question.options else "your answer"
    left = question.expires - datetime.now(UTC)
    local = question.expires.astimezone()
    if left.total_seconds() < 20 * 3600:
        until = f"{local:%H:%M}"
    else:
        until = f"{local:%Y-%m-%d}" if left.days < 3650 else ""
    return f"  {choice}{f' (until {until})' if until else ''}; Ctrl-D leaves it unanswered here"
