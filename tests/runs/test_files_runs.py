"""The built-in file tools in runs: nothing outside of their folder is read, or even named."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, serving
from support.history import assert_sound

PATIENCE = 40
SECRET = "the-canary-outside"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with traps in it, beside a secret."""
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "readme.txt").write_text("hello\nworld\n")
    (root / "inner" / "odd \ufffd name.txt").write_text("inside")
    (root / "not-text").write_bytes(b"\x00\xff\xfe" * 100)
    (root / "not-utf-8.txt").write_bytes(b"caf\xe9 \xed\xa0\x80\n")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "root-of-another").mkdir()
    (tmp_path / "root-of-another" / "secret.txt").write_text(SECRET)
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    (root / "inside.txt").symlink_to("readme.txt")
    os.mkfifo(root / "pipe")
    return root


async def played(
    server: Server, folder: Path, calls: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], Case]:
    """The observations of a run that makes these calls and answers; its history holds no secret."""
    config = {"files": {"root": str(folder)}}
    agent = {"tools": ["files/*"]}
    replies = [{"calls": calls}, {"text": "ok"}]
    async with serving(server.address, replies=replies, agent=agent, config=config) as case:
        run = await case.start()
        assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
        history = await case.history(run)
        entries = await case.handle(run).query("transcript")
    assert_sound(history)
    whole = b"".join(event.SerializeToString() for event in history.events)
    assert SECRET.encode() not in whole
    assert len([name for name, _ in activities_of(history) if name.startswith("files/")]) == len(calls)
    return [entry for entry in entries if entry["kind"] == "observation"], case


ESCAPES = [
    "../secret.txt",
    "inner/../../secret.txt",
    "../root-of-another/secret.txt",
    "link.txt",
    "up/secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "inner/../../../../../../../../etc/passwd",
    "..",
    "up",
    "loop",
    "a\x00b",
    "~/.ssh/id_rsa",
    "pipe",
    "x" * 5_000,
]


async def test_way_out_of_the_folder_is_an_observation_and_leaks_nothing(
    server: Server, folder: Path
) -> None:
    """Dots, absolute paths, links, devices and pipes: each read is refused, in words without our paths."""
    calls = [{"tool": "files/read", "arguments": {"path": path}} for path in ESCAPES]
    calls.append({"tool": "files/read", "arguments": {"path": str(folder.parent / "secret.txt")}})
    seen, _ = await played(server, folder, calls)
    for path, entry in zip([*ESCAPES, "absolute"], seen, strict=True):
        assert entry["is_error"], path
        assert len(str(entry["content"])) < 1_000
        assert "root:" not in str(entry["content"])
    # Only the call that named the absolute path itself may hear it again.
    assert all(str(folder.parent) not in str(entry["content"]) for entry in seen[:-1])


async def test_listing_and_search_follow_no_link_out(server: Server, folder: Path) -> None:
    """What a link leads to is neither listed nor searched; a link that is named is refused."""
    calls = [
        {"tool": "files/list", "arguments": {"glob": "**"}},
        {"tool": "files/search", "arguments": {"pattern": "canary"}},
        {"tool": "files/search", "arguments": {"pattern": "can.ry", "regex": True, "path": "."}},
        {"tool": "files/list", "arguments": {"path": "up"}},
        {"tool": "files/search", "arguments": {"pattern": "canary", "path": "../root-of-another"}},
    ]
    seen, _ = await played(server, folder, calls)
    assert "root-of-another" not in str(seen[0]["content"])
    assert "no line matches" in str(seen[1]["content"])
    assert "no line matches" in str(seen[2]["content"])
    assert all(entry["is_error"] for entry in seen[3:])


async def test_what_is_inside_is_read_whatever_its_bytes(server: Server, folder: Path) -> None:
    """Files of any bytes, and a link that stays inside, are read as text that any reader can read."""
    paths = ["readme.txt", "inner/odd \ufffd name.txt", "not-text", "not-utf-8.txt", "inside.txt"]
    seen, _ = await played(server, folder, [{"tool": "files/read", "arguments": {"path": p}} for p in paths])
    assert not any(entry.get("is_error") for entry in seen)
    assert [str(entry["content"])[:6] for entry in seen] == [
        "hello\n",
        "inside",
        "[binar",
        "caf\ufffd \ufffd",
        "hello\n",
    ]
