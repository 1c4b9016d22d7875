"""One run, by its id: what is said to it, what it shows, and how it ends.

Source: shared design, interfaces.md "On the wire", "In Python".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from mainspring.channel import Channel, server_errors
from mainspring.feed import follow
from mainspring.questions import Question, unclear
from mainspring.run_errors import (
    ExchangeFailed,
    Refused,
    RunCancelled,
    RunClosed,
    RunFailed,
    Unanswered,
    UpdatesUsedUp,
)
from mainspring.schemas.agent import BudgetPatch
from mainspring.schemas.base import JsonValue, problems, unwire, wire
from mainspring.schemas.ledger import Attachment, Entry
from mainspring.schemas.run import ANSWERED, RunResult
from mainspring.signalled import holds, mark, number_of

__all__ = ["Run"]

PAGE_ENTRIES = 200
EVENT_ANSWER_CHARACTERS = 2_048
_UNNAMED = "unnamed"
"""Stands for a question that waits no more, since its answer may be the one that is being repeated."""

T = TypeVar("T")


class Run(Generic[T]):
    """One run, by its id; `T` is the type of its output.

    Every method may raise `UnknownRun` and `Unreachable`; what needs the run's worker (all but `result`,
    `cancel` and the signals) may raise `NoWorker` and `Wedged`.

    A message is taken once, however often it has to be repeated. After one of these three errors it may
    still be taken: whoever sends it again passes `id=error.update_id`, and it is not doubled. Passing an `id`
    of one's own, up to 1,000 characters and another one for each message, does the same for a caller that
    gives up, or is killed, before there is an error.

    The server lets one execution of a run take 2,000 updates. Messages beyond that go as signals: they
    arrive just the same, but `id` is of no use for them.
    """

    def __init__(
        self,
        client: Client,
        run_id: str,
        output: type[BaseModel] | None,
        patience_seconds: float,
        channel: Channel | None = None,
    ) -> None:
        self._channel = channel or Channel(client, run_id, patience_seconds=patience_seconds)
        self._client = client
        self._output = output

    @property
    def id(self) -> str:
        """The run's id, which is its workflow id."""
        return self._channel.id

    @property
    def channel(self) -> Channel:
        """The line to the run: plain queries, updates and signals, as patient as the methods here."""
        return self._channel

    # -- saying something ---------------------------------------------------------------------------------

    async def steer(
        self,
        text: str,
        *,
        interrupt: bool = False,
        attachments: Sequence[Attachment] = (),
        id: str | None = None,
    ) -> int | None:
        """Words for the exchange under way; with `interrupt`, what is in flight is withdrawn for them.

        Returns: The number that the run gave the message; None when it went as a signal and cannot be told
            apart in the run's queue.
        Raises: TooLarge, RunClosed, Refused.
        """
        return await self._say("steer", text, attachments, {"interrupt": True} if interrupt else {}, id)

    async def follow_up(
        self, text: str, *, attachments: Sequence[Attachment] = (), id: str | None = None
    ) -> int | None:
        """Words for an exchange of their own, after the one under way.

        Returns: As `steer`.
        Raises: TooLarge, RunClosed, Refused.
        """
        return await self._say("follow_up", text, attachments, {}, id)

    async def ask(self, text: str, *, attachments: Sequence[Attachment] = (), id: str | None = None) -> str:
        """A follow-up, and the answer of its exchange.

        Asked again under its `id`, it is the same question: its exchange is found, also when it has ended.

        Raises: ExchangeFailed, TooLarge, RunClosed, Refused.
        """
        start = int((await self.state()).get("next_event", 0))
        number = await self.follow_up(text, attachments=attachments, id=id)
        if id is not None and number is not None:
            start = 0
        exchange: int | None = None
        async with aclosing(self.events(start)) as events:
            async for event in events:
                if event["event"] == "ExchangeStarted" and await self._opens(event, number, text):
                    exchange = event["exchange"]
                elif event["event"] == "ExchangeEnded" and event["exchange"] == exchange:
                    return await self._answer_of(event)
                elif event["event"] == "Finished":
                    raise ExchangeFailed(event["outcome"], event.get("code"), event.get("message"))
        raise ExchangeFailed("unanswered", None, "the run ended before the message was taken up")

    async def answer(self, text: str, question_id: str | None = None, *, id: str | None = None) -> str:
        """Answer a question of the run's; without `question_id` the only one that waits.

        Returns: The id of the question.
        Raises: Refused, naming the questions that wait, when it is not clear which one is meant; Refused with
            the reason, when that question is closed, or the text is blank or larger than an observation;
            TooLarge, RunClosed; UpdatesUsedUp, since no signal does this.
        """
        meant = question_id or await self._meant(repeated=id is not None)
        told = await self._channel.update("answer", {"question_id": meant, "text": text}, id=id)
        return str(told.get("question_id", meant))

    async def _meant(self, *, repeated: bool) -> str:
        """The id of the only question that waits.

        Raises: Refused, RunClosed.
        """
        waiting = await self.questions()
        if len(waiting) == 1:
            return waiting[0].id
        if not waiting and repeated:
            return _UNNAMED
        if not waiting and await self._channel.closed():
            raise RunClosed(f"run {self.id!r} has ended and takes no more messages")
        raise Refused(unclear(self.id, waiting))

    async def interrupt(self) -> None:
        """End the exchange under way without an answer.

        Raises: RunClosed.
        """
        await self._channel.signal("interrupt")

    async def finish(self) -> None:
        """End the run after what is queued; a conversation waits no longer.

        Raises: RunClosed.
        """
        await self._channel.signal("finish")

    async def pause(self) -> None:
        """Start no new model call or tool call; what is in flight ends.

        Raises: RunClosed.
        """
        await self._channel.signal("pause")

    async def resume(self) -> None:
        """Go on after `pause`.

        Raises: RunClosed.
        """
        await self._channel.signal("resume")

    async def cancel(self) -> None:
        """End the run as cancelled.

        Raises: RunClosed.
        """
        await self._channel.cancel()

    async def extend_budget(
        self,
        *,
        turns: int | None = None,
        tokens: int | None = None,
        dollars: float | None = None,
        wall: float | str | None = None,
        calls: int | None = None,
        id: str | None = None,
    ) -> dict[str, Any]:
        """Add to the budget's ceilings; `wall` in seconds or as `"10m"`.

        A run that has only just been started has no budget yet: that is waited for.

        Returns: The new budget.
        Raises: RunClosed, Refused; UpdatesUsedUp, since no signal does this.
        """
        given = {"turns": turns, "tokens": tokens, "dollars": dollars, "wall": wall, "calls": calls}
        try:
            more = unwire(BudgetPatch, {key: value for key, value in given.items() if value is not None})
        except ValidationError as error:
            raise Refused(f"extend_budget: {problems(error)}") from error
        return cast(dict[str, Any], await self._channel.update("extend_budget", wire(more), id=id))

    # -- looking ------------------------------------------------------------------------------------------

    async def state(self) -> dict[str, Any]:
        """Status, exchange, turn, spend, budget left, what is offered, pending and queued, the last text."""
        return cast(dict[str, Any], await self._channel.query("state"))

    async def questions(self) -> list[Question]:
        """What the run asks and nobody has answered yet, in the order of asking."""
        return [Question.of(item) for item in (await self.state()).get("questions", ())]

    def events(self, from_: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """Events from seq `from_`, live and across continue-as-new, until the run has ended.

        While the run is open and has no worker it waits; of a closed run, NoWorker is raised.
        """
        return follow(self._channel, from_)

    async def transcript(self, from_: int = 0, limit: int | None = None) -> list[Entry]:
        """Ledger entries from seq `from_`, all of them or at most `limit`; pages are followed."""
        entries: list[Entry] = []
        while limit is None or len(entries) < limit:
            wanted = PAGE_ENTRIES if limit is None else min(PAGE_ENTRIES, limit - len(entries))
            window = {"from": from_ + len(entries), "limit": wanted}
            page = await self._channel.query("transcript", window)
            if not page:
                break
            entries += [unwire(Entry, item) for item in page]
        return entries

    async def explain(self, turn: int | None = None) -> dict[str, Any]:
        """Why this offer, this plan, these verdicts, and the request's messages. Default: the newest turn.

        Raises: Refused, when there is no such turn.
        """
        return cast(dict[str, Any], await self._channel.query("explain", turn))

    async def catalog(self, digest: str | None = None) -> dict[str, Any]:
        """Tool definitions that the run works with.

        Raises: Refused, when the run has no catalog of that digest.
        """
        return cast(dict[str, Any], await self._channel.query("catalog", digest))

    # -- ending -------------------------------------------------------------------------------------------

    async def result(self) -> RunResult:
        """Wait for the end, through all continuations.

        Raises: RunFailed, RunCancelled.
        """
        handle = self._client.get_workflow_handle(self.id)
        try:
            with server_errors(self._client):
                return unwire(RunResult, await handle.result())
        except Refused:
            await self._channel.describe()  # an unknown run has a better error
            raise
        except WorkflowFailureError as error:
            raise _failure(self.id, error.cause) from error

    async def output(self) -> T:
        """Wait for the end; the output in its type, or the answer where the run has no output.

        Raises: RunFailed, RunCancelled, Refused (the output is not of that type).
        """
        result = await self.result()
        if self._output is None:
            return cast(T, result.answer if result.output is None else result.output)
        try:
            return cast(T, self._output.model_validate(result.output))
        except ValidationError as error:
            name = self._output.__name__
            raise Refused(f"the output of run {self.id!r} is no {name}: {problems(error)}") from error

    async def _say(
        self,
        name: str,
        text: str,
        attachments: Sequence[Attachment],
        more: Mapping[str, JsonValue],
        id: str | None,
    ) -> int | None:
        argument: dict[str, JsonValue] = {"message": text, **more}
        if attachments:
            argument["attachments"] = [wire(item) for item in attachments]
        try:
            answer = await self._channel.update(name, argument, id=id)
        except UpdatesUsedUp:
            return await self._signalled(name, text, argument)
        return int(answer["accepted"])

    async def _signalled(self, name: str, text: str, argument: Mapping[str, JsonValue]) -> int | None:
        since = await mark(self._channel)
        await self._channel.signal(name, argument)
        try:
            return await number_of(self._channel, name, text, since)
        except Unanswered:
            return None  # it has arrived, and would be doubled by whoever saw an error

    async def _opens(self, started: Mapping[str, Any], number: int | None, text: str) -> bool:
        """Whether that exchange is the message's own, by its number, or by its text where that is unknown."""
        if number is not None:
            return bool(started["accepted"] == number)
        return bool(started["accepted"]) and await holds(self._channel, started["entry"], text)

    async def _answer_of(self, ended: Mapping[str, Any]) -> str:
        """The answer of an exchange, whole; its event holds no more than the beginning of a long one."""
        if ended["outcome"] not in ANSWERED:
            raise ExchangeFailed(ended["outcome"], ended.get("code"), ended.get("message"))
        shown = str(ended.get("answer", ""))
        if len(shown) < EVENT_ANSWER_CHARACTERS or ended.get("entry") is None:
            return shown
        entry = (await self.transcript(ended["entry"], 1))[0]
        handed_over = [call.arguments.get("result") for call in entry.calls]
        whole = [text for text in (entry.content, *handed_over) if isinstance(text, str)]
        return next((text for text in whole if text.startswith(shown)), shown)


def _failure(run_id: str, cause: BaseException) -> RunFailed:
    """What a failed workflow says, in our words."""
    details = cause.details if isinstance(cause, ApplicationError | CancelledError) else ()
    try:
        result = unwire(RunResult, details[0]) if details else None
    except ValidationError:
        result = None
    if isinstance(cause, CancelledError):
        return RunCancelled(f"run {run_id!r} was cancelled", result)
    told = cause.message if isinstance(cause, ApplicationError) else str(cause)
    return RunFailed(f"run {run_id!r} ended without an answer: {told}", result)
