"""What a worker process already holds of its runs, so that no activity need be sent a transcript.

A request names a prefix of a ledger by length and digest, and what is new by the activity that produced it.
A process that produced it builds the entries itself; what it lacks it asks of the workflow by query, in
pages. The digest decides: what does not match is dropped and asked for again.

Source: shared design, context.md "The transcript by reference"; temporal-facts.md 1.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from pydantic import BaseModel
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from mainspring.schemas.activities import Armed, ModelReply, ModelRequest
from mainspring.schemas.base import unwire
from mainspring.schemas.errors import LEDGER_MISMATCH
from mainspring.schemas.ledger import Entry, NewEntry
from mainspring.schemas.tools import ToolOutcome
from mainspring.workflows.ledger import Ledger, observation_entry, reply_entry

__all__ = ["ProcessCache", "RunReader", "WorkflowReader", "split_id"]

CHAINS_MAX = 4_000
BYTES_MAX = 256 * 1024 * 1024
ARMED_MAX = 1_000
MADE_MAX = 256
"""Results of one run that wait for its next model call: more than one reply's calls."""
PAGE_ENTRIES = 500
QUERY_TIMEOUT = timedelta(seconds=15)
QUERY_PATIENCE_SECONDS = 60.0
_PASSING = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.UNAVAILABLE,
    }
)


def split_id(activity_id: str) -> tuple[str, int]:
    """Prefix and number of an activity id `<prefix>-<n>`.

    Raises: ValueError, when it is not one of ours.
    """
    prefix, _, number = activity_id.rpartition("-")
    return prefix, int(number)


class RunReader(Protocol):
    """Reads from the run that an activity belongs to."""

    async def transcript(self, start: int, limit: int) -> list[dict[str, Any]]:
        """A page of ledger entries."""
        ...

    async def armed(self) -> dict[str, Any]:
        """The arming record."""
        ...


class WorkflowReader:
    """Reads by query, patiently: a worker that is lost takes about 10 s to be replaced."""

    def __init__(self, client: Client, workflow_id: str, run_id: str) -> None:
        self._handle = client.get_workflow_handle(workflow_id, run_id=run_id)

    async def transcript(self, start: int, limit: int) -> list[dict[str, Any]]:
        """A page of ledger entries.

        Raises: RPCError, when the run cannot be asked for a minute.
        """
        page: list[dict[str, Any]] = await self._query("transcript", {"from": start, "limit": limit})
        return page

    async def armed(self) -> dict[str, Any]:
        """The arming record."""
        record: dict[str, Any] = await self._query("armed")
        return record

    async def _query(self, name: str, *args: object) -> Any:
        deadline = asyncio.get_running_loop().time() + QUERY_PATIENCE_SECONDS
        pause = 0.05
        while True:
            try:
                return await self._handle.query(name, args=args, rpc_timeout=QUERY_TIMEOUT)
            except RPCError as error:
                late = asyncio.get_running_loop().time() > deadline
                if error.status not in _PASSING or late:
                    raise
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
                raise ApplicationError(f"query {name}: {error}", type=LEDGER_MISMATCH) from error
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)


@dataclass(slots=True)
class _Chain:
    """What this process holds of one run: a prefix of its ledger, and results not yet part of it.

    Args:
        made: Results by the number of their activity, each with its size.
        size: Bytes of all of it, about.
        users: Requests being assembled from it: while there are any it is not evicted.
    """

    ledger: Ledger = field(default_factory=Ledger)
    made: dict[int, tuple[ModelReply | ToolOutcome, int]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    size: int = 0
    users: int = 0


class ProcessCache:
    """Ledgers and arming records of the runs that this process works on; bounded, least recently used go.

    Losing any of it costs a query and nothing else. `queries` counts them, for tests and benchmarks; `size`
    is what it holds, in bytes, about.
    """

    def __init__(self, *, bytes_max: int = BYTES_MAX, chains_max: int = CHAINS_MAX) -> None:
        self._chains: OrderedDict[tuple[str, str], _Chain] = OrderedDict()
        self._armed: OrderedDict[str, Armed] = OrderedDict()
        self._bytes_max = bytes_max
        self._chains_max = chains_max
        self.size = 0
        self.queries = 0

    def put(self, workflow_id: str, activity_id: str, made: ModelReply | ToolOutcome) -> None:
        """Remember what an activity of this process is about to return."""
        prefix, number = split_id(activity_id)
        chain = self._chain(workflow_id, prefix)
        self._forget(chain, number)
        size = _weight(made)
        chain.made[number] = (made, size)
        self._grow(chain, size)
        if len(chain.made) > MADE_MAX:  # another process makes the model calls of this run
            self._forget(chain, next(iter(chain.made)))
        self._evict()

    def put_armed(self, armed: Armed) -> None:
        """Remember an arming record, without the trace of the run that it was read from: others share it."""
        self._armed[armed.digest] = armed.model_copy(update={"trace": None}) if armed.trace else armed
        self._armed.move_to_end(armed.digest)
        while len(self._armed) > ARMED_MAX:
            self._armed.popitem(last=False)

    async def armed(self, digest: str, reader: RunReader) -> Armed:
        """The arming record of that digest.

        Raises: ApplicationError(LEDGER_MISMATCH), retryable, when the run has another one.
        """
        found = self._armed.get(digest)
        if found is None:
            self.queries += 1
            found = unwire(Armed, await reader.armed())
            if found.digest != digest:
                raise ApplicationError("the run has another arming record", type=LEDGER_MISMATCH)
            self.put_armed(found)
        return found

    async def entries(
        self, workflow_id: str, prefix: str, request: ModelRequest, reader: RunReader
    ) -> Sequence[Entry]:
        """The ledger's prefix that the request refers to.

        Raises: ApplicationError(LEDGER_MISMATCH), retryable, when it cannot be assembled to its digest.
        """
        chain = self._chain(workflow_id, prefix)
        chain.users += 1
        try:
            async with chain.lock:
                await self._assemble(chain, prefix, request, reader)
                return chain.ledger.entries[: request.ledger.length]
        finally:
            chain.users -= 1
            self._evict()

    async def _assemble(self, chain: _Chain, prefix: str, request: ModelRequest, reader: RunReader) -> None:
        wanted = request.ledger
        self._extend(chain, prefix, request)
        if not self._holds(chain, request):
            await self._fetch(chain, wanted.length, reader)
        if not self._holds(chain, request):
            self._grow(chain, -chain.size)
            chain.ledger = Ledger()
            chain.made.clear()
            await self._fetch(chain, wanted.length, reader)
        if not self._holds(chain, request):
            raise ApplicationError(
                f"{wanted.length} entries assembled to another digest than {wanted.digest}",
                type=LEDGER_MISMATCH,
            )
        for number in list(chain.made):  # all that came before this request is in the ledger
            self._forget(chain, number)

    def _holds(self, chain: _Chain, request: ModelRequest) -> bool:
        wanted = request.ledger
        return chain.ledger.length >= wanted.length and chain.ledger.digests[wanted.length] == wanted.digest

    def _extend(self, chain: _Chain, prefix: str, request: ModelRequest) -> None:
        """Append what this process can build itself, as far as it goes without a gap."""
        for new in request.new:
            if new.seq < chain.ledger.length:
                continue
            entry = new.entry or self._built(chain, prefix, new, request)
            if entry is None or new.seq > chain.ledger.length:
                return
            self._append(chain, entry)

    def _built(self, chain: _Chain, prefix: str, new: NewEntry, request: ModelRequest) -> Entry | None:
        if new.n is None:
            return None
        made = self._forget(chain, new.n)
        if made is None:
            return None
        exchange = request.exchange if new.exchange is None else new.exchange
        turn = request.turn - 1 if new.turn is None else new.turn
        if isinstance(made, ModelReply):
            ids = [f"{prefix}-{new.n + 1 + index}" for index in range(len(made.calls))]
            return reply_entry(new.seq, exchange, turn, made, ids)
        call_id = f"{prefix}-{new.n}"
        tool = _tool_of(chain.ledger, call_id)
        if tool is None:
            return None
        return observation_entry(new.seq, exchange, turn, call_id, tool, made)

    async def _fetch(self, chain: _Chain, length: int, reader: RunReader) -> None:
        while chain.ledger.length < length:
            self.queries += 1
            start = chain.ledger.length
            page = await reader.transcript(start, min(PAGE_ENTRIES, length - start))
            if not page:
                return
            for item in page:
                self._append(chain, unwire(Entry, item))

    def _append(self, chain: _Chain, entry: Entry) -> None:
        chain.ledger.append(entry)
        self._grow(chain, _weight(entry))

    def _forget(self, chain: _Chain, number: int) -> ModelReply | ToolOutcome | None:
        made, size = chain.made.pop(number, (None, 0))
        self._grow(chain, -size)
        return made

    def _grow(self, chain: _Chain, by: int) -> None:
        chain.size += by
        self.size += by

    def _chain(self, workflow_id: str, prefix: str) -> _Chain:
        key = (workflow_id, prefix)
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = _Chain()
        self._chains.move_to_end(key)
        return chain

    def _evict(self) -> None:
        for key in list(self._chains):
            if len(self._chains) <= self._chains_max and self.size <= self._bytes_max:
                return
            if not self._chains[key].users:
                self.size -= self._chains.pop(key).size


def _weight(held: BaseModel) -> int:
    """Bytes that a value takes, about: those of its JSON and some for the objects."""
    return 400 + len(held.model_dump_json(exclude_defaults=True))


def _tool_of(ledger: Ledger, call_id: str) -> str | None:
    """The tool of a call of the newest reply."""
    for entry in reversed(ledger.entries):
        if entry.kind == "reply":
            return next((call.tool for call in entry.calls if call.id == call_id), None)
    return None
