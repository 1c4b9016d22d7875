"""A run reduced to what its model activity sees: a recorded arming, a ledger, and one call after another."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
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
            entry = observation_entry(seq, 1, self.turn - 1, call.id, call.tool, outcome)
            self.ledger.append(entry)
            if produced_here:
                self.cache.put(self.workflow_id, call.id, outcome)
            self.new.append(NewEntry(seq=seq, n=self.number))

    async def fails(self, attempt: int = 1, **changes: Any) -> ApplicationError:
        """One attempt that must fail, and its error."""
        with pytest.raises(ApplicationError) as caught:
            await self.attempt(attempt, **changes)
        return caught.value


class Stub:
    """A provider on loopback that answers as it is told, request by request, and notes what it was sent.

    An answer is the raw bytes to send before the connection closes, or a function that is given the writer.
    The last answer is given again and again.
    """

    def __init__(self) -> None:
        self.answers: list[bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]] = []
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.left = asyncio.Event()
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, then close."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")[1:]
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.requests.append((headers, json.loads(body)))
            answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                waiting = asyncio.ensure_future(answer(writer))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    self.left.set()
                waiting.cancel()
                gone.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()

    def says(self, status: int, body: str, **headers: str) -> bytes:
        """A plain answer; its error text quotes whatever it is given."""
        extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        length = len(body.encode())
        return (
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {length}\r\n{extra}\r\n{body}"
        ).encode()

    def streams(self, *events: dict[str, Any] | str, usage: dict[str, int] | None = None) -> bytes:
        """A chat stream of these deltas, each a chunk; a text is sent as it stands."""
        lines = [item if isinstance(item, str) else f"data: {json.dumps(item)}" for item in events]
        if usage is not None:
            lines.append(f"data: {json.dumps({**chunk(), 'choices': [], 'usage': usage})}")
        body = "\n\n".join(lines) + "\n\n"
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        return (head + body).encode()

    def model(self, name: str = "openai-chat:gpt-4o-mini", **spec: Any) -> ModelSpec:
        """A specification of a model that this stub serves."""
        return ModelSpec(name="stubbed", model=name, base_url=self.base_url, **spec)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None) -> dict[str, Any]:
    """One chunk of a chat stream."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": [choice],
    }
