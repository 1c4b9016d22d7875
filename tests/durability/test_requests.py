"""What a model is sent: the same bytes whoever assembles them, and nothing that grows with the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from mainspring.activities.projection import Projection
from mainspring.activities.providers import Providers
from mainspring.activities.pulse import Pulse
from mainspring.activities.scripted import Asked
from mainspring.activities.setup import Catalog
from mainspring.client import Run
from mainspring.embedded import Server
from mainspring.plugin import MainspringPlugin
from mainspring.schemas.activities import Armed
from mainspring.schemas.base import unwire
from mainspring.schemas.ledger import Attachment, EntryCall, Thinking
from mainspring.schemas.tools import BlobRef
from mainspring.testing import Case
from mainspring.tools import tool
from mainspring.workflows.ledger import AssistantMessage, Message, Result, UserMessage, UserText
from support.chat_server import calling, chat_server, saying
from support.invariants import serving
from support.tools import broken, nap, observe

REPLIES = [
    calling(
        ("nap", '{"seconds": 0.6}'), ("observe", '{"i": 1}'), ("broken", '{"why": "no luck"}'), text="Look:"
    ),
    calling(("observe", '{"i": 2,,}'), ("no_such_tool", "{}"), ("observe", "")),
    calling(("observe", '{"i": 3}'), text="Grüße, 世界 🌍"),
    saying("So far."),
    calling(("observe", '{"i": 4}')),
    saying("All of it."),
]


def from_explain(message: Mapping[str, Any]) -> Message:
    """A message of a request, from the JSON that `explain` shows of it."""
    if message["role"] == "assistant":
        return AssistantMessage(
            message["text"],
            tuple(unwire(EntryCall, call) for call in message["calls"]),
            tuple(unwire(Thinking, block) for block in message["thinking"]),
        )
    return UserMessage(
        tuple(
            Result(
                result["call_id"],
                result["tool"],
                result["content"],
                result["is_error"],
                tuple(unwire(BlobRef, blob) for blob in result["files"]),
            )
            for result in message["results"]
        ),
        tuple(
            UserText(said["text"], tuple(unwire(Attachment, item) for item in said["attachments"]))
            for said in message["texts"]
        ),
    )


async def send_again(armed: Armed, explained: Mapping[str, Any]) -> None:
    """Send the request of a turn as its explanation tells it, through the translation of the provider."""
    catalog = Catalog(armed.tools or ())
    asked = Asked(
        system=explained["instructions"],
        system_tokens=0,
        projection=Projection([from_explain(message) for message in explained["messages"]], 0),
        offer=catalog.offer(tuple(explained["offered"]["names"])),
        catalog=catalog,
        call=0,
        attempt=1,
    )
    with Pulse() as pulse:
        await Providers(None).model(armed.models[0], armed.spec.settings).answer(asked, pulse)


async def test_explanation_of_a_turn_is_what_was_sent_byte_for_byte(server: Server) -> None:
    """For every turn of a run with parallel tools, errors, steering and a follow-up.

    It is asked of a worker that never saw the run: what it tells is made of history alone.
    """
    tools = [observe, nap, broken]
    async with chat_server(REPLIES) as provider:
        config = {"models": {"default": {"model": "openai-chat:m", "base_url": provider.base_url}}}
        agent = {"instructions": "Be exact.", "settings": {"temperature": 0}}
        async with serving(server.address, tools=tools, agent=agent, config=config) as case:
            run = await case.start("Look at it. ünï\u2028")
            await _steer_while_acting(run)
            await run.result()
        sent = list(provider.bodies)
        plugin = MainspringPlugin(case.plugin.config, tools=tools)
        client = await Client.connect(server.address, plugins=[plugin])
        async with Worker(client, task_queue=case.task_queue, max_cached_workflows=0):
            armed = unwire(Armed, await client.get_workflow_handle(run.id).query("armed"))
            told = [await run.explain(turn) for turn in range(1, len(sent) + 1)]
        provider.bodies.clear()
        for explained in told:
            await send_again(armed, explained)
        again = provider.bodies
    assert len(sent) == len(REPLIES)
    assert again == sent
    assert b"and carefully" in sent[1]
    assert b"and carefully" not in sent[0]
    assert all(first != second for first, second in pairwise(sent))
    assert [len(json.loads(body)["tools"]) for body in sent] == [t["offered"]["count"] for t in told]


async def _steer_while_acting(run: Run[Any]) -> None:
    async with asyncio.timeout(20):
        while (await run.state())["status"] != "acting":
            await asyncio.sleep(0.01)
    await run.steer("and carefully")
    await run.follow_up("And the rest?")


def model_inputs(history: WorkflowHistory) -> list[bytes]:
    """The argument of each model call, as it is in history."""
    return [
        event.activity_task_scheduled_event_attributes.input.payloads[0].data
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
        and event.activity_task_scheduled_event_attributes.activity_type.name == "mainspring.call_model"
    ]


async def _ran(case: Case, **options: Any) -> list[bytes]:
    run = await case.start(**options)
    await run.result()
    return model_inputs(await case.history(run))


FILLER = "It stands on a shelf among many others. " * 5
LOOK = {"text": "Next. " * 50, "calls": [{"tool": "observe", "arguments": {"i": "${n}"}}] * 2, "repeat": 65}


async def test_no_request_grows_with_the_run(server: Server) -> None:
    """The argument of the model call of turn 60 is that of turn 5, but for the digits of its numbers."""
    agent = {"budgets": {"turns": 100}}
    replies = [LOOK, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[observe], agent=agent) as case:
        inputs = await _ran(case)
    assert len(inputs) == 66
    assert abs(len(inputs[59]) - len(inputs[4])) < 64
    assert max(map(len, inputs)) < 1_500


async def test_catalog_is_in_no_model_call(server: Server) -> None:
    """With 300 tools, no argument of a model call names one of them, and the catalog is recorded once."""
    many = [tool(name=f"shelf/tool_{i}", description=f"Takes book {i}. {FILLER}")(_take) for i in range(300)]
    call = {"calls": [{"tool": "shelf/tool_7", "arguments": {"page": 3}}]}
    async with serving(server.address, replies=[call, {"text": "ok"}], tools=many) as case:
        run = await case.start()
        await run.result()
        history = await case.history(run)
    inputs = model_inputs(history)
    assert [len(data) < 1_500 for data in inputs] == [True, True]
    assert not any(b"tool_8" in data or b"Takes book" in data for data in inputs)
    whole = b"".join(event.SerializeToString() for event in history.events)
    assert whole.count(b"Takes book 8.") == 1


async def _take(page: int) -> str:
    return f"page {page}"
