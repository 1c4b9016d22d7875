"""The measurements, each on one contestant and one server.

Every contestant gets the same worker settings, the SDK's defaults with the same number of pollers,
and runs its client, its worker and its activities in one process.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, Worker

from bench.contestant import Contestant, Setup

WORKER_SETTINGS: dict[str, Any] = {
    "max_concurrent_workflow_task_polls": 5,
    "max_concurrent_activity_task_polls": 5,
    "max_cached_workflows": 1000,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one run's history: protobuf bytes as recorded, over the whole chain of runs.

    Attributes:
        chain: Temporal runs in the chain; more than 1 when the run continued as new.
        turn_bytes: Bytes of each turn: from the scheduling of its model call to that of the next.
        turn_events: Events of each turn.
    """

    bytes: int
    events: int
    chain: int
    turn_bytes: list[int]
    turn_events: list[int]


def shape(histories: Sequence[WorkflowHistory], model_activity: str) -> Shape:
    """Measure a chain of histories; a turn opens where an activity of type `model_activity` does."""
    sizes: list[list[int]] = []
    total = events = 0
    for event in _events(histories):
        size = event.ByteSize()
        total, events = total + size, events + 1
        if _opens_turn(event, model_activity):
            sizes.append([])
        if sizes:
            sizes[-1].append(size)
    turns = sizes[:-1]  # the last model call answers: it is no turn of the script
    return Shape(
        bytes=total,
        events=events,
        chain=len(histories),
        turn_bytes=[sum(turn) for turn in turns],
        turn_events=[len(turn) for turn in turns],
    )


def _events(histories: Iterable[WorkflowHistory]) -> Iterable[HistoryEvent]:
    for history in histories:
        yield from history.events


def _opens_turn(event: HistoryEvent, model_activity: str) -> bool:
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return False
    name: str = event.activity_task_scheduled_event_attributes.activity_type.name
    return name == model_activity


class Bench:
    """One contestant on one server.

    The methods whose names are commands (`time`, `history`, `replay`, `serve`, `rest`, `digests`)
    take and return plain JSON values, and may be called in any order, one at a time.
    """

    def __init__(self, contestant: Contestant, address: str) -> None:
        self._contestant = contestant
        self._address = address
        self._histories: dict[int, list[WorkflowHistory]] = {}
        self._serving: Worker | None = None
        self._serving_task: asyncio.Task[None] | None = None
        self._count = 0

    async def time(self, *, turns: int, runs: int, warm_runs: int = 2) -> dict[str, Any]:
        """Run the script `runs` times at once.

        Returns: `seconds` from the first start to the last result, and `cpu_seconds` of this
            process in that time (client, worker and activities; not the server).
        """
        setup = self._contestant.prepare(turns)
        client = await self._connect(setup)
        queue = self._name("time")
        async with self._worker(client, setup, queue):
            await self._run_all(client, setup, queue, warm_runs)
            began, cpu_began = time.perf_counter(), time.process_time()
            await self._run_all(client, setup, queue, runs)
            seconds = time.perf_counter() - began
            return {"seconds": seconds, "cpu_seconds": time.process_time() - cpu_began}

    async def history(self, *, turns: int) -> dict[str, Any]:
        """Run the script once, keep its history for `replay`, and return its `Shape`."""
        setup = self._contestant.prepare(turns)
        client = await self._connect(setup)
        queue = self._name("history")
        async with self._worker(client, setup, queue):
            [handle] = await self._run_all(client, setup, queue, 1)
        self._histories[turns] = await _chain(client, handle)
        return asdict(shape(self._histories[turns], self._contestant.model_activity))

    async def replay(self, *, turns: int, times: int) -> dict[str, Any]:
        """Replay the history that `history` recorded; `seconds` has one entry for each time."""
        setup = self._contestant.prepare(turns)
        replayer = Replayer(workflows=setup.workflows, plugins=list(setup.plugins))
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            for history in self._histories[turns]:
                await replayer.replay_workflow(history)
            seconds.append(time.perf_counter() - began)
        return {"seconds": seconds}

    async def serve(self, *, turns: int, queue: str) -> dict[str, Any]:
        """Work on somebody else's queue until `rest`; returns this worker's `identity`."""
        setup = self._contestant.prepare(turns)
        client = await self._connect(setup)
        self._serving = self._worker(client, setup, queue, spread=True)
        self._serving_task = asyncio.create_task(self._serving.run())
        return {"identity": client.identity}

    async def rest(self) -> dict[str, Any]:
        """End what `serve` began."""
        assert self._serving is not None
        assert self._serving_task is not None
        await self._serving.shutdown()
        await self._serving_task
        self._serving = self._serving_task = None
        return {}

    async def digests(self, *, turns: int, runs: int, queue: str) -> dict[str, Any]:
        """Run the script `runs` times at once and digest the transcript of each.

        Returns: `digests` and `entries` (their number) in the order of the runs; `own_queries`,
            made to read the transcripts; `workers`: how many executed activities of each run.
        """
        transcript = self._contestant.transcript
        assert transcript is not None, f"{self._contestant.name} has no transcripts"
        setup = self._contestant.prepare(turns)
        client = await self._connect(setup)
        async with self._worker(client, setup, queue, spread=True):
            handles = await self._run_all(client, setup, queue, runs)
            read = [await transcript(handle) for handle in handles]
        workers = [set(_identities(await _chain(client, handle))) for handle in handles]
        return {
            "digests": [_digest(entries) for entries, _ in read],
            "entries": [len(entries) for entries, _ in read],
            "own_queries": sum(queries for _, queries in read),
            "workers": [len(identities) for identities in workers],
        }

    async def _connect(self, setup: Setup) -> Client:
        return await Client.connect(
            self._address,
            plugins=list(setup.plugins),
            identity=f"bench-{os.getpid():08d}",
        )

    def _worker(self, client: Client, setup: Setup, queue: str, *, spread: bool = False) -> Worker:
        """A worker. `spread`: activities go to whoever polls, not to the worker that asked for them.

        By default the SDK hands a run's activities to the worker that holds the run, so two workers
        would share the runs but hardly any run would be shared between them.
        """
        return Worker(
            client,
            task_queue=queue,
            workflows=setup.workflows,
            activities=setup.activities,
            disable_eager_activity_execution=spread,
            **WORKER_SETTINGS,
        )

    async def _run_all(
        self, client: Client, setup: Setup, queue: str, runs: int
    ) -> list[WorkflowHandle[Any, Any]]:
        async def run_one(workflow_id: str) -> WorkflowHandle[Any, Any]:
            handle = await client.start_workflow(
                self._contestant.workflow_type, setup.argument, id=workflow_id, task_queue=queue
            )
            await handle.result()
            return handle

        return await asyncio.gather(*(run_one(self._name("run")) for _ in range(runs)))

    def _name(self, what: str) -> str:
        # Names are written into most events: they must be equally long for every contestant.
        self._count += 1
        return f"bench-{what}-{os.getpid():08d}-{self._count:05d}"


async def _chain(client: Client, handle: WorkflowHandle[Any, Any]) -> list[WorkflowHistory]:
    """The histories of a workflow's runs, from the first through every continue-as-new."""
    run_id = handle.first_execution_run_id or handle.result_run_id
    chain = []
    while run_id:
        history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
        chain.append(history)
        last = history.events[-1]
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return chain


def _identities(histories: Iterable[WorkflowHistory]) -> list[str]:
    return [
        event.activity_task_started_event_attributes.identity
        for event in _events(histories)
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    ]


def _digest(transcript: object) -> str:
    canonical = json.dumps(transcript, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
