"""The Python client: starting runs, talking to them, following them to the end."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pydantic import BaseModel
from temporalio.client import CancelWorkflowInput, Client, Interceptor, OutboundInterceptor
from temporalio.service import RetryConfig
from temporalio.worker import Worker

from mainspring.attachments import INLINE_BYTES_MAX
from mainspring.client import (
    ExchangeFailed,
    NoWorker,
    Refused,
    Run,
    RunCancelled,
    RunClosed,
    RunExists,
    RunFailed,
    TooLarge,
    UnknownRun,
    Unreachable,
    UpdatesUsedUp,
    attachment,
    get_run,
    start_run,
)
from mainspring.embedded import Server, embedded
from mainspring.errors import MainspringError
from mainspring.schemas.tools import BlobRef
from mainspring.testing import Case, serving
from support.chain import EXECUTIONS, Chain
from support.relay import Relay, relayed
from support.tools import nap
from support.waiting import until

HASTY = RetryConfig(max_retries=1)
LONG = "A long answer. " * 400


class Report(BaseModel):
    """A typed output."""

    score: int


# --- starting ---


async def test_start_run_refuses_a_blank_prompt_before_it_is_sent(server: Server) -> None:
    """What can be seen to be wrong here is refused here, naming the field."""
    client = await Client.connect(server.address)
    with pytest.raises(Refused, match="prompt"):
        await start_run(client, agent="guide", prompt="  ")


async def test_start_run_refuses_what_the_server_would_not_store(server: Server) -> None:
    """A prompt of 2 MB is refused with its size; it never becomes a run."""
    client = await Client.connect(server.address)
    with pytest.raises(TooLarge, match="2000"):
        await start_run(client, agent="guide", prompt="x" * 2_000_000)


async def test_start_run_never_replaces_an_open_run(server: Server) -> None:
    """An id that is in use is refused while that run is open."""
    client = await Client.connect(server.address)
    first = await start_run(client, agent="guide", prompt="go", task_queue=_name())
    with pytest.raises(RunExists, match=first.id):
        await start_run(client, agent="guide", prompt="go", id=first.id, task_queue=_name())


async def test_output_is_of_the_type_that_was_asked_for(server: Server) -> None:
    """A pydantic model given as `output` is the schema of the run and the type of its output."""
    async with serving(server.address, replies=[{"text": '{"score": 7}'}]) as case:
        run = await start_run(
            case.client, agent="tested", prompt="rate it", output=Report, task_queue=case.task_queue
        )
        assert await run.output() == Report(score=7)


# --- talking ---


async def test_ask_returns_the_answer_of_its_own_exchange(server: Server) -> None:
    """A follow-up's answer is told apart from the answers before it."""
    async with serving(server.address, replies=[{"text": "one"}, {"text": "two"}]) as case:
        run = await case.start("first", lifetime="conversation")
        assert await run.ask("second") == "two"
        await run.finish()
        assert (await run.result()).exchanges == 2


async def test_ask_returns_a_long_answer_whole(server: Server) -> None:
    """The event of an exchange holds the beginning of a long answer; the caller gets all of it."""
    async with serving(server.address, replies=[{"text": "one"}, {"text": LONG}]) as case:
        run = await case.start("first", lifetime="conversation")
        assert await run.ask("second") == LONG
        await run.finish()
        await run.result()


async def test_ask_raises_when_its_exchange_has_no_answer(server: Server) -> None:
    """An exchange that fails is reported to whoever asked, and the conversation goes on."""
    async with serving(server.address, replies=[{"text": "one"}]) as case:
        run = await case.start("first", lifetime="conversation")
        with pytest.raises(ExchangeFailed, match="refused"):
            await run.ask("second")
        assert (await run.state())["awaiting"] == "follow_up"
        await run.finish()
        await run.result()


async def test_steer_refuses_what_would_wedge_the_run(server: Server) -> None:
    """An argument above 1 MB is refused here: above 2 MB the server's answer to it would park the run."""
    client = await Client.connect(server.address)
    with pytest.raises(TooLarge, match="attach"):
        await get_run(client, "any").steer("x" * 1_000_001)


async def test_update_is_refused_with_the_reason_of_the_run(server: Server) -> None:
    """What a run's validator refuses reaches the caller in its words."""
    async with serving(server.address, replies=[{"text": "one"}]) as case:
        run = await case.start(lifetime="conversation")
        with pytest.raises(Refused, match="blank"):
            await run.steer("   ")
        await run.finish()
        await run.result()


ASKS = {
    "calls": [{"tool": "nika:ask", "arguments": {"question": "Which colour?", "options": ["red", "blue"]}}]
}
ASKS_TWICE = {
    "calls": [
        {"tool": "nika:ask", "arguments": {"question": what}} for what in ("Which colour?", "Which size?")
    ]
}
ASKER = {"tools": ["nika:ask"]}


async def test_answer_goes_to_the_only_question_that_waits(server: Server) -> None:
    """Where there is no choice none is asked for; the answer becomes the call's observation."""
    async with serving(server.address, replies=[ASKS, {"text": "ok"}], agent=ASKER) as case:
        run = await case.start()
        await until(run, awaiting="answer")
        (question,) = await run.questions()
        assert (question.text, question.options) == ("Which colour?", ("red", "blue"))
        assert question.expires > question.asked
        assert await run.answer("blue") == question.id
        await run.result()
        observed = [entry.content for entry in await run.transcript() if entry.call_id == question.id]
        assert (observed, await run.questions()) == (["blue"], [])


async def test_answer_without_a_choice_is_refused_with_what_waits(server: Server) -> None:
    """With none or several that wait, the caller is told which there are; a named one is answered."""
    async with serving(server.address, replies=[ASKS_TWICE, {"text": "ok"}], agent=ASKER) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="answer")
        first, second = await run.questions()
        with pytest.raises(Refused, match=f"{first.id}: Which colour.*{second.id}: Which size"):
            await run.answer("blue")
        assert await run.answer("blue", first.id) == first.id
        with pytest.raises(Refused, match="answered"):
            await run.answer("red", first.id)
        assert await run.answer("large") == second.id
        await until(run, awaiting="follow_up")
        with pytest.raises(Refused, match="waits for no answer"):
            await run.answer("x")
        await run.finish()
        await run.result()
        with pytest.raises(RunClosed):
            await run.answer("x")


async def test_answer_repeated_under_its_id_is_the_same_answer(server: Server) -> None:
    """A caller that does not know whether its answer arrived sends it again, though nothing waits now."""
    async with serving(server.address, replies=[ASKS, {"text": "ok"}], agent=ASKER) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="answer")
        await run.answer("blue", id="mine")
        await until(run, awaiting="follow_up")
        await run.answer("blue", id="mine")
        with pytest.raises(Refused, match="no question"):
            await run.answer("blue", id="another")
        await run.finish()
        await run.result()


async def test_answer_is_refused_with_the_reason_of_the_run(server: Server) -> None:
    """A blank text, one that no observation holds, and an unknown question are the caller's to mend."""
    async with serving(server.address, replies=[ASKS, {"text": "ok"}], agent=ASKER) as case:
        run = await case.start()
        await until(run, awaiting="answer")
        for text, question, reason in (
            ("  ", None, "blank"),
            ("x" * 20_000, None, "16384"),
            ("x", "z", "'z'"),
        ):
            with pytest.raises(Refused, match=reason):
                await run.answer(text, question)
        await run.answer("blue")
        await run.result()


async def test_extend_budget_answers_with_the_new_budget(server: Server) -> None:
    """The budget that is returned has the turns that were added."""
    async with serving(server.address, replies=[{"text": "one"}], agent={"budgets": {"turns": 3}}) as case:
        run = await case.start(lifetime="conversation")
        await _until(run, "ExchangeEnded")
        assert (await run.extend_budget(turns=4))["turns"] == 7
        with pytest.raises(Refused, match="turns"):
            await run.extend_budget(turns=0)
        await run.finish()
        await run.result()


async def test_extend_budget_waits_until_there_is_a_budget(server: Server) -> None:
    """A run that is not armed yet refuses an extension; that passes, and the caller sees the new budget."""
    async with serving(
        server.address,
        replies=[{"text": "one"}],
        agent={"budgets": {"turns": 3}},
        no_remote_activities=True,
    ) as case:
        run = await case.start(lifetime="conversation")
        with pytest.raises(Refused, match="not armed yet"):
            await get_run(case.client, run.id, patience_seconds=0).extend_budget(turns=4)
        extending = asyncio.create_task(run.extend_budget(turns=4))
        client = await Client.connect(server.address, plugins=[case.plugin])
        async with Worker(client, task_queue=case.task_queue):
            assert (await extending)["turns"] == 7
            await run.finish()
            await run.result()


async def test_closed_run_takes_no_more_messages(server: Server) -> None:
    """Every way of talking to a run that has ended says that it has."""
    async with serving(server.address, replies=[{"text": "one"}]) as case:
        run = await case.start()
        await run.result()
        for say in (run.steer("x"), run.follow_up("x"), run.finish(), run.pause(), run.cancel()):
            with pytest.raises(RunClosed, match="completed"):
                await say


async def test_unknown_run_is_named(server: Server) -> None:
    """An id that the server does not know is an error of its own, whatever is asked of it."""
    client = await Client.connect(server.address)
    run = get_run(client, "nobody")
    for ask in (run.steer("x"), run.state(), run.result(), run.cancel(), run.finish()):
        with pytest.raises(UnknownRun, match="nobody"):
            await ask


async def test_missing_worker_is_told_apart_from_a_missing_run(server: Server) -> None:
    """A run that nobody serves is not lost: the error says that it waits for a worker."""
    client = await Client.connect(server.address)
    run = await start_run(client, agent="guide", prompt="go", task_queue=_name(), patience_seconds=1)
    with pytest.raises(NoWorker, match="mainspring worker"):
        await run.state()
    with pytest.raises(NoWorker):
        await run.steer("x")


async def test_message_that_got_no_answer_is_repeated_under_its_id(server: Server) -> None:
    """What was sent to nobody may still be taken; under the id that the error names, it is taken once."""
    async with _unserved_chain(server, patience_seconds=1) as (run, worker):
        with pytest.raises(NoWorker, match="repeated under the id") as caught:
            await run.steer("more")
        assert caught.value.update_id is not None
        assert caught.value.update_id in str(caught.value)
        async with worker:
            assert await run.steer("more", id=caught.value.update_id) == 1
            assert await run.steer("more") == 2


async def test_ask_under_its_id_is_the_same_question(server: Server) -> None:
    """A question that is asked again under its id gets the answer that it had; the model hears it once."""
    async with serving(server.address, replies=[{"text": "one"}, {"text": "two"}]) as case:
        run = await case.start("first", lifetime="conversation")
        assert [await run.ask("second", id="mine") for _ in range(2)] == ["two", "two"]
        await run.finish()
        assert (await run.result()).exchanges == 2


async def test_server_that_is_gone_is_told_apart_from_a_refusal(server: Server) -> None:
    """Every way of talking to a run says that the server does not answer; a script can wait for it."""
    async with relayed(server.address) as relay:
        client = await Client.connect(relay.address, retry_config=HASTY)
        run = await start_run(client, agent="guide", prompt="go", task_queue=_name(), patience_seconds=1)
        relay.cut()
        saying = (run.pause(), run.finish(), run.cancel(), run.steer("x"), run.state())
        outcomes = await asyncio.gather(*saying, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unreachable] * len(saying)


async def test_server_that_goes_before_it_is_told_to_cancel(server: Server) -> None:
    """A cancellation that did not get through is no refusal either, however far it had come."""
    async with relayed(server.address) as relay:
        client = await Client.connect(
            relay.address, interceptors=[_CutBeforeCancel(relay)], retry_config=HASTY
        )
        run = await start_run(client, agent="guide", prompt="go", task_queue=_name(), patience_seconds=1)
        with pytest.raises(Unreachable):
            await run.cancel()


class _CutBeforeCancel(Interceptor):
    """Loses the connection at the moment at which a run is to be cancelled."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        relay = self._relay

        class Cut(OutboundInterceptor):
            async def cancel_workflow(self, input: CancelWorkflowInput) -> None:
                relay.cut()
                await super().cancel_workflow(input)

        return Cut(next)


async def test_cancelling_the_caller_is_not_repeated_away(server: Server) -> None:
    """A caller that gives up an update is free at once, not when its patience ends."""
    client = await Client.connect(server.address)
    run = await start_run(client, agent="guide", prompt="go", task_queue=_name())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await run.steer("x")


# --- when the server takes no more updates ---


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def strict() -> AsyncIterator[Server]:
    """A server that lets one execution take one update, in place of 2,000."""
    async with embedded(settings={"history.maxTotalUpdates": 1}) as started:
        yield started


@asynccontextmanager
async def _used_up(
    strict: Server, *replies: dict[str, Any], **serve: Any
) -> AsyncIterator[tuple[Case, Run[Any]]]:
    """A conversation that has answered its prompt and had its one update."""
    async with serving(strict.address, replies=[{"text": "one"}, *replies], **serve) as case:
        run = await case.start("first", lifetime="conversation")
        await _until(run, "ExchangeEnded")
        await run.extend_budget(turns=1)
        yield case, run
        await run.finish()
        await run.result()


async def test_ask_works_when_updates_are_used_up(strict: Server) -> None:
    """A question goes as a signal then, and its own answer is found."""
    async with _used_up(strict, {"text": "two"}, {"text": "three"}) as (_, run):
        assert [await run.ask("second"), await run.ask("second")] == ["two", "three"]


async def test_message_has_its_number_when_updates_are_used_up(strict: Server) -> None:
    """The number of a message that went as a signal is the run's own, whether it waits or was taken."""
    replies = [{"calls": [{"tool": "nap", "arguments": {"seconds": 1}}]}, {"text": "two"}, {"text": "three"}]
    async with _used_up(strict, *replies, tools=[nap]) as (case, run):
        assert await run.follow_up("look") == 1
        await _until(run, "TurnStarted", 2)
        assert [await run.steer("only the tests"), await run.follow_up("and then?")] == [2, 3]
        await _until(run, "ExchangeEnded", 3)
        events = await case.events(run)
    heard = [event["accepted"] for event in events if event["event"] in ("Steered", "ExchangeStarted")]
    assert heard == [0, 1, 2, 3]


async def test_signalled_message_is_refused_with_the_reason_of_the_run(strict: Server) -> None:
    """A signal has no answer, and what the run refuses reaches the caller in its words nevertheless."""
    async with _used_up(strict) as (_, run):
        with pytest.raises(Refused, match="blank"):
            await run.follow_up("   ")


async def test_what_no_signal_does_is_refused_when_updates_are_used_up(strict: Server) -> None:
    """A budget is extended by update alone: the caller is told at once, and not that there is no worker."""
    async with _used_up(strict) as (_, run):
        with pytest.raises(UpdatesUsedUp, match="all of its updates"):
            await run.extend_budget(turns=1)


# --- following ---


async def test_events_end_with_the_run_and_can_be_taken_up_anywhere(server: Server) -> None:
    """The stream ends by itself with `Finished`, and a later start gives exactly the rest."""
    async with serving(server.address, replies=[{"text": "one"}]) as case:
        run = await case.start()
        seen = [event async for event in run.events()]
        rest = [event async for event in run.events(3)]
    assert seen[-1]["event"] == "Finished"
    assert rest == seen[3:]


async def test_events_are_live(server: Server) -> None:
    """An event is seen while the run goes on."""
    replies = [{"calls": [{"tool": "nap", "arguments": {"seconds": 3}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start()
        async for event in run.events():
            if event["event"] == "BudgetCheckpoint":
                assert (await run.state())["outcome"] is None
                break
        await run.result()


async def test_transcript_follows_pages(server: Server) -> None:
    """A transcript longer than a page comes whole, and a window of it is that window."""
    replies = [{"calls": [{"tool": "nap", "arguments": {"seconds": 0}}] * 60, "repeat": 4}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[nap]) as case:
        run = await case.start()
        await run.result()
        entries = await run.transcript()
        window = await run.transcript(from_=205, limit=3)
    assert [entry.seq for entry in entries] == list(range(1 + 4 * 61 + 1))
    assert window == entries[205:208]


async def test_events_of_a_terminated_run_end(server: Server) -> None:
    """A run that the server ended has no last event; its stream ends nevertheless."""
    async with serving(server.address, replies=[{"text": "one"}], replays=False) as case:
        run = await case.start(lifetime="conversation")
        await run.state()
        await case.handle(run).terminate(reason="for the test")
        names = [event["event"] async for event in run.events()]
        with pytest.raises(RunFailed, match="for the test"):
            await run.result()
    assert "Finished" not in names


# --- ending ---


async def test_result_of_a_failed_run_raises_with_the_whole_result(server: Server) -> None:
    """The exception of a run without an answer holds what the run itself says about its end."""
    async with serving(server.address, replies=[{"text": "one"}]) as case:
        run = await case.start(agent="nobody")
        with pytest.raises(RunFailed, match="nobody") as caught:
            await run.result()
    assert caught.value.result is not None
    assert caught.value.result.code == "NIKA-465"


async def test_result_of_a_cancelled_run_raises_run_cancelled(server: Server) -> None:
    """A run that a person cancelled is told apart from one that failed."""
    async with serving(server.address, replies=[{"text": "late", "delay": 20}]) as case:
        run = await case.start()
        await run.state()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()


# --- across continue-as-new ---


@asynccontextmanager
async def _chain(server: Server) -> AsyncIterator[Run[Any]]:
    async with _unserved_chain(server) as (run, worker), worker:
        yield run


@asynccontextmanager
async def _unserved_chain(server: Server, **options: Any) -> AsyncIterator[tuple[Run[Any], Worker]]:
    client = await Client.connect(server.address)
    queue = _name()
    handle = await client.start_workflow("Chain", {}, id=_name(), task_queue=queue)
    yield get_run(client, handle.id, **options), Worker(client, task_queue=queue, workflows=[Chain])


async def test_events_are_whole_across_continue_as_new(server: Server) -> None:
    """Events that only earlier executions hold are fetched from them, in order, each once."""
    async with _chain(server) as run:
        following = asyncio.create_task(_seqs(run))
        for _ in range(EXECUTIONS):
            await run.steer("release")
        live = await following
        late = await _seqs(run)
    assert live == late == list(range(EXECUTIONS + 1))


async def test_update_is_taken_once_across_continue_as_new(server: Server) -> None:
    """Updates sent while the run continues as new arrive, each once, whatever had to be repeated."""
    async with _chain(server) as run:
        numbers = await asyncio.gather(*(_steer(run, index) for index in range(30)))
        taken = [number for number in numbers if number is not None]
        counted = await run.channel.client.get_workflow_handle(run.id).result()
    assert len(set(taken)) == len(taken) == counted


async def _steer(run: Run[Any], index: int) -> int | None:
    """Send one message, every fifth of which ends an execution; None when the chain had ended before."""
    await asyncio.sleep(index * 0.1)
    try:
        return await run.steer("release" if index % 5 == 4 else "more")
    except RunClosed:
        return None


async def _until(run: Run[Any], name: str, times: int = 1) -> None:
    """Wait for an event, the first or a later one of that name."""
    async for event in run.events():
        times -= event["event"] == name
        if not times:
            return


async def _seqs(run: Run[Any]) -> list[int]:
    return [event["seq"] async for event in run.events()]


# --- attachments ---


async def test_attachment_is_inline_while_it_is_small(tmp_path: Path) -> None:
    """A small file goes with the message, under its own name and type."""
    file = tmp_path / "picture.png"
    file.write_bytes(b"\x89PNG")
    made = await attachment(file)
    assert (made.name, made.media_type) == ("picture.png", "image/png")
    assert base64.b64decode(made.data or "") == b"\x89PNG"


async def test_attachment_goes_through_a_blob_store_when_it_is_large() -> None:
    """A large one becomes a reference, and without a store the error says what is missing."""
    content = b"x" * (INLINE_BYTES_MAX + 1)
    with pytest.raises(TooLarge, match="blob store"):
        await attachment(content, name="big.txt")
    made = await attachment(content, name="big.txt", blobs=_Store())
    assert made.blob == BlobRef(digest="stored", size=len(content), media_type="text/plain", name="big.txt")


async def test_attachment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file is the caller's error, with its path."""
    with pytest.raises(MainspringError, match="absent"):
        await attachment(tmp_path / "absent.txt")


class _Store:
    async def put(self, data: bytes, media_type: str = "", name: str | None = None) -> BlobRef:
        return BlobRef(digest="stored", size=len(data), media_type=media_type, name=name)


def _name() -> str:
    return f"test-{uuid4().hex[:12]}"


async def test_misspelt_option_is_refused_and_starts_nothing(server: Server) -> None:
    """An option that there is not is an error that names the nearest, not another run than was meant."""
    client = await Client.connect(server.address)
    misspelt: dict[str, Any] = {"lifetme": "conversation"}
    with pytest.raises(TypeError, match="did you mean 'lifetime'"):
        await start_run(client, agent="guide", prompt="hello", **misspelt)
