"""Nothing of what was said leaves by telemetry, unless content is switched on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.tools import tool
from support.invariants import serving
from support.model import Stub
from support.telemetry import Recorded
from support.tools import broken, nap
from support.waiting import until

PROMPT, INSTRUCTIONS, ARGUMENT, RESULT = (
    "canary-prompt",
    "canary-instructions",
    "canary-argument",
    "canary-result",
)
REPLY, ANSWER, THOUGHT, STEERED = "canary-reply", "canary-answer", "canary-thought", "canary-steered"
FAILURE, NAME, SIGNAL, PROVIDER = "canary-failure", "canary-name", "canary-signal", "canary-provider"
QUESTION, WORDS, METADATA = "canary-question", "canary-words", "canary-metadata"
SAID = (PROMPT, INSTRUCTIONS, ARGUMENT, RESULT, REPLY, ANSWER, STEERED, FAILURE, NAME)
"""What is shown where content is on; a thought, a question and the names of signals are seen otherwise."""


@tool(effects="read")
async def telling(what: str) -> str:
    """Tell.

    Args:
        what: What.
    """
    return RESULT


REPLIES: list[dict[str, Any]] = [
    {
        "text": REPLY,
        "thinking": THOUGHT,
        "calls": [
            {"tool": "telling", "arguments": {"what": ARGUMENT}},
            {"tool": "broken", "arguments": {"why": FAILURE}},
            {"tool": NAME, "arguments": {}},
        ],
    },
    {"calls": [{"tool": "nap", "arguments": {"seconds": 0.7}}]},
    {"text": ANSWER},
]


async def told_of(server: Server, **telemetry: Any) -> Recorded:
    """A run full of canaries."""
    told = Recorded()
    async with serving(
        server.address,
        replies=REPLIES,
        tools=[telling, broken, nap],
        agent={"instructions": INSTRUCTIONS},
        config={"telemetry": telemetry},
        telemetry=told.providers,
    ) as case:
        run = await case.start(PROMPT, metadata={METADATA: METADATA})
        await until(run, turn=2, status="acting")
        await run.steer(STEERED)
        await case.handle(run).signal(SIGNAL, SIGNAL)
        result = await run.result()
    assert result.answer == ANSWER
    return told


async def test_nothing_of_the_content_is_told(server: Server) -> None:
    """Prompt, instructions, arguments, results, replies, errors, steering, invented names: none is told."""
    told = await told_of(server)
    everything = told.everything()
    assert "execute_tool telling" in everything
    assert "mainspring.steered" in everything
    assert "canary" not in everything


async def test_content_is_told_where_it_is_switched_on(server: Server) -> None:
    """With `content: true` the messages, the instructions, the arguments and the results are on the spans."""
    told = await told_of(server, content=True)
    everything = told.everything()
    assert [canary for canary in SAID if canary not in everything] == []
    [called] = told.spans("execute_tool telling")
    chat = told.spans("chat")[0].attributes or {}
    assert json.loads(str((called.attributes or {})["gen_ai.tool.call.arguments"])) == {"what": ARGUMENT}
    assert (called.attributes or {})["gen_ai.tool.call.result"] == RESULT
    assert json.loads(str(chat["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": PROMPT}]}
    ]
    assert json.loads(str(chat["gen_ai.system_instructions"])) == [{"type": "text", "content": INSTRUCTIONS}]
    [output] = json.loads(str(chat["gen_ai.output.messages"]))
    assert (output["role"], output["finish_reason"]) == ("assistant", "tool_call")
    assert [part["type"] for part in output["parts"]] == ["text", *["tool_call"] * 3]


async def test_figures_name_only_tools_of_the_catalog(server: Server) -> None:
    """A tool that a model invented is counted under one name, whatever it was called; content or not."""
    told = await told_of(server, content=True)
    names = {point.attributes["gen_ai.tool.name"] for point in told.points("mainspring.tool.calls")}
    assert names == {"telling", "broken", "nap", "_OTHER"}


@pytest.mark.parametrize("content", [False, True])
async def test_question_and_its_answer_are_content(server: Server, content: bool) -> None:
    """What the model asked and the person answered is told only where content is on; that it did, always."""
    told = Recorded()
    replies = [{"calls": [{"tool": "nika:ask", "arguments": {"question": QUESTION}}]}, {"text": "Done."}]
    async with serving(
        server.address,
        replies=replies,
        agent={"tools": ["nika:ask"]},
        config={"telemetry": {"content": content}},
        telemetry=told.providers,
    ) as case:
        run = await case.start()
        state = await until(run, awaiting="answer")
        question = {"question_id": state["questions"][0]["question_id"], "text": WORDS}
        await case.handle(run).execute_update("answer", question)
        await run.result()
    everything = told.everything()
    assert (QUESTION in everything) is content
    assert (WORDS in everything) is content
    assert len(told.logs("mainspring.question_asked")) == len(told.logs("mainspring.question_closed")) == 1
    [root] = told.spans("invoke_agent")
    assert "mainspring.question_closed" in [event.name for event in root.events]


@pytest_asyncio.fixture(loop_scope="session")
async def stub() -> AsyncIterator[Stub]:
    """A provider on loopback."""
    found = Stub()
    served = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.base_url = f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}/v1"
    yield found
    served.close()


@pytest.mark.parametrize("content", [False, True])
async def test_error_of_a_provider_is_told_by_its_kind(
    server: Server, stub: Stub, monkeypatch: pytest.MonkeyPatch, content: bool
) -> None:
    """A 400 whose body quotes the prompt is an `error.type` and nothing more."""
    monkeypatch.setenv("STUB_KEY", "sk-canary")
    stub.answers = [stub.says(400, json.dumps({"error": {"message": PROVIDER, "code": "bad_request"}}))]
    spec = {"model": "openai-chat:gpt-4o-mini", "base_url": stub.base_url, "api_key": "env:STUB_KEY"}
    told = Recorded()
    async with serving(
        server.address,
        agent={"model": "real"},
        config={"models": {"real": spec}, "telemetry": {"content": content}},
        telemetry=told.providers,
    ) as case:
        with pytest.raises(RunFailed):
            await case.run("go")
    everything = told.everything()
    assert PROVIDER not in everything
    assert "sk-canary" not in everything
    [chat] = told.spans("chat")
    attributes = chat.attributes or {}
    assert (chat.name, attributes["gen_ai.provider.name"]) == ("chat gpt-4o-mini", "openai")
    assert attributes["error.type"] == "model_rejected"
    [failed] = told.logs("mainspring.model_failed")
    assert failed.attributes["mainspring.error"] == "model_rejected"
    assert told.total("mainspring.model.failures", error__type="model_rejected") == 1
