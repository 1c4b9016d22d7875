"""Saying something to a run: `steer`, `follow-up`, `answer`, `interrupt`, `pause`, `cancel` and the like."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mainspring.cli.app import AS_JSON, EXIT_NO_ANSWER, app, attached, command, connected
from mainspring.cli.asking import attending, put
from mainspring.cli.output import note, print_answer, print_json, problem
from mainspring.cli.terminal import Foot, attended
from mainspring.client import Run, get_run
from mainspring.errors import MainspringError
from mainspring.questions import Question, how_to_answer, picked
from mainspring.render import one_line
from mainspring.run_errors import ExchangeFailed, Refused

__all__: list[str] = []

PATIENCE_SECONDS = 15.0
LOOK_SECONDS = 3.0
SHOWN_CHARACTERS = 80

RUN = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
MESSAGE = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="The message; `-` reads it from standard input.")
]
ATTACH = Annotated[
    list[Path] | None, typer.Option("--attach", metavar="FILE", help="A file to go with it; repeat it.")
]


MESSAGE_ID = Annotated[
    str | None,
    typer.Option(
        "--message-id",
        metavar="ID",
        help="Of this message: one that got no answer is repeated under its id, not doubled.",
    ),
]


async def _run(run_id: str) -> Run[Any]:
    return get_run(await connected(), run_id, patience_seconds=PATIENCE_SECONDS)


@app.command(epilog="Example: mainspring steer guide-1f2e3d4c5b6a 'only the tests' --interrupt")
@command
async def steer(
    run: RUN,
    message: MESSAGE,
    interrupt: Annotated[
        bool, typer.Option("--interrupt", help="Withdraw what is in flight, so that it is heard at once.")
    ] = False,
    attach: ATTACH = None,
    message_id: MESSAGE_ID = None,
    as_json: AS_JSON = False,
) -> None:
    """Say something to the exchange under way."""
    found = await _run(run)
    text, files = _text(message), await attached(attach)
    number = await found.steer(text, interrupt=interrupt, attachments=files, id=message_id)
    _accepted(number, as_json)
    if not interrupt:
        await _note_questions(found)


@app.command(
    "follow-up", epilog="Example: mainspring follow-up guide-1f2e3d4c5b6a 'and in one sentence?' --wait"
)
@command
async def follow_up(
    run: RUN,
    message: MESSAGE,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer and print it.")] = False,
    attach: ATTACH = None,
    message_id: MESSAGE_ID = None,
    as_json: AS_JSON = False,
) -> int:
    """Say something that gets an exchange of its own, after the one under way."""
    found = await _run(run)
    text, files = _text(message), await attached(attach)
    if not wait:
        _accepted(await found.follow_up(text, attachments=files, id=message_id), as_json)
        return 0
    try:
        async with attending(found):
            answer = await found.ask(text, attachments=files, id=message_id)
    except ExchangeFailed as error:
        problem(str(error))
        return EXIT_NO_ANSWER
    if as_json:
        print_json({"answer": answer})
    else:
        print_answer(answer)
    return 0


@app.command(epilog="Example: mainspring answer guide-1f2e3d4c5b6a 'the blue one'")
@command
async def answer(
    run: RUN,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="The answer, or the number of an option; `-` reads it from standard input. "
            "Without: you are asked.",
        ),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option("--question", metavar="ID", help="Which one. Default: the only one that waits."),
    ] = None,
    message_id: MESSAGE_ID = None,
    as_json: AS_JSON = False,
) -> None:
    """Answer what a run asks. Its questions are in `state`; `list --awaiting answer` finds such runs.

    The number of an option, as `state` and `watch` show it, is that option.
    """
    if text is None and not attended():
        raise Refused(
            "give the answer as TEXT, or `-` to read it from standard input: nobody can be asked here"
        )
    found = await _run(run)
    if text is None:
        await _asked(found, question, message_id, as_json)
        return
    waiting = await found.questions()
    words = _meant(_text(text), waiting, question)
    answered = await found.answer(words, question, id=message_id)
    _answered(answered, words, waiting, as_json)


def _meant(text: str, waiting: Sequence[Question], question: str | None) -> str:
    """The text, or the option whose number it is; as it is written where the question has no options."""
    asked = [item for item in waiting if question in (None, item.id)]
    options = asked[0].options if len(asked) == 1 else ()
    return picked(text, options) if options else text


async def _asked(found: Run[Any], question: str | None, message_id: str | None, as_json: bool) -> None:
    """Put what waits to the person, one question after the other, or the one that is named."""
    waiting = await found.questions()
    chosen = [item for item in waiting if question in (None, item.id)]
    if not chosen:
        known = ", ".join(item.id for item in waiting) or "none"
        what = f"question {question!r}" if question else "question"
        raise Refused(f"answer: no {what} of run {found.id!r} waits; waiting: {known}")
    if len(chosen) > 1 and message_id is not None:
        raise Refused("answer: --message-id is of one message; name the question with --question")
    foot = Foot()
    for item in chosen:
        words = await put(item, foot)
        foot.hide()
        if words is None:
            raise Refused(f"not answered; later: {how_to_answer(found.id, item.id)}")
        _answered(await found.answer(words, item.id, id=message_id), words, waiting, as_json)


def _answered(answered: str, words: str, waiting: Sequence[Question], as_json: bool) -> None:
    """Say which question has which answer."""
    question = next((item for item in waiting if item.id == answered), None)
    if as_json:
        text = question.text if question else None
        told = {"status": "answered", "question_id": answered, "question": text, "answer": words}
        print_json(told, lines=True)
    else:
        which = f"{answered}: {question.brief}" if question else answered
        note(f"answered: {one_line(words, SHOWN_CHARACTERS)} ({which})")


async def _note_questions(found: Run[Any]) -> None:
    """Say that the message waits behind a question; when that cannot be found out soon, it is left unsaid."""
    with suppress(MainspringError, TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS):
            waiting = await found.questions()
        if waiting:
            which = waiting[0].id if len(waiting) > 1 else None
            note(f"! the run waits for an answer, and hears this after it: {how_to_answer(found.id, which)}")
            note("  --interrupt withdraws the question instead")


@app.command(epilog="Example: mainspring interrupt guide-1f2e3d4c5b6a")
@command
async def interrupt(run: RUN) -> None:
    """End the exchange under way without an answer; a conversation goes on."""
    await _told(run, lambda found: found.interrupt(), "interrupted")


@app.command(epilog="Example: mainspring pause guide-1f2e3d4c5b6a")
@command
async def pause(run: RUN) -> None:
    """Start no new model call or tool call until `resume`."""
    await _told(run, lambda found: found.pause(), "paused")


@app.command(epilog="Example: mainspring resume guide-1f2e3d4c5b6a")
@command
async def resume(run: RUN) -> None:
    """Go on after `pause`."""
    await _told(run, lambda found: found.resume(), "resumed")


@app.command(epilog="Example: mainspring finish guide-1f2e3d4c5b6a")
@command
async def finish(run: RUN) -> None:
    """End a conversation after what is queued."""
    await _told(run, lambda found: found.finish(), "told to finish")


@app.command(epilog="Example: mainspring cancel guide-1f2e3d4c5b6a")
@command
async def cancel(run: RUN) -> None:
    """Cancel a run."""
    await _told(run, lambda found: found.cancel(), "cancellation requested")


@app.command(
    "extend-budget", epilog="Example: mainspring extend-budget guide-1f2e3d4c5b6a --turns 20 --wall 10m"
)
@command
async def extend_budget(
    run: RUN,
    turns: Annotated[int | None, typer.Option(metavar="N", help="More turns.")] = None,
    tokens: Annotated[int | None, typer.Option(metavar="N", help="More tokens.")] = None,
    dollars: Annotated[float | None, typer.Option(metavar="AMOUNT", help="More dollars.")] = None,
    wall: Annotated[str | None, typer.Option(metavar="TIME", help="More time, as 90s or 10m.")] = None,
    calls: Annotated[int | None, typer.Option(metavar="N", help="More tool calls.")] = None,
    message_id: MESSAGE_ID = None,
) -> None:
    """Add to a run's budget, and print the new one."""
    found = await _run(run)
    more = {"turns": turns, "tokens": tokens, "calls": calls}
    print_json(await found.extend_budget(dollars=dollars, wall=wall, id=message_id, **more))


async def _told(run_id: str, say: Callable[[Run[Any]], Awaitable[None]], done: str) -> None:
    await say(await _run(run_id))
    note(f"run {run_id}: {done}")


def _accepted(number: int | None, as_json: bool) -> None:
    if as_json:
        print_json({"accepted": number})
    else:
        note("queued" if number is None else f"accepted as message {number}")


def _text(given: str) -> str:
    return sys.stdin.read() if given == "-" else given
