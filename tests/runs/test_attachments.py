"""Images and files beside words: what reaches the provider, and what stands for those that cannot."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mainspring.client import RunFailed, TooLarge, attachment
from mainspring.embedded import Server
from mainspring.schemas.ledger import Attachment
from mainspring.schemas.tools import BlobRef
from mainspring.testing import Case, serving
from mainspring.tools import tool
from support.history import assert_sound, bought_nothing
from support.model import Stub, chunk

PATIENCE = 60
PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
MISSING = BlobRef(digest="blake2b:" + "0" * 64, size=9, media_type="image/png", name="gone.png")


@pytest_asyncio.fixture(loop_scope="session")
async def stub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stub]:
    """A provider on loopback that answers `ok`."""
    monkeypatch.setenv("STUB_KEY", "sk-stub")
    found = Stub()
    found.answers = [found.streams(chunk({"content": "ok"}), chunk(finish="stop"), usage=USAGE)]
    served = await asyncio.start_server(found.serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
    found.base_url = f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}/v1"
    yield found
    served.close()


def on(stub: Stub) -> dict[str, Any]:
    """Options of a case whose agent asks the stub."""
    spec = {"model": "openai-chat:gpt-4o-mini", "base_url": stub.base_url, "api_key": "env:STUB_KEY"}
    return {"agent": {"model": "real"}, "config": {"models": {"real": spec}}}


def parts(body: dict[str, Any]) -> list[str]:
    """The user's content parts of a request: the texts, and the addresses of images."""
    found: list[str] = []
    for message in body["messages"]:
        if message["role"] == "user":
            content = message["content"]
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                found.append(part["text"] if part["type"] == "text" else json.dumps(part))
    return found


async def answered(case: Case, **given: Any) -> Any:
    """A run that must answer `ok`."""
    run = await case.start("look", **given)
    assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
    assert_sound(await case.history(run))
    return run


async def test_image_and_file_inline_reach_the_provider(server: Server, stub: Stub, tmp_path: Path) -> None:
    """An image goes as an image, a text as text with its name, in the order in which they were given."""
    (tmp_path / "notes.txt").write_text("remember the milk")
    given = [
        await attachment(PNG, media_type="image/png", name="a.png"),
        await attachment(tmp_path / "notes.txt"),
    ]
    async with serving(server.address, **on(stub)) as case:
        await answered(case, attachments=given)
    words, image, text = parts(stub.requests[0][1])
    assert words == "look"
    assert base64.b64encode(PNG).decode() in image
    assert "notes.txt" in text
    assert "remember the milk" in text


async def test_attachments_by_blob_reach_the_provider_and_not_the_history(server: Server, stub: Stub) -> None:
    """3 MB of an image go from the blob store to the provider; the history holds a reference."""
    picture = PNG + b"\x00" * 3_000_000
    text = "word " * 600_000
    async with serving(server.address, **on(stub)) as case:
        with pytest.raises(TooLarge, match="blob"):
            await attachment(picture, media_type="image/png")
        blobs = case.plugin.services.blobs
        given = [
            await attachment(picture, media_type="image/png", blobs=blobs),
            await attachment(text.encode(), media_type="text/plain", name="long.txt", blobs=blobs),
        ]
        run = await answered(case, attachments=given)
        history = await case.history(run)
    _, image, long = parts(stub.requests[0][1])
    assert base64.b64encode(picture).decode() in image
    assert "left out" in long
    assert len(long) < 300_000
    assert sum(event.ByteSize() for event in history.events) < 40_000


async def test_attachments_of_steering_and_follow_ups_reach_the_provider(server: Server, stub: Stub) -> None:
    """They stand beside their own words, in every later request too."""
    async with serving(server.address, **on(stub)) as case:
        run = await case.start("look", lifetime="conversation")
        async with asyncio.timeout(PATIENCE):
            while (await run.state())["awaiting"] != "follow_up":
                await asyncio.sleep(0.05)
            image = await attachment(PNG, media_type="image/png")
            assert await run.ask("and this?", attachments=[image]) == "ok"
            assert await run.ask("sure?") == "ok"
            await run.finish()
            await run.result()
    for _, body in stub.requests[1:]:
        assert base64.b64encode(PNG).decode() in "".join(parts(body))


async def test_missing_blob_at_the_start_is_refused(server: Server, stub: Stub) -> None:
    """A reference that leads nowhere ends the run before anything is paid for, and names it."""
    async with serving(server.address, **on(stub)) as case:
        run = await case.start("look", attachments=[Attachment(media_type="image/png", blob=MISSING)])
        with pytest.raises(RunFailed) as failed:
            await asyncio.wait_for(run.result(), PATIENCE)
        assert bought_nothing(await case.history(run))
    assert failed.value.result is not None
    assert failed.value.result.outcome == "invalid_input"
    assert "attachments[0].blob" in str(failed.value.result.message)


ODD: dict[str, dict[str, Any]] = {
    "missing blob": {"media_type": "image/png", "blob": MISSING.model_dump()},
    "blob beyond the store": {
        "media_type": "image/png",
        "blob": {"digest": "../../../etc/passwd", "size": 9, "media_type": "image/png"},
    },
    "not base64": {"media_type": "image/png", "data": "%%%"},
    "nothing": {"media_type": "image/png"},
    "odd type": {"media_type": "image/png\r\nx: y", "name": "a\x00\u2028b", "data": "QUJD"},
    "no type": {"media_type": "", "data": "QUJD"},
    "archive": {"media_type": "application/zip", "name": "a.zip", "data": "QUJD"},
    "text of no encoding": {"media_type": "text/plain", "data": base64.b64encode(b"\xff\xfe\x00").decode()},
}


async def test_attachment_that_cannot_be_shown_is_a_line_that_says_so(server: Server, stub: Stub) -> None:
    """What is sent to a run that goes on is no crash: the words are delivered, with a stub beside them."""
    stub.answers = [
        stub.streams(chunk({"content": "soon"}), chunk(finish="stop"), usage=USAGE),
        stub.streams(chunk({"content": "ok"}), chunk(finish="stop"), usage=USAGE),
    ]
    async with serving(server.address, **on(stub)) as case:
        run = await case.start("look", lifetime="conversation")
        async with asyncio.timeout(PATIENCE):
            while (await run.state())["awaiting"] != "follow_up":
                await asyncio.sleep(0.05)
            message = {"message": "and these?", "attachments": list(ODD.values())}
            await case.handle(run).signal("follow_up", message)
            await run.finish()
            assert (await run.result()).answer == "ok"
        assert_sound(await case.history(run))
    sent = parts(stub.requests[-1][1])
    assert "and these?" in sent
    assert any("missing" in text and "gone.png" in text for text in sent)
    assert not any("root:" in text for text in sent)
    assert len(sent) == 2 + len(ODD)


@tool(effects="read")
async def picture(size: int) -> bytes:
    """Make a picture.

    Args:
        size: Bytes.
    """
    return PNG + b"\x00" * size


async def test_picture_that_a_tool_returns_is_a_reference_in_the_history(server: Server) -> None:
    """3 MB of an image are a placeholder for the model and a file in the blob store."""
    replies = [{"calls": [{"tool": "picture", "arguments": {"size": 3_000_000}}]}, {"text": "ok"}]
    async with serving(server.address, replies=replies, tools=[picture]) as case:
        run = await answered(case)
        entries = await run.transcript()
        assert sum(event.ByteSize() for event in (await case.history(run)).events) < 40_000
    assert entries[2].files[0].media_type == "image/png"
    assert entries[2].files[0].size > 3_000_000
    assert "image/png" in str(entries[2].content)
