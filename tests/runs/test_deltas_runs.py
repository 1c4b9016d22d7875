"""Live deltas of whole runs: a real server, a real Redis, real HTTP to a scripted provider."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from temporalio.api.enums.v1 import EventType

from mainspring.client import Run, RunCancelled
from mainspring.deltas import Delta, InProcessDeltas, LiveText, RedisDeltas, during
from mainspring.embedded import Server
from mainspring.schemas.run import RunResult
from mainspring.testing import Case, serving
from support.chat_server import chat_server, saying
from support.history import assert_sound
from support.model import Stub, chunk
from support.redis_server import RedisServer, redis_server
from support.tools import observe

PATIENCE = 60
TEXT = "Ein langer Satz, der in vielen Stücken ankommt 🧵. " * 8
CANARY = "zebra-crossing"
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}


@pytest_asyncio.fixture(loop_scope="session")
async def redis() -> AsyncIterator[RedisServer]:
    """A Redis of the test's own."""
    async with redis_server() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def stub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stub]:
    """A provider on loopback that streams what it is told to."""
    monkeypatch.setenv("STUB_KEY", "sk-none")
    found = Stub()
    served = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.base_url = f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}/v1"
    yield found
    served.close()


def asking(base_url: str, **config: Any) -> dict[str, Any]:
    """Options of a case whose agent asks a provider on loopback."""
    spec = {"model": "openai-chat:m", "base_url": base_url, "api_key": "env:STUB_KEY"}
    return {"agent": {"model": "real"}, "config": {"models": {"real": spec}, **config}}


async def finished(case: Case, run: Run[Any]) -> RunResult:
    """The result of a run, whose history is sound."""
    result = await asyncio.wait_for(run.result(), PATIENCE)
    assert_sound(await case.history(run))
    return result


async def read(case: Case, deltas: InProcessDeltas | RedisDeltas, run: Run[Any]) -> list[Delta]:
    """Every delta of a run until it ends."""
    async with asyncio.timeout(PATIENCE):
        return [delta async for delta in during(deltas.of(run.id), case.again(run.id).result())]


def texts(deltas: Sequence[Delta]) -> list[str]:
    """The text that a reader ends every model call with."""
    live, ended = LiveText(), list[str]()
    for delta in deltas:
        if live.feed(delta) and live.state == "ended":
            ended.append(live.text)
    return ended


# -- what readers see ----------------------------------------------------------------------------------


async def test_run_streams_its_text_to_readers_in_the_process(server: Server) -> None:
    """Two readers see the reply grow piece by piece, and end with exactly the run's answer."""
    deltas = InProcessDeltas()
    async with serving(server.address, replies=[{"text": TEXT, "delay": 0.6}], deltas=deltas) as case:
        run = await case.start()
        readers = [asyncio.create_task(read(case, deltas, run)) for _ in range(2)]
        result = await finished(case, run)
        both = await asyncio.gather(*readers)
    assert both[0] == both[1]
    pieces = [delta.text for delta in both[0] if delta.kind == "text"]
    assert len(pieces) > 5
    assert "".join(pieces) == result.answer == TEXT
    assert texts(both[0]) == [TEXT]
    assert {(delta.stamp.run, delta.stamp.turn, delta.stamp.attempt) for delta in both[0]} == {(run.id, 1, 1)}


async def test_run_streams_its_text_through_redis(server: Server, redis: RedisServer) -> None:
    """The configuration alone is enough; every turn of the run has its deltas, each ends with its reply."""
    replies: list[dict[str, Any]] = [
        {"text": "Looking.", "thinking": "hm", "calls": [{"tool": "observe", "arguments": {"i": 1}}]},
        {"text": TEXT, "delay": 0.4},
    ]
    reader = RedisDeltas(redis.url, prefix="here:")
    config = {"deltas": {"redis": redis.url, "prefix": "here:"}}
    async with serving(server.address, replies=replies, tools=[observe], config=config) as case:
        run = await case.start()
        live = asyncio.create_task(read(case, reader, run))
        result = await finished(case, run)
        later = await read(case, reader, run)
        found = await live
    assert found == later
    assert texts(found) == ["Looking.", result.answer]
    assert [delta.text for delta in found if delta.kind == "thinking"] == ["hm"]
    assert [delta.stamp.turn for delta in found if delta.kind == "end"] == [1, 2]
    await reader.close()


async def test_run_streams_what_a_provider_streams(
    server: Server, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply over HTTP gets to the reader as it gets to the run."""
    monkeypatch.setenv("STUB_KEY", "sk-none")
    reader = RedisDeltas(redis.url)
    async with (
        chat_server([saying(TEXT)]) as provider,
        serving(server.address, **asking(provider.base_url, deltas={"redis": redis.url})) as case,
    ):
        run = await case.start()
        result = await finished(case, run)
        found = await read(case, reader, run)
    assert texts(found) == [result.answer] == [TEXT]
    assert "".join(delta.text for delta in found if delta.kind == "text") == TEXT
    await reader.close()


async def test_thinking_that_a_provider_streams_is_told_apart(server: Server, stub: Stub) -> None:
    """Readers get thinking under a kind of its own; it is no part of the text."""
    stub.answers = [
        stub.streams(
            chunk({"reasoning_content": "Hm, "}),
            chunk({"reasoning_content": "well."}),
            chunk({"content": "Yes."}),
            chunk(finish="stop"),
            usage=USAGE,
        )
    ]
    deltas = InProcessDeltas()
    async with serving(server.address, **asking(stub.base_url), deltas=deltas) as case:
        run = await case.start()
        reader = asyncio.create_task(read(case, deltas, run))
        result = await finished(case, run)
        found = await reader
    live = LiveText()
    for delta in found:
        live.feed(delta)
    assert (live.thinking, live.text, result.answer) == ("Hm, well.", "Yes.", "Yes.")


async def test_attempt_that_fails_in_mid_stream_is_replaced_by_the_next(
    server: Server, stub: Stub, redis: RedisServer
) -> None:
    """Half of a first reply, then a whole second one: the reader ends with the second alone."""
    stub.answers = [
        stub.streams(chunk({"content": "The first "}), chunk({"content": "attempt"})),
        stub.streams(
            chunk({"content": "The sec"}), chunk({"content": "ond."}), chunk(finish="stop"), usage=USAGE
        ),
    ]
    reader = RedisDeltas(redis.url)
    async with serving(server.address, **asking(stub.base_url, deltas={"redis": redis.url})) as case:
        run = await case.start()
        result = await finished(case, run)
        found = await read(case, reader, run)
    assert result.answer == "The second."
    assert [
        (delta.stamp.attempt, delta.kind) for delta in found if delta.kind not in ("text", "thinking")
    ] == [
        (1, "snapshot"),
        (1, "withdrawn"),
        (2, "snapshot"),
        (2, "end"),
    ]
    assert "".join(delta.text for delta in found if delta.stamp.attempt == 1) == "The first attempt"
    assert len({delta.stamp.call for delta in found}) == 1
    assert texts(found) == ["The second."]
    await reader.close()


async def test_half_a_character_in_each_of_two_chunks_is_one_character(server: Server, stub: Stub) -> None:
    """A provider that cuts inside a character: readers get it whole, in one piece."""
    stub.answers = [
        stub.streams(
            chunk({"content": "a \ud83e"}), chunk({"content": "\uddf5 b"}), chunk(finish="stop"), usage=USAGE
        )
    ]
    deltas = InProcessDeltas()
    async with serving(server.address, **asking(stub.base_url), deltas=deltas) as case:
        run = await case.start()
        reader = asyncio.create_task(read(case, deltas, run))
        result = await finished(case, run)
        found = await reader
    assert "".join(delta.text for delta in found if delta.kind == "text") == "a 🧵 b" == result.answer


async def test_reply_of_three_megabytes_is_streamed_whole_and_ends_as_the_run_holds_it(
    server: Server, stub: Stub, redis: RedisServer
) -> None:
    """All 3 MB are streamed; the end is the reply's own text, which is bounded."""
    piece = "0123456789abcde\n" * 512
    pieces = [chunk({"content": piece}) for _ in range(384)]
    stub.answers = [stub.streams(*pieces, chunk(finish="stop"), usage=USAGE)]
    reader = RedisDeltas(redis.url)
    async with serving(server.address, **asking(stub.base_url, deltas={"redis": redis.url})) as case:
        run = await case.start()
        result = await finished(case, run)
        found = await read(case, reader, run)
    assert "".join(delta.text for delta in found if delta.kind == "text") == piece * 384
    assert texts(found) == [result.answer]
    assert len(texts(found)[0]) < 512 * 1024
    await reader.close()


async def test_run_that_is_cancelled_in_mid_stream_withdraws_its_reply(
    server: Server, redis: RedisServer
) -> None:
    """The reader is told that no more will come, and keeps what was shown."""
    reader = RedisDeltas(redis.url)
    config = {"deltas": {"redis": redis.url}}
    async with serving(server.address, replies=[{"text": TEXT, "delay": 30}], config=config) as case:
        run = await case.start()
        live = LiveText()
        async with asyncio.timeout(PATIENCE):
            async for delta in reader.of(run.id):
                live.feed(delta)
                if delta.seq == 3:
                    await run.cancel()
                if live.state == "withdrawn":
                    break
            with pytest.raises(RunCancelled):
                await run.result()
    assert live.text
    assert TEXT.startswith(live.text)
    assert live.whole
    await reader.close()


async def test_conversation_numbers_its_exchanges(server: Server) -> None:
    """The stamp tells the exchanges apart, and what is newer in all of them."""
    deltas = InProcessDeltas()
    replies = [{"text": "one"}, {"text": "two"}]
    async with serving(server.address, replies=replies, deltas=deltas) as case:
        run = await case.start(lifetime="conversation")
        reader = asyncio.create_task(read(case, deltas, run))
        await run.follow_up("and?")
        await run.finish()
        await finished(case, run)
        found = await reader
    ends = [delta.stamp for delta in found if delta.kind == "end"]
    assert [stamp.exchange for stamp in ends] == [1, 2]
    assert ends[0].began < ends[1].began


# -- what a sink cannot do to a run --------------------------------------------------------------------


class Bad:
    """A sink that fails, or that never returns."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.asked = 0

    async def send(self, deltas: Sequence[Delta]) -> None:
        """Fail."""
        self.asked += 1
        if self._seconds is None:
            raise RuntimeError(CANARY)
        await asyncio.sleep(self._seconds)


async def timed(server: Server, replies: Sequence[dict[str, Any]], **options: Any) -> float:
    """Seconds that the activities of a run take; it must answer with the text of the last reply.

    Not the time of the whole run: what Temporal takes between two of them is no affair of a sink's.
    """
    async with serving(server.address, replies=list(replies), tools=[observe], **options) as case:
        run = await case.start()
        result = await asyncio.wait_for(run.result(), PATIENCE)
        history = await case.history(run)
        assert_sound(history)
    assert result.answer == replies[-1]["text"]
    started = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    ended = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    times = {
        kind: [e.event_time for e in history.events if e.event_type == kind] for kind in (started, ended)
    }
    assert len(times[started]) == len(times[ended]) > 0
    sums = {kind: sum(at.ToNanoseconds() for at in found) for kind, found in times.items()}
    return (sums[ended] - sums[started]) / 1e9


CALLS = [{"tool": "observe", "arguments": {"i": 1}}]
THREE: list[dict[str, Any]] = [
    {"text": "one", "calls": CALLS},
    {"text": "two", "calls": CALLS},
    {"text": TEXT, "delay": 0.3},
]


@pytest.mark.parametrize("seconds", [None, 0.05, 3_600])
async def test_run_completes_whatever_its_sink_does(server: Server, seconds: float | None) -> None:
    """One that raises, one that is slow, one that hangs: the latter is waited for once in three turns."""
    without = await timed(server, THREE)
    sink = Bad(seconds)
    assert await timed(server, THREE, deltas=sink) - without < 2.5
    assert sink.asked == 1 if seconds == 3_600 else sink.asked >= 3


async def test_run_completes_without_its_redis(server: Server) -> None:
    """A Redis that was never there costs the run nothing that a person would notice."""
    without = await timed(server, THREE)
    config = {"deltas": {"redis": "redis://127.0.0.1:1/0"}}
    assert await timed(server, THREE, config=config) - without < 2.5


async def test_run_completes_when_its_redis_is_lost_in_mid_stream(server: Server, redis: RedisServer) -> None:
    """The reply is whole, and the run takes hardly longer than the model."""
    reader = RedisDeltas(redis.url)
    config = {"deltas": {"redis": redis.url}}
    async with serving(server.address, replies=[{"text": TEXT, "delay": 1.5}], config=config) as case:
        began = time.perf_counter()
        run = await case.start()
        async with asyncio.timeout(PATIENCE):
            async for delta in reader.of(run.id):
                if delta.kind == "text":
                    redis.kill()
                    break
        result = await finished(case, run)
        took = time.perf_counter() - began
    assert result.answer == TEXT
    assert took < 1.5 + 2.5
    await reader.close()


# -- outside history -----------------------------------------------------------------------------------


async def _recorded(server: Server, **options: Any) -> tuple[list[str], bytes, RunResult]:
    replies = [{"text": "one", "calls": CALLS}, {"text": f"{CANARY} {TEXT}", "delay": 1.2}]
    async with serving(server.address, replies=replies, tools=[observe], **options) as case:
        run = await case.start()
        result = await finished(case, run)
        history = await case.history(run)
    kinds = [EventType.Name(event.event_type) for event in history.events]
    return kinds, b"".join(event.SerializeToString() for event in history.events), result


async def test_deltas_add_nothing_to_history(server: Server) -> None:
    """With a sink and without, a run has the same events, and its history holds the reply equally often."""
    without, plain, _ = await _recorded(server)
    deltas = InProcessDeltas()
    kinds, stored, result = await _recorded(server, deltas=deltas)
    assert kinds == without
    assert stored.count(CANARY.encode()) == plain.count(CANARY.encode())
    assert abs(len(stored) - len(plain)) < 64
    assert result.answer is not None


async def test_deltas_are_off_by_default(server: Server) -> None:
    """Without a sink an attempt has no feed: no task runs beside it."""
    async with serving(server.address, replies=[{"text": TEXT, "delay": 0.5}]) as case:
        run = await case.start()
        seen: set[str] = set()
        ended = asyncio.create_task(finished(case, run))
        while not ended.done():
            seen |= {task.get_name() for task in asyncio.all_tasks()}
            await asyncio.sleep(0.02)
    assert "mainspring-deltas" not in seen
    assert json.dumps((await ended).answer) == json.dumps(TEXT)
