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
from pydantic import BaseModel
from temporalio.client import Client
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
    attachment,
    get_run,
    start_run,
)
from mainspring.embedded import Server
from mainspring.errors import MainspringError
from mainspring.schemas.tools import BlobRef
from mainspring.testing import serving
from support.chain import EXECUTIONS, Chain
from support.tools import nap

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


async def test_cancelling_the_caller_is_not_repeated_away(server: Server) -> None:
    """A caller that gives up an update is free at once, not when its patience ends."""
    client = await Client.connect(server.address)
    run = await start_run(client, agent="guide", prompt="go", task_queue=_name())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await run.steer("x")


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
    client = await Client.connect(server.address)
    queue = _name()
    async with Worker(client, task_queue=queue, workflows=[Chain]):
        handle = await client.start_workflow("Chain", {}, id=_name(), task_queue=queue)
        yield get_run(client, handle.id)


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


async def _until(run: Run[Any], name: str) -> None:
    """Wait for an event."""
    async for event in run.events():
        if event["event"] == name:
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
