"""A run reduced to what its model activity sees: a recorded arming, a ledger, and one call after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from mainspring.activities.blobs import BlobStore
from mainspring.activities.model import ModelActivity
from mainspring.activities.transcript import ProcessCache
from mainspring.schemas.activities import Armed, ModelReply, ModelRequest
from mainspring.schemas.agent import AgentSpec, ModelSpec
from mainspring.schemas.base import unwire, wire
from mainspring.schemas.ledger import NewEntry, Plan
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition, ToolOutcome
from mainspring.workflows.ledger import Ledger, control_entry, observation_entry, reply_entry, user_entry

PREFIX = "ab12cd34"
OBSERVE = ToolDefinition(
    declaration=ToolDeclaration(name="observe", description="What is seen at step i.", effects="read"),
    input_schema={
        "type": "object",
        "properties": {"i": {"type": "integer"}},
        "required": ["i"],
        "additionalProperties": False,
    },
)
READ = ToolDefinition(
    declaration=ToolDeclaration(name="files/read", description="Read a file.", effects="read"),
    input_schema={"type": "object", "properties": {"path": {"type": "string"}}},
)


class Reader:
    """Serves the two queries that an activity may ask of its run; counts them."""

    def __init__(self, run: Run) -> None:
        self.run = run

    async def transcript(self, start: int, limit: int) -> list[dict[str, Any]]:
        """A page of ledger entries."""
        return self.run.ledger.page(start, limit)

    async def armed(self) -> dict[str, Any]:
        """The arming record."""
        return wire(self.run.armed)


class Run:
    """One run: its ledger, and the model activity that serves it."""

    def __init__(
        self,
        script: dict[str, Any] | None = None,
        *,
        model: ModelSpec | None = None,
        tools: Sequence[ToolDefinition] = (OBSERVE, READ),
        blobs: BlobStore | None = None,
        prompt: str = "Look at it.",
        **spec: Any,
    ) -> None:
        models = (model or ModelSpec(name="scripted", script=script),)
        agent = AgentSpec(**spec)
        self.armed = Armed(agent="a", spec=agent, models=models, digest="d" * 16, tools=tuple(tools))
        self.blobs = blobs
        self.ledger = Ledger()
        self.heartbeats: list[Any] = []
        self.carried: list[Any] = []
        self.number = 0
        self.calls = 0
        self.turn = 1
        self.new: list[NewEntry] = []
        self.workflow_id = "wf"
        self.restart()
        self.user(prompt)

    def restart(self) -> None:
        """Go on in another process: nothing is held."""
        self.cache = ProcessCache()
        self.activity = ModelActivity(self.cache, self.blobs, reader=lambda info: Reader(self))

    def user(self, text: str, *attachments: Any) -> None:
        """A person's message."""
        entry = self.ledger.append(user_entry(self.ledger.length, 1, self.turn, text, attachments))
        self.new.append(NewEntry(seq=entry.seq, entry=entry))

    def control(self, kind: str, text: str) -> None:
        """A message of the engine's."""
        entry = self.ledger.append(control_entry(self.ledger.length, 1, self.turn, kind, text))
        self.new.append(NewEntry(seq=entry.seq, entry=entry))

    def request(self, **changes: Any) -> ModelRequest:
        """The request of the next call."""
        request = ModelRequest(
            armed=self.armed.digest,
            call=self.calls,
            turn=self.turn,
            ledger=self.ledger.ref,
            new=tuple(self.new),
            plan=Plan(),
        )
        return request.model_copy(update=changes)

    async def attempt(
        self, attempt: int = 1, environment: ActivityEnvironment | None = None, **changes: Any
    ) -> ModelReply:
        """One attempt at the next call; what it heartbeats is what the next attempt is told."""
        env = environment or ActivityEnvironment()
        env.info = dataclasses.replace(
            env.info,
            activity_id=f"{PREFIX}-{self.number + 1}",
            attempt=attempt,
            workflow_id=self.workflow_id,
            heartbeat_details=self.carried,
            heartbeat_timeout=timedelta(seconds=5),
        )
        env.on_heartbeat = self._beat
        result = await env.run(self.activity.call_model, self.request(**changes))
        return unwire(ModelReply, result)

    def _beat(self, *details: Any) -> None:
        self.heartbeats.append(details[0])
        self.carried = list(details)

    async def call(self, **changes: Any) -> ModelReply:
        """The next call, recorded in the ledger as the workflow would."""
        reply = await self.attempt(**changes)
        self.record(reply)
        return reply

    def record(self, reply: ModelReply) -> None:
        """Append the reply."""
        self.number += 1
        self.calls += 1
        number = self.number
        ids = [f"{PREFIX}-{number + 1 + index}" for index in range(len(reply.calls))]
        entry = self.ledger.append(reply_entry(self.ledger.length, 1, self.turn, reply, ids))
        self.turn += 1
        self.new = [NewEntry(seq=entry.seq, n=number)]
        self.carried = []

    def observe(self, *outcomes: ToolOutcome, produced_here: bool = True) -> None:
        """Append one observation for each call of the newest reply."""
        reply = next(entry for entry in reversed(self.ledger.entries) if entry.kind == "reply")
        for call, outcome in zip(reply.calls, outcomes, strict=True):
            self.number += 1
            seq = self.ledger.length
            entry = observation_entry(seq, 1, self.turn - 1, call.id, call.tool, outcome, 16_384)
            self.ledger.append(entry)
            if produced_here:
                self.cache.put(self.workflow_id, call.id, outcome)
            self.new.append(NewEntry(seq=seq, n=self.number))

    async def fails(self, attempt: int = 1, **changes: Any) -> ApplicationError:
        """One attempt that must fail, and its error."""
        with pytest.raises(ApplicationError) as caught:
            await self.attempt(attempt, **changes)
        return caught.value


@pytest.fixture
def new_run() -> Callable[..., Run]:
    """Make a run."""
    return Run


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """A blob store in a folder."""
    return BlobStore(tmp_path.as_uri())
