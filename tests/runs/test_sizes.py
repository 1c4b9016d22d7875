"""Megabytes where kilobytes are meant: the sender is told, or the run goes on, or it ends typed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from mainspring.client import RunFailed, TooLarge
from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, events_named, serving
from mainspring.tools import tool
from support.history import assert_sound, bought_nothing
from support.tools import observe

PATIENCE = 60
MEGABYTES = "m" * 3_000_000


@tool(effects="write")
async def flood(size: int, how: str = "text") -> Any:
    """Return very much.

    Args:
        size: Characters.
        how: In which form.
    """
    text = "é" * (size // 2) if how == "two bytes" else "\x01" * size if how == "escaped" else "f" * size
    return {"a": [text]} if how == "nested" else {text: 1} if how == "key" else text


@tool(effects="write")
async def fails_at_length(size: int) -> str:
    """Fail with very many words.

    Args:
        size: Characters.
    """
    raise RuntimeError("w" * size)


@tool(effects="read")
async def sixteen(x: str = "") -> str:
    """Return 16,000 characters, which a script can repeat.

    Args:
        x: Anything.
    """
    return "s" * 16_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def talkative(server: Server) -> AsyncIterator[Case]:
    """An agent that answers `ok`, whatever is said."""
    script = {"replies": [{"text": "ok", "delay": 0.3}], "then": "repeat_last"}
    async with serving(server.address, replies=script) as case:
        yield case


async def answered(case: Case, run: Any) -> list[dict[str, Any]]:
    """The transcript of a run that must answer `ok`."""
    assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
    assert_sound(await case.history(run))
    entries: list[dict[str, Any]] = await case.handle(run).query("transcript")
    return entries


async def test_prompt_beyond_what_a_start_takes_is_refused_to_the_sender(
    server: Server, talkative: Case
) -> None:
    """3 MB never become a run: our client says so, and so does the server to any other."""
    with pytest.raises(TooLarge, match="at most"):
        await talkative.start(MEGABYTES)
    plain = await Client.connect(server.address)
    with pytest.raises(RPCError, match=r"size|limit|large"):
        await plain.start_workflow(
            "AgentRun",
            {"agent": "tested", "prompt": MEGABYTES},
            id=f"huge-{uuid4().hex[:8]}",
            task_queue=talkative.task_queue,
        )


@pytest.mark.parametrize("size", [1_000_001, 1_850_000])
async def test_prompt_beyond_its_bound_is_refused_at_arming(talkative: Case, size: int) -> None:
    """What fits a start and not a message ends the run as `invalid_input`, and nothing is paid for."""
    run = await talkative.start("p" * size)
    with pytest.raises(RunFailed) as failed:
        await asyncio.wait_for(run.result(), PATIENCE)
    assert failed.value.result is not None
    assert failed.value.result.outcome == "invalid_input"
    assert "1000000" in str(failed.value.result.message)
    assert bought_nothing(await talkative.history(run))


async def test_start_just_within_the_servers_limit_ends_typed(talkative: Case) -> None:
    """An argument that another client can send and our activities cannot carry fails the run, not a task."""
    handle = await talkative.client.start_workflow(
        "AgentRun",
        {"agent": "tested", "prompt": "go", "criteria": ["c" * 1_899_500]},
        id=f"large-{uuid4().hex[:8]}",
        task_queue=talkative.task_queue,
    )
    talkative.started.append(handle.id)
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(handle.result(), PATIENCE)
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "invalid_input"
    assert_sound(await talkative.history(handle.id))


async def test_largest_prompt_is_answered(talkative: Case) -> None:
    """A prompt at its bound reaches the model, by query where it does not ride along."""
    entries = await answered(talkative, await talkative.start("é" * 500_000))
    assert len(entries[0]["content"]) == 500_000


async def test_steering_beyond_its_bound_is_refused_or_rejected(server: Server, talkative: Case) -> None:
    """Our client and the validator refuse, the server refuses a signal of 3 MB, the run rejects 1.5 MB."""
    plain = await Client.connect(server.address)
    run = await talkative.start()
    handle = talkative.handle(run)
    with pytest.raises(TooLarge):
        await run.steer(MEGABYTES)
    with pytest.raises(WorkflowUpdateFailedError, match=r".*"):
        await handle.execute_update("steer", "u" * 1_500_000)
    with pytest.raises(RPCError):
        await plain.get_workflow_handle(run.id).signal("steer", MEGABYTES)
    await handle.signal("steer", "s" * 1_500_000)
    await answered(talkative, run)
    rejected = events_named(await talkative.events(run), "SignalRejected")
    assert [event["signal"] for event in rejected] == ["steer"]
    assert "1000000" in str(rejected[0]["reason"])


async def test_steering_at_its_bound_is_delivered(talkative: Case) -> None:
    """Three messages of 900 KB each are read by the model, page by page."""
    run = await talkative.start()
    for mark in "abc":
        await talkative.handle(run).signal("steer", mark * 900_000)
    entries = await run_transcript(talkative, run)
    said = [str(entry["content"]) for entry in entries if entry["kind"] == "user"][1:]
    assert [text[0] for text in said] == ["a", "b", "c"]
    assert {len(text) for text in said} == {900_000}


async def run_transcript(case: Case, run: Any) -> list[dict[str, Any]]:
    """The whole transcript, page by page, of a run that must answer `ok`."""
    assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
    found: list[dict[str, Any]] = []
    while page := await case.handle(run).query("transcript", {"from": len(found), "limit": 50}):
        found += page
    return found


@pytest.mark.parametrize("text", ["\x01" * 2_000, "\U0001f378" * 2_000], ids=["escaped", "four bytes"])
async def test_burst_of_messages_that_ride_along_stays_within_a_payload(talkative: Case, text: str) -> None:
    """200 short messages at once, of the most costly characters, still make a request that can be sent."""
    run = await talkative.start()
    await asyncio.gather(*(talkative.handle(run).signal("steer", text) for _ in range(200)))
    entries = await run_transcript(talkative, run)
    assert len([entry for entry in entries if entry["kind"] == "user"]) == 201


async def test_attachments_beyond_a_page_are_rejected_and_harm_nothing(talkative: Case) -> None:
    """Inline attachments that no query could answer with are refused; the run goes on without them."""
    run = await talkative.start()
    attachments = [{"media_type": "text/plain", "data": "QUFB" * 32_000} for _ in range(14)]
    await talkative.handle(run).signal("steer", {"message": "look", "attachments": attachments})
    await answered(talkative, run)
    rejected = events_named(await talkative.events(run), "SignalRejected")
    assert "attachments" in str(rejected[0]["reason"])


@pytest.mark.parametrize("how", ["text", "two bytes", "escaped", "nested", "key"])
async def test_result_of_a_tool_is_cut_and_kept_whole_elsewhere(server: Server, how: str) -> None:
    """3 MB of a result become a preview; the whole lies in the blob store."""
    replies = [{"calls": [{"tool": "flood", "arguments": {"size": 3_000_000, "how": how}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[flood]) as case:
        run = await case.start()
        seen = (await answered(case, run))[2]
        assert activities_of(await case.history(run)).count(("flood", "completed")) == 1
        blob = seen["spilled"]
        kept = [
            path for path in case.folder.rglob("*") if path.is_file() and path.stat().st_size == blob["size"]
        ]
    assert not seen.get("is_error")
    assert len(str(seen["content"]).encode()) < 4_000
    assert blob["size"] >= 3_000_000
    assert kept


async def test_error_of_a_tool_is_cut(server: Server) -> None:
    """3 MB of words of an exception become a preview."""
    replies = [{"calls": [{"tool": "fails_at_length", "arguments": {"size": 3_000_000}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[fails_at_length]) as case:
        seen = (await answered(case, await case.start()))[2]
    assert seen["is_error"]
    assert len(str(seen["content"]).encode()) < 4_000


async def test_many_large_results_at_once_are_all_folded(server: Server) -> None:
    """Eight results of 900 KB in one wave are eight previews."""
    calls = [{"tool": "flood", "arguments": {"size": 900_000}}] * 8
    async with serving(server.address, replies=[{"calls": calls}, {"text": "ok"}], tools=[flood]) as case:
        entries = await answered(case, await case.start())
    assert len([entry for entry in entries if entry.get("spilled")]) == 8


SIXTEEN = {"calls": [{"tool": "sixteen"}]}


async def test_answer_of_a_model_is_cut_and_kept_whole_elsewhere(server: Server) -> None:
    """3.2 MB of an answer end the run with head and tail of it, and a reference to the whole."""
    replies = [SIXTEEN, {"text": "${last_observation}" * 200}]
    async with serving(server.address, replies=replies, tools=[sixteen]) as case:
        run = await case.start()
        result = await asyncio.wait_for(run.result(), PATIENCE)
        assert_sound(await case.history(run))
        entries = await run.transcript()
    assert result.answer is not None
    assert 100_000 < len(result.answer) < 600_000
    assert result.answer_blob is not None
    assert result.answer_blob.size == 3_200_000
    assert entries[-1].kind == "reply"


async def test_output_that_no_result_can_carry_is_a_typed_end(server: Server) -> None:
    """3.2 MB handed over with `nika:done` are refused as arguments, and the model may do better."""
    done = {"tool": "nika:done", "arguments": {"result": "${last_observation}" * 200}}
    agent = {"tools": ["sixteen", "nika:done"]}
    replies = [SIXTEEN, {"calls": [done]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[sixteen], agent=agent) as case:
        await answered(case, await case.start())


async def test_arguments_beyond_their_bound_never_run(server: Server) -> None:
    """3.2 MB of arguments are an observation with the bound in it; the calls beside it run."""
    calls = [
        {"tool": "sixteen", "arguments": {"x": "${last_observation}" * 200}},
        {"tool": "observe", "arguments": {"i": 7}},
    ]
    replies = [SIXTEEN, {"calls": calls}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[sixteen, observe]) as case:
        run = await case.start()
        entries = await answered(case, run)
        assert activities_of(await case.history(run)).count(("sixteen", "completed")) == 1
    seen = [entry for entry in entries if entry["kind"] == "observation"]
    assert seen[1]["is_error"]
    assert "262144" in str(seen[1]["content"])
    assert seen[2]["content"] == "observation 7"


async def test_batch_of_large_arguments_goes_out_in_waves(server: Server) -> None:
    """Twelve calls of 200 KB each are bounded together: some run, the others are told why not."""
    calls = [{"tool": "sixteen", "arguments": {"x": "${last_observation}" * 12}}] * 12
    replies = [SIXTEEN, {"calls": calls}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[sixteen]) as case:
        run = await case.start()
        entries = await run_transcript(case, run)
        ran = activities_of(await case.history(run)).count(("sixteen", "completed"))
    seen = [entry for entry in entries if entry["kind"] == "observation"][1:]
    assert len(seen) == 12
    assert ran - 1 == len([entry for entry in seen if not entry.get("is_error")])
    assert ran > 5
