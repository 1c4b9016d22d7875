"""The sink and the reader of a Redis stream: one stream a run, for web backends away from the workers.

An entry is flat, so that any language reads it: see `Delta.fields`. What an entry repeats of the one before
costs Redis little.

Imported only where Redis is asked for. Source: shared design, loop.md "Live text".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from temporalio.exceptions import ApplicationError

from mainspring.activities.deltas import Delta, Stamp
from mainspring.activities.secrets import resolve
from mainspring.errors import ConfigError
from mainspring.schemas.config import DeltaSpec

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool, Redis

__all__ = ["Entry", "RedisDeltas", "configured"]

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
BLOCK_SECONDS = 5.0
WRITERS_MAX = 2
BATCH_CHARACTERS = 4 * 1024 * 1024
"""Of one round trip, about."""
ENTRY_CHARACTERS = 256
"""What an entry takes beside its text, about."""
READERS_MAX = 10_000
"""Connections of one process that read: each reader waits on one of its own."""
PAGE_ENTRIES = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """A delta and its place in the stream, from where reading goes on after an interruption."""

    id: str
    delta: Delta


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Deltas of one attempt that wait to be sent, and who waits for them."""

    key: str
    deltas: Sequence[Delta]
    sent: asyncio.Future[None]

    def settle(self, error: Exception | None) -> None:
        """Tell who waits, if anybody still does."""
        if self.sent.done():
            return
        if error is None:
            self.sent.set_result(None)
        else:
            self.sent.set_exception(error)


class RedisDeltas:
    """Writes deltas to Redis streams, and reads them; on one event loop.

    Args:
        url: `redis://`, `rediss://` or `unix://`; it may hold a password, and is shown nowhere.
        prefix: Of the streams' names; the run's workflow id follows.
        kept: About how many entries a stream keeps.
        expires: Seconds after the last entry until a stream is gone.

    Raises: ConfigError, when the extra is missing or the URL is none. Nothing is connected yet.
    """

    def __init__(
        self, url: str, *, prefix: str = "mainspring:deltas:", kept: int = 10_000, expires: float = 3_600.0
    ) -> None:
        self._url = url
        self._prefix = prefix
        self._kept = kept
        self._expires_ms = max(1, round(expires * 1_000))
        self._outbox: deque[_Parcel] = deque()
        self._posting: asyncio.Task[None] | None = None
        self._pools: list[BlockingConnectionPool] = []
        self._writing = self._client(WRITERS_MAX, ANSWER_SECONDS)
        self._reading = self._client(READERS_MAX, BLOCK_SECONDS + ANSWER_SECONDS)

    async def send(self, deltas: Sequence[Delta]) -> None:
        """Append some deltas of one run to its stream; one round trip is for all attempts that wait.

        Raises: TimeoutError, when Redis does not answer; redis.RedisError.
        """
        parcel = _Parcel(self.key(deltas[0].stamp.run), deltas, asyncio.get_running_loop().create_future())
        self._outbox.append(parcel)
        if self._posting is None or self._posting.done():
            self._posting = asyncio.create_task(self._post())
        await parcel.sent

    async def _post(self) -> None:
        """Send what waits until nothing does. Who stopped waiting for a parcel does not get it sent."""
        while parcels := self._next_parcels():
            try:
                results = await self._appended(parcels)
            except Exception as error:  # each of them is told, and says so
                for parcel in parcels:
                    parcel.settle(error)
                continue
            for parcel in parcels:
                mine, results = results[: len(parcel.deltas)], results[len(parcel.deltas) :]
                parcel.settle(next((found for found in mine if isinstance(found, Exception)), None))

    def _next_parcels(self) -> list[_Parcel]:
        """The parcels of the next round trip, oldest first."""
        found: list[_Parcel] = []
        size = 0
        while self._outbox and size < BATCH_CHARACTERS:
            parcel = self._outbox.popleft()
            if not parcel.sent.done():
                found.append(parcel)
                size += sum(ENTRY_CHARACTERS + len(delta.text) for delta in parcel.deltas)
        return found

    async def _appended(self, parcels: Sequence[_Parcel]) -> list[Any]:
        """What Redis says to each delta: its id, or an error."""
        from redis.exceptions import TimeoutError as NoAnswer

        pipeline = self._writing.pipeline(transaction=False)
        for parcel in parcels:
            for delta in parcel.deltas:
                fields: dict[Any, Any] = {**delta.fields()}
                pipeline.xadd(parcel.key, fields, maxlen=self._kept, approximate=True)
        for key in dict.fromkeys(parcel.key for parcel in parcels):
            pipeline.pexpire(key, self._expires_ms)
        try:
            results: list[Any] = await pipeline.execute(raise_on_error=False)
        except NoAnswer as error:
            raise TimeoutError("Redis does not answer") from error
        return results

    async def of(self, run: str, after: str = "0") -> AsyncGenerator[Delta]:
        """The deltas of a run, by its workflow id: those that the stream keeps, then what comes.

        Args:
            run: The workflow id.
            after: `0` from the first kept, `$` from now on, or the id of an entry.

        Raises: redis.RedisError, when Redis is lost.
        """
        async with aclosing(self.entries(run, after)) as entries:
            async for entry in entries:
                yield entry.delta

    async def entries(self, run: str, after: str = "0") -> AsyncGenerator[Entry]:
        """The same, each with its place in the stream.

        Raises: redis.RedisError, when Redis is lost.
        """
        key = self.key(run)
        if after == "$":
            after = await self._newest(key)
        block = round(BLOCK_SECONDS * 1_000)
        while True:
            found: Any = await self._reading.xread({key: after}, count=PAGE_ENTRIES, block=block)
            for _, entries in found or ():
                for place, fields in entries:
                    after = place
                    if (delta := Delta.of_fields(run, fields)) is not None:
                        yield Entry(place, delta)

    async def probe(self) -> str:
        """Write and read one delta, as `doctor` does; the server's version.

        Raises: redis.RedisError, TimeoutError, and AssertionError when what is read is not what was written.
        """
        run = f"doctor {uuid4().hex}"
        delta = Delta(Stamp(run, "", 1, 1, "doctor", 1, 0), 0, "snapshot")
        await self.send([delta])
        found: Any = await self._writing.xrange(self.key(run))
        await self._writing.delete(self.key(run))
        assert [Delta.of_fields(run, fields) for _, fields in found] == [delta]
        told: Any = await self._writing.info("server")
        return str(told["redis_version"])

    def key(self, run: str) -> str:
        """The name of a run's stream."""
        return self._prefix + run

    async def close(self) -> None:
        """Close every connection; a reader that waits on one ends with an error."""
        if self._posting is not None:
            self._posting.cancel()
        for pool in self._pools:
            await pool.disconnect()

    async def _newest(self, key: str) -> str:
        """Where the stream ends now, so that nothing is missed between one read and the next."""
        newest: Any = await self._reading.xrevrange(key, count=1)
        return str(newest[0][0]) if newest else "0"

    def _client(self, connections: int, seconds: float) -> Redis:
        try:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise ConfigError("deltas.redis needs the extra: pip install 'mainspring[redis]'") from None
        try:
            pool = BlockingConnectionPool.from_url(
                self._url,
                max_connections=connections,
                timeout=ANSWER_SECONDS,
                decode_responses=True,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=seconds,
                # Once, for a connection that was idle too long. What is then written twice, readers know.
                retry=Retry(NoBackoff(), 1),
            )
        except ValueError:
            # Its words may quote what stands there, which may be a password.
            raise ConfigError("deltas.redis is no URL that begins redis://, rediss:// or unix://") from None
        self._pools.append(pool)
        return Redis(connection_pool=pool)


def configured(spec: DeltaSpec) -> RedisDeltas | None:
    """The Redis of a configuration; None where it names none.

    Raises: ConfigError, when the extra, the secret or the URL is missing.
    """
    if spec.redis is None:
        return None
    url = spec.redis
    if url.startswith(("env:", "file:")):
        try:
            url = resolve(url)
        except ApplicationError as error:
            raise ConfigError(f"deltas.redis: {error.message}") from None
    return RedisDeltas(url, prefix=spec.prefix, kept=spec.kept, expires=spec.expires)
