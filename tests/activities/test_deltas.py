"""Live deltas: what a reader makes of them, how they get to a sink, and what a sink may not do to a call."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.activities.delta_feed import (
    DELTA_CHARACTERS,
    DRAIN_SECONDS,
    SNAPSHOT_CHARACTERS,
    DeltaFeed,
    DeltaFeeds,
)
from mainspring.activities.in_process_deltas import READER_DELTAS, RUNS_MAX
from mainspring.activities.redis_deltas import configured
from mainspring.deltas import Delta, DeltaSink, InProcessDeltas, LiveText, RedisDeltas, Stamp, during
from mainspring.errors import ConfigError
from mainspring.schemas.config import DeltaSpec
from mainspring.workflows.values import safe_text
from support.redis_server import RedisServer, redis_server

PATIENCE = 20
STAMP = Stamp("run", "execution", 1, 2, "ab12cd34-7", 1, 1_000)


@pytest_asyncio.fixture(loop_scope="session")
async def redis() -> AsyncIterator[RedisServer]:
    """A Redis of the test's own."""
    async with redis_server() as started:
        yield started


class Kept:
    """A sink that keeps what it is given, one batch after the other, each after a pause."""

    def __init__(self, seconds: float = 0.0, fails_at: int | None = None) -> None:
        self.deltas: list[Delta] = []
        self.batches = 0
        self._seconds = seconds
        self._fails_at = fails_at

    async def send(self, deltas: Sequence[Delta]) -> None:
        """Keep them."""
        self.batches += 1
        if self._fails_at is not None and self.batches >= self._fails_at:
            raise ConnectionError("redis://:password@host is gone")
        if self._seconds:
            await asyncio.sleep(self._seconds)
        self.deltas += deltas

    def told(self, kind: str) -> list[str]:
        """The texts of one kind."""
        return [delta.text for delta in self.deltas if delta.kind == kind]


def opened(sink: DeltaSink, stamp: Stamp = STAMP) -> DeltaFeed:
    """The feed of an attempt."""
    feed = DeltaFeeds(sink).open(stamp)
    assert feed is not None
    return feed


async def streamed(
    sink: DeltaSink, pieces: Sequence[str], end: str | None, pause: float | None = 0.0
) -> None:
    """One attempt that streams some pieces; without a pause they all come at once."""
    feed = opened(sink)
    for piece in pieces:
        feed.text(piece)
        if pause is not None:
            await asyncio.sleep(pause)
    await feed.close(end)


def read(deltas: Sequence[Delta]) -> LiveText:
    """What a reader has after these."""
    live = LiveText()
    for delta in deltas:
        live.feed(delta)
    return live


# -- what a reader makes of them -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "text", "state"),
    [
        ([], "", "waiting"),
        ([("snapshot", "")], "", "streaming"),
        ([("snapshot", ""), ("text", "a"), ("text", "b")], "ab", "streaming"),
        ([("snapshot", ""), ("text", "a"), ("snapshot", "ab"), ("text", "c")], "abc", "streaming"),
        ([("snapshot", ""), ("thinking", "hm"), ("text", "a")], "a", "streaming"),
        ([("snapshot", ""), ("text", "a"), ("end", "A.")], "A.", "ended"),
        ([("snapshot", ""), ("text", "a"), ("withdrawn", "")], "a", "withdrawn"),
    ],
)
def test_live_text_does_what_each_kind_says(told: list[tuple[str, str]], text: str, state: str) -> None:
    """Snapshots and the end replace, pieces are added, a withdrawn attempt keeps what it showed."""
    live = read([Delta(STAMP, seq, kind, piece) for seq, (kind, piece) in enumerate(told)])  # type: ignore[arg-type]
    assert (live.text, live.state, live.whole) == (text, state, True)


def test_live_text_keeps_thinking_apart_and_drops_it_with_its_attempt() -> None:
    """Thinking is no part of the text, and a retry begins without it."""
    live = read(
        [Delta(STAMP, 0, "snapshot"), Delta(STAMP, 1, "thinking", "hm"), Delta(STAMP, 2, "text", "a")]
    )
    assert (live.thinking, live.text) == ("hm", "a")
    live.feed(Delta(replace(STAMP, attempt=2, began=2_000), 0, "snapshot"))
    assert (live.thinking, live.text) == ("", "")


def test_live_text_knows_what_it_lacks_until_a_snapshot_makes_it_whole() -> None:
    """A gap in the numbers means a loss; the next snapshot repairs it."""
    live = read([Delta(STAMP, 0, "snapshot"), Delta(STAMP, 1, "text", "a"), Delta(STAMP, 3, "text", "c")])
    assert (live.text, live.whole) == ("ac", False)
    live.feed(Delta(STAMP, 4, "snapshot", "abc"))
    assert (live.text, live.whole) == ("abc", True)


def test_live_text_takes_a_repeated_delta_once() -> None:
    """A sink that had to send twice repeats no word."""
    told = [Delta(STAMP, 0, "snapshot"), Delta(STAMP, 1, "text", "a"), Delta(STAMP, 2, "text", "b")]
    live = read([*told, *told[1:]])
    assert live.feed(told[2]) is False
    assert (live.text, live.whole) == ("ab", True)


def test_live_text_of_an_attempt_is_void_once_a_later_one_begins() -> None:
    """An attempt that was lost to its server and still streams changes nothing, be it of this call or not."""
    second = replace(STAMP, attempt=2, began=2_000)
    later = replace(STAMP, execution="next", call="ef56ab78-1", turn=3, began=3_000)
    live = read([Delta(STAMP, 0, "snapshot"), Delta(STAMP, 1, "text", "one"), Delta(second, 0, "snapshot")])
    assert live.feed(Delta(STAMP, 2, "text", "more")) is False
    assert live.feed(Delta(second, 1, "text", "two")) is True
    assert live.feed(Delta(later, 0, "snapshot")) is True
    assert live.feed(Delta(second, 2, "end", "two")) is False
    assert (live.text, live.stamp) == ("", later)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Delta], str]:
    """Deltas of several attempts, mixed, some lost and some repeated; the reply of the newest."""
    texts = st.lists(st.text(max_size=3), max_size=6)
    attempts: list[list[Delta]] = []
    reply = draw(st.text(max_size=9))
    count = draw(st.integers(1, 4))
    for number in range(1, count + 1):
        stamp = replace(STAMP, attempt=number, began=1_000 * number)
        told: list[Delta] = [Delta(stamp, 0, "snapshot")]
        for piece in draw(texts):
            kind = draw(st.sampled_from(["text", "thinking", "snapshot"]))
            told.append(Delta(stamp, len(told), kind, piece))
        if number < count:
            if draw(st.booleans()):
                told.append(Delta(stamp, len(told), "withdrawn"))
            told = [delta for delta in told if draw(st.booleans())]
        else:
            kept = [delta for delta in told if draw(st.booleans())]
            told = [*kept, Delta(stamp, len(told), "end", reply)]
        attempts.append([delta for delta in told for _ in range(draw(st.integers(1, 2)))])
    mixed: list[Delta] = []
    while any(attempts):
        mixed.append(draw(st.sampled_from([told for told in attempts if told])).pop(0))
    return mixed, reply


@given(histories())
def test_live_text_is_the_reply_once_the_newest_attempt_has_ended(case: tuple[list[Delta], str]) -> None:
    """Whatever was lost, repeated or late, in any order of the attempts, and without changing again."""
    deltas, reply = case
    live = read(deltas)
    assert (live.text, live.state, live.whole) == (reply, "ended", True)


@given(histories())
def test_live_text_shows_the_newest_attempt_as_if_there_were_no_other(case: tuple[list[Delta], str]) -> None:
    """At every moment, the deltas of earlier attempts, before and after, make no difference."""
    live = LiveText()
    for at, delta in enumerate(case[0]):
        live.feed(delta)
        alone = read([each for each in case[0][: at + 1] if each.stamp == live.stamp])
        assert (live.text, live.thinking, live.state) == (alone.text, alone.thinking, alone.state)
        assert live.whole == alone.whole


def test_delta_survives_its_flat_form_as_text() -> None:
    """Every field comes back from JSON, and from a Redis entry, where all of it is text."""
    delta = Delta(STAMP, 3, "text", "ein Stück 🧵")
    assert Delta.of_fields("run", json.loads(json.dumps(delta.fields()))) == delta
    assert Delta.of_fields("run", {name: str(value) for name, value in delta.fields().items()}) == delta


@pytest.mark.parametrize("changed", [{"kind": "of a later version"}, {"seq": "first"}, {"began": None}])
def test_delta_is_none_of_what_is_none(changed: dict[str, object]) -> None:
    """An entry that somebody else wrote, or a later version, is passed over."""
    assert Delta.of_fields("run", {**Delta(STAMP, 0, "text").fields(), **changed}) is None
    assert Delta.of_fields("run", {}) is None


# -- on the way to a sink ------------------------------------------------------------------------------


async def test_feed_begins_with_a_snapshot_and_ends_with_the_reply() -> None:
    """An empty snapshot, each piece by itself, and the end, numbered without gaps."""
    sink = Kept()
    await streamed(sink, ["Hel", "lo"], "Hello.")
    assert [(delta.kind, delta.text) for delta in sink.deltas] == [
        ("snapshot", ""),
        ("text", "Hel"),
        ("text", "lo"),
        ("end", "Hello."),
    ]
    assert [delta.seq for delta in sink.deltas] == [0, 1, 2, 3]
    assert {delta.stamp for delta in sink.deltas} == {STAMP}


async def test_feed_without_a_reply_is_withdrawn() -> None:
    """An attempt that fails or is cancelled says so, after everything that it streamed."""
    sink = Kept()
    await streamed(sink, ["half a", " word"], None)
    assert read(sink.deltas).text == "half a word"
    assert sink.deltas[-1].kind == "withdrawn"


async def test_feed_joins_what_a_slow_sink_has_no_time_for() -> None:
    """500 pieces for a sink of 20 ms a batch: far fewer deltas, and not a character lost."""
    sink = Kept(seconds=0.02)
    pieces = [f"{number} " for number in range(500)]
    await streamed(sink, pieces, "".join(pieces))
    assert "".join(sink.told("text")) == "".join(pieces)
    assert len(sink.told("text")) < 100


async def test_feed_keeps_the_order_of_text_and_thinking() -> None:
    """What is joined is only what stood side by side."""
    sink = Kept()
    feed = opened(sink)
    for piece in "abc":
        feed.thought(piece)
    for piece in "de":
        feed.text(piece)
    feed.thought("f")
    await feed.close("de")
    assert [(delta.kind, delta.text) for delta in sink.deltas[1:-1]] == [
        ("thinking", "abc"),
        ("text", "de"),
        ("thinking", "f"),
    ]


@pytest.mark.parametrize("fails_at", [1, 2, 5])
async def test_feed_switches_a_failing_sink_off_with_one_line(
    fails_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink is not asked again in that attempt; the line names the error's kind and none of its words."""
    sink = Kept(fails_at=fails_at)
    await streamed(sink, ["a"] * 50, "a" * 50)
    assert sink.batches == fails_at
    lines = [record.getMessage() for record in caplog.records if record.name == "mainspring.deltas"]
    assert len(lines) == 1
    assert "ConnectionError" in lines[0]
    assert "password" not in lines[0]


async def test_feed_tells_of_a_lost_sink_once_for_all_attempts(caplog: pytest.LogCaptureFixture) -> None:
    """A hundred attempts that lose their sink at the same time are one line."""
    feeds = DeltaFeeds(Kept(fails_at=1))
    for _ in range(100):
        feed = feeds.open(STAMP)
        assert feed is not None
        await feed.close("a")
    assert len([record for record in caplog.records if record.name == "mainspring.deltas"]) == 1


async def test_feed_gives_a_failed_sink_another_chance_at_the_next_attempt() -> None:
    """An error is of one attempt."""
    sink = Kept(fails_at=2)
    feeds = DeltaFeeds(sink)
    feed = feeds.open(STAMP)
    assert feed is not None
    feed.text("a")
    await feed.close("a")
    assert feeds.open(STAMP) is not None


async def test_feed_waits_a_second_for_a_dead_sink_and_then_lets_it_rest() -> None:
    """The end of an attempt takes a second at most; the attempts right after it are not held up at all."""
    feeds = DeltaFeeds(Kept(seconds=3_600))
    feed = feeds.open(STAMP)
    assert feed is not None
    feed.text("a")
    began = time.perf_counter()
    await feed.close("a")
    assert DRAIN_SECONDS * 0.9 < time.perf_counter() - began < DRAIN_SECONDS + 2
    assert feeds.open(STAMP) is None


async def test_feed_holds_no_more_than_a_bound_for_a_sink_that_hangs() -> None:
    """A sink far behind is taken for dead while the model still streams."""
    feeds = DeltaFeeds(Kept(seconds=3_600))
    feed = feeds.open(STAMP)
    assert feed is not None
    for _ in range(9 * 1024):
        feed.text("x" * 1_024)
    began = time.perf_counter()
    await feed.close("x")
    assert time.perf_counter() - began < DRAIN_SECONDS * 0.9
    assert feeds.open(STAMP) is None


async def test_feed_lets_go_of_its_task() -> None:
    """Nothing of an attempt goes on after it, however its sink behaves."""
    for sink in (Kept(), Kept(fails_at=1), Kept(seconds=3_600)):
        await streamed(sink, ["a"], "a")
    await asyncio.sleep(0.01)
    assert [task for task in asyncio.all_tasks() if task.get_name() == "mainspring-deltas"] == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("aé🧵\x00\ud83e\uddf5"), max_size=4), max_size=12),
    st.lists(st.integers(0, 30), max_size=12),
    st.booleans(),
)
def test_feed_sends_valid_unicode_however_it_was_cut(
    words: list[str], cuts: list[int], at_once: bool
) -> None:
    """Halves of characters in different pieces become the character, in deltas that all can decode."""
    halves = "".join(words).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    units = [chr(unit) for unit in memoryview("".join(words).encode("utf-16-le", "surrogatepass")).cast("H")]
    bounds = sorted({0, len(units), *(cut for cut in cuts if cut < len(units))})
    pieces = ["".join(units[left:right]) for left, right in pairwise(bounds)]
    sink = Kept()
    asyncio.run(streamed(sink, pieces, None, None if at_once else 0.0))
    whole = "".join(sink.told("text"))
    whole.encode("utf-8")
    assert whole == safe_text(halves[:-1] if "\ud800" <= halves[-1:] <= "\udbff" else halves)


async def test_feed_cuts_a_reply_of_three_megabytes_into_parts() -> None:
    """One piece of 3 MB arrives whole, in deltas of at most 64 Ki characters."""
    text = "0123456789abcde\n" * (3 * 1024 * 1024 // 16)
    sink = Kept()
    await streamed(sink, [text], text[:1_000])
    assert "".join(sink.told("text")) == text
    assert max(map(len, sink.told("text"))) == DELTA_CHARACTERS
    assert len(sink.told("text")) == 48


@pytest.mark.parametrize("count", [100, 2_000, 20_000])
async def test_feed_repeats_at_most_nine_times_the_text_in_snapshots(count: int) -> None:
    """Snapshots come often enough for a late reader, and cost a bounded multiple of the text."""
    sink = Kept()
    await streamed(sink, ["tok "] * count, "end")
    snapshots = sink.told("snapshot")[1:]
    assert snapshots
    assert all(text == "tok " * (len(text) // 4) for text in snapshots)
    assert sum(map(len, snapshots)) <= 9 * 4 * count
    assert len(snapshots[-1]) >= 4 * count * 7 // 9 - 300


async def test_feed_takes_no_snapshot_of_a_text_beyond_what_a_reply_may_hold() -> None:
    """A text longer than a reply's bound is streamed, and not repeated."""
    sink = Kept()
    await streamed(sink, ["x" * 4_096] * 400, "x")
    assert read(sink.deltas[:-1]).text == "x" * (400 * 4_096)
    assert max(map(len, sink.told("snapshot"))) <= SNAPSHOT_CHARACTERS


# -- in the process ------------------------------------------------------------------------------------


async def take(deltas: InProcessDeltas | RedisDeltas, run: str = "run", **options: str) -> list[Delta]:
    """What a reader gets until a reply has ended or is withdrawn."""
    found: list[Delta] = []
    async with asyncio.timeout(PATIENCE):
        async for delta in deltas.of(run, **options):
            found.append(delta)
            if delta.kind in ("end", "withdrawn"):
                break
    return found


async def test_in_process_readers_each_get_everything() -> None:
    """Two readers of one run, and none of another run's."""
    sink = InProcessDeltas()
    readers = [asyncio.create_task(take(sink)) for _ in range(2)]
    await asyncio.sleep(0)
    other = opened(sink, replace(STAMP, run="other"))
    await streamed(sink, ["a", "b"], "ab")
    await other.close("other")
    for found in await asyncio.gather(*readers):
        assert [delta.kind for delta in found] == ["snapshot", "text", "text", "end"]
        assert {delta.stamp.run for delta in found} == {"run"}


@pytest.mark.parametrize("end", ["abc.", None])
async def test_in_process_reader_that_comes_late_begins_where_the_call_stands(end: str | None) -> None:
    """In mid-stream with a snapshot; after the end with the end."""
    sink = InProcessDeltas()
    feed = opened(sink)
    feed.text("ab")
    await asyncio.sleep(0.01)
    late = asyncio.create_task(take(sink))
    await asyncio.sleep(0.01)
    feed.text("c")
    await feed.close(end)
    found = await late
    assert (found[0].kind, found[0].text) == ("snapshot", "ab")
    for deltas in (found, await take(sink)):
        live = read(deltas)
        assert (live.text, live.whole) == (end or "abc", True)


async def test_in_process_reader_that_is_slow_gets_a_snapshot_for_what_it_missed() -> None:
    """A reader that sleeps through thousands of deltas holds few of them, and ends with the whole text."""
    sink = InProcessDeltas()
    slow = sink.of("run")
    first = asyncio.create_task(anext(slow))
    await asyncio.sleep(0)
    pieces = [f"{number} " for number in range(3 * READER_DELTAS)]
    await streamed(sink, pieces, "".join(pieces))
    found = [await first]
    async for delta in slow:
        found.append(delta)
        if delta.kind == "end":
            break
    assert len(found) <= READER_DELTAS + 2
    before_end = read(found[:-1])
    assert (before_end.text, before_end.whole) == ("".join(pieces), True)
    await slow.aclose()


async def test_in_process_reader_is_not_told_of_an_attempt_that_was_replaced() -> None:
    """What a lost attempt still streams stays away from readers, who then need no reducer."""
    sink = InProcessDeltas()
    second = replace(STAMP, attempt=2, began=2_000)
    reader = asyncio.create_task(take(sink))
    await asyncio.sleep(0)
    await sink.send([Delta(STAMP, 0, "snapshot"), Delta(STAMP, 1, "text", "one")])
    await sink.send([Delta(second, 0, "snapshot")])
    await sink.send([Delta(STAMP, 2, "text", " more")])
    await sink.send([Delta(second, 1, "end", "two")])
    assert [delta.text for delta in await reader] == ["", "one", "", "two"]


async def test_in_process_reader_may_live_in_another_thread() -> None:
    """A reader on an event loop of its own gets everything too."""
    sink = InProcessDeltas()
    found: list[Delta] = []
    thread = threading.Thread(target=lambda: found.extend(asyncio.run(take(sink))))
    thread.start()
    pieces = [f"{number} " for number in range(200)]
    await asyncio.sleep(0.1)
    await streamed(sink, pieces, "".join(pieces))
    await asyncio.to_thread(thread.join, PATIENCE / 2)
    assert not thread.is_alive()
    assert read(found[:-1]).text == "".join(pieces)
    assert found[-1].kind == "end"


async def test_in_process_sink_forgets_runs_that_nobody_reads() -> None:
    """It holds a bounded number of runs; one that is read is not among those that go."""
    sink = InProcessDeltas()
    reader = asyncio.create_task(take(sink, "read"))
    await asyncio.sleep(0)
    for number in range(RUNS_MAX + 10):
        await sink.send([Delta(replace(STAMP, run=f"run-{number}"), 0, "end", "x")])
    await sink.send([Delta(replace(STAMP, run="read"), 0, "end", "y")])
    assert [delta.text for delta in await reader] == ["y"]
    first = asyncio.create_task(take(sink, "run-0"))
    await asyncio.sleep(0.01)
    assert not first.done()
    first.cancel()


async def test_during_ends_with_what_it_is_given_and_keeps_the_last() -> None:
    """Reading ends when the run does, failed or not, with everything that was sent before."""
    sink = InProcessDeltas()

    async def run() -> None:
        await streamed(sink, ["a", "b"], "ab")
        raise ConnectionError

    async with asyncio.timeout(PATIENCE):
        found = [delta async for delta in during(sink.of("run"), run())]
    assert [delta.kind for delta in found] == ["snapshot", "text", "text", "end"]


async def test_during_lets_go_of_everything_when_reading_stops() -> None:
    """A reader that leaves in the middle leaves no task behind, and the task that it was given goes on."""
    sink = InProcessDeltas()
    before = asyncio.all_tasks()
    theirs = asyncio.create_task(asyncio.sleep(3_600))
    await sink.send([Delta(STAMP, 0, "snapshot")])
    reading = during(sink.of("run"), theirs)
    await anext(reading)
    await reading.aclose()
    assert asyncio.all_tasks() - before == {theirs}
    theirs.cancel()


# -- Redis ---------------------------------------------------------------------------------------------


async def test_redis_readers_get_what_was_written(redis: RedisServer) -> None:
    """Readers from the start, in the middle of waiting and after the end have the same deltas."""
    deltas = RedisDeltas(redis.url)
    waiting = [asyncio.create_task(take(deltas)) for _ in range(2)]
    pieces = ["Stück ", "für ", "Stück 🧵"]
    await streamed(deltas, pieces, "".join(pieces), 0.01)
    found = [*await asyncio.gather(*waiting), await take(deltas)]
    assert found[0] == found[1] == found[2]
    assert [delta.seq for delta in found[0]] == list(range(len(found[0])))
    assert "".join(delta.text for delta in found[0] if delta.kind == "text") == "".join(pieces)
    assert found[0][-1].text == "".join(pieces)
    await deltas.close()


async def test_redis_entry_is_flat_text_that_any_client_reads(redis: RedisServer) -> None:
    """What the documentation shows is what stands in the stream."""
    from redis.asyncio import Redis

    deltas = RedisDeltas(redis.url, prefix="p:", expires=60)
    await deltas.send([Delta(STAMP, 0, "text", "héllo")])
    plain = Redis.from_url(redis.url)
    [(_, fields)] = await plain.xrange("p:run")
    assert {name.decode(): value.decode() for name, value in fields.items()} == {
        "kind": "text",
        "text": "héllo",
        "seq": "0",
        "attempt": "1",
        "turn": "2",
        "exchange": "1",
        "call": "ab12cd34-7",
        "execution": "execution",
        "began": "1000",
    }
    assert 50 < await plain.ttl("p:run") <= 60
    await plain.aclose()
    await deltas.close()


async def test_redis_stream_keeps_about_as_many_as_it_is_told(redis: RedisServer) -> None:
    """A long reply does not grow the stream without end, and a late reader of it is right in the end."""
    from redis.asyncio import Redis

    deltas = RedisDeltas(redis.url, kept=100)
    for start in range(0, 2_000, 100):
        await deltas.send([Delta(STAMP, start + each, "text", "x") for each in range(100)])
    await deltas.send([Delta(STAMP, 2_000, "end", "the reply")])
    found = await take(deltas)
    assert 100 <= len(found) <= 300
    assert read(found[:-1]).whole is False
    assert (read(found).text, read(found).whole) == ("the reply", True)
    plain = Redis.from_url(redis.url)
    assert await plain.xlen(deltas.key("run")) == len(found)
    await plain.aclose()
    await deltas.close()


async def test_redis_reader_goes_on_after_an_entry(redis: RedisServer) -> None:
    """An interrupted reader names the last entry that it had, and gets the next; `$` is only what comes."""
    deltas = RedisDeltas(redis.url)
    await deltas.send([Delta(STAMP, seq, "text", str(seq)) for seq in range(3)])
    entries = deltas.entries("run")
    seen = [await anext(entries), await anext(entries)]
    await entries.aclose()
    new = asyncio.create_task(take(deltas, after="$"))
    await asyncio.sleep(0.1)
    await deltas.send([Delta(STAMP, 3, "end", "all")])
    assert [delta.seq for delta in await take(deltas, after=seen[-1].id)] == [2, 3]
    assert [delta.seq for delta in await new] == [3]
    await deltas.close()


async def test_redis_that_is_lost_and_comes_back_serves_the_next_attempt(redis: RedisServer) -> None:
    """Connections that died are replaced without anybody's doing."""
    deltas = RedisDeltas(redis.url)
    await streamed(deltas, ["a"], "a")
    redis.kill()
    await streamed(deltas, ["b"], "b")
    await redis.start()
    await streamed(deltas, ["c"], "c")
    assert [delta.text for delta in await take(deltas)] == ["", "c", "c"]
    await deltas.close()


async def test_redis_that_does_not_answer_costs_a_second_at_most() -> None:
    """A server that accepts and says nothing holds an attempt no longer than any dead sink."""
    ends = asyncio.Event()
    silent = await asyncio.start_server(lambda reader, writer: ends.wait(), "127.0.0.1", 0)
    deltas = RedisDeltas(f"redis://127.0.0.1:{silent.sockets[0].getsockname()[1]}")
    began = time.perf_counter()
    await streamed(deltas, ["a"], "a")
    assert time.perf_counter() - began < DRAIN_SECONDS + 2
    await deltas.close()
    ends.set()
    silent.close()


async def test_redis_takes_many_attempts_at_once(redis: RedisServer) -> None:
    """100 attempts of one worker share a connection, and none loses a character."""
    deltas = RedisDeltas(redis.url)

    async def one(number: int) -> bool:
        feed = opened(deltas, replace(STAMP, run=f"run-{number}"))
        for piece in range(20):
            feed.text(f"{piece} ")
            await asyncio.sleep(0.02)
        await feed.close("end")
        told = [delta.text for delta in await take(deltas, f"run-{number}") if delta.kind == "text"]
        return "".join(told) == "".join(f"{piece} " for piece in range(20))

    assert all(await asyncio.gather(*(one(number) for number in range(100))))
    await deltas.close()


async def test_redis_error_of_one_stream_is_not_anothers(redis: RedisServer) -> None:
    """A key that is no stream fails its own attempt and no other of the same round trip."""
    from redis.asyncio import Redis
    from redis.exceptions import ResponseError

    deltas = RedisDeltas(redis.url)
    plain = Redis.from_url(redis.url)
    await plain.set(deltas.key("taken"), "by something else")
    first = asyncio.create_task(deltas.send([Delta(replace(STAMP, run="taken"), 0, "end", "a")]))
    second = asyncio.create_task(deltas.send([Delta(STAMP, 0, "end", "b")]))
    await second
    with pytest.raises(ResponseError):
        await first
    assert [delta.text for delta in await take(deltas)] == ["b"]
    await plain.aclose()
    await deltas.close()


def test_redis_without_its_extra_is_refused_in_one_line() -> None:
    """Where the client library is missing the configuration is refused, with what to install."""
    program = (
        "import sys; sys.modules['redis'] = sys.modules['redis.asyncio'] = None\n"
        "from mainspring.plugin import MainspringPlugin\n"
        "from mainspring.schemas.config import Config, DeltaSpec\n"
        "MainspringPlugin().services\n"
        "MainspringPlugin(Config(deltas=DeltaSpec(redis='redis://localhost'))).services"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].endswith(
        "ConfigError: deltas.redis needs the extra: pip install 'mainspring[redis]'"
    )


def test_redis_is_off_by_default() -> None:
    """A configuration that names no Redis has no deltas."""
    assert configured(DeltaSpec()) is None


def test_redis_url_may_be_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read where the worker starts; what is missing or wrong is said without showing it."""
    spec = DeltaSpec(redis="env:DELTAS_URL")
    with pytest.raises(ConfigError, match="env:DELTAS_URL is not set"):
        configured(spec)
    monkeypatch.setenv("DELTAS_URL", "hunter2://nowhere")
    with pytest.raises(ConfigError) as refused:
        configured(spec)
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("DELTAS_URL", "redis://:hunter2@localhost")
    assert configured(spec) is not None
    assert "hunter2" not in repr(vars(spec))


async def test_redis_password_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A Redis that cannot be reached is told of by the kind of the error alone."""
    caplog.set_level(logging.DEBUG)
    deltas = RedisDeltas("redis://user:hunter2@127.0.0.1:1/0")
    await streamed(deltas, ["a"], "a")
    assert "ConnectionError" in caplog.text
    assert "hunter2" not in caplog.text
    await deltas.close()
