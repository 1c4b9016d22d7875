"""MCP servers in runs: rows that bear their names, answers and errors as observations, crashes survived."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring.client import RunCancelled
from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, events_named, serving
from support.history import assert_sound

PATIENCE = 60
PLAIN = Path(__file__).parent.parent / "servers" / "plain.py"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    (tmp_path / "hello.txt").write_text("hello\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "A first commit"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


async def answered(case: Case, run: Any) -> list[dict[str, Any]]:
    """The observations of a run that must answer `ok`."""
    assert (await asyncio.wait_for(run.result(), PATIENCE)).answer == "ok"
    assert_sound(await case.history(run))
    entries = await case.handle(run).query("transcript")
    return [entry for entry in entries if entry["kind"] == "observation"]


async def test_two_servers_serve_a_whole_run(server: Server, repository: Path) -> None:
    """Rows of the timeline bear the tools' names; both servers' answers are observations."""
    config = {
        "mcp": {
            "git": {"command": ["mcp-server-git", "--repository", str(repository)]},
            "time": {"command": ["mcp-server-time", "--local-timezone", "UTC"]},
        }
    }
    calls = [
        {"tool": "mcp:git/git_log", "arguments": {"repo_path": str(repository)}},
        {"tool": "mcp:time/get_current_time", "arguments": {"timezone": "Europe/Paris"}},
    ]
    status = {"calls": [{"tool": "mcp:git/git_status", "arguments": {"repo_path": str(repository)}}]}
    agent = {"tools": ["mcp:git/*", "mcp:time/*"]}
    replies = [{"calls": calls}, status, {"text": "ok"}]
    async with serving(server.address, replies=replies, agent=agent, config=config) as case:
        run = await case.start()
        seen = await answered(case, run)
        ran = activities_of(await case.history(run))
        offered = (await run.state())["offered"]["names"]
    assert "A first commit" in str(seen[0]["content"])
    assert "Europe/Paris" in str(seen[1]["content"])
    assert "nothing to commit" in str(seen[2]["content"])
    assert [name for name, _ in ran if name.startswith("mcp:")] == [
        "mcp:git/git_log",
        "mcp:time/get_current_time",
        "mcp:git/git_status",
    ]
    assert offered == "all" or "mcp:git/git_log" in offered


async def test_errors_of_a_server_are_observations_and_not_retried(server: Server, repository: Path) -> None:
    """`isError`, a refusal by the protocol and wrong arguments: the model reads each, once."""
    config = {
        "mcp": {
            "time": {"command": ["mcp-server-time"]},
            "git": {"command": ["mcp-server-git", "--repository", str(repository)]},
            "plain": {"command": [sys.executable, str(PLAIN)]},
        }
    }
    calls = [
        {"tool": "mcp:time/get_current_time", "arguments": {"timezone": "Mars/Olympus"}},
        {"tool": "mcp:git/git_log", "arguments": {"repo_path": "/no/such/place"}},
        {"tool": "mcp:time/get_current_time", "arguments": {}},
        {"tool": "mcp:time/no_such_tool", "arguments": {}},
    ]
    agent = {"tools": ["mcp:*/*"]}
    replies = [{"calls": calls}, {"text": "ok"}]
    async with serving(server.address, replies=replies, agent=agent, config=config) as case:
        run = await case.start()
        seen = await answered(case, run)
        ran = activities_of(await case.history(run))
    assert all(entry["is_error"] for entry in seen)
    assert "Mars/Olympus" in str(seen[0]["content"])
    assert "timezone" in str(seen[2]["content"])
    assert "no tool" in str(seen[3]["content"])
    assert [pair for pair in ran if pair[0].startswith("mcp:")] == [
        ("mcp:time/get_current_time", "completed"),
        ("mcp:git/git_log", "completed"),
    ]


ODD = {"mcp": {"plain": {"command": [sys.executable, str(PLAIN), "--noise"], "timeout": 4}}}


async def test_odd_answers_of_a_server_are_safe_observations(server: Server) -> None:
    """Protocol errors, silence, megabytes, pictures and what is not quite JSON: one observation each."""
    calls = [
        {"tool": "mcp:plain/refusing", "arguments": {"code": -32602}},
        {"tool": "mcp:plain/refusing", "arguments": {"code": -32603}},
        {"tool": "mcp:plain/silent", "arguments": {}},
        {"tool": "mcp:plain/long", "arguments": {"size": 3_000_000}},
        {"tool": "mcp:plain/image", "arguments": {"size": 2_000_000}},
        {"tool": "mcp:plain/deep/er:name", "arguments": {"x": "\u2028"}},
        *(
            {"tool": "mcp:plain/unreadable", "arguments": {"raw": raw}}
            for raw in ("nan", "huge", "surrogate")
        ),
    ]
    replies = [{"calls": calls}, {"text": "ok"}]
    async with serving(server.address, replies=replies, agent={"tools": ["mcp:**"]}, config=ODD) as case:
        run = await case.start()
        seen = await answered(case, run)
        done = events_named(await case.events(run), "ToolCompleted")
    assert [entry.get("is_error", False) for entry in seen[:6]] == [True, True, True, False, False, False]
    assert "refused by the server" in str(seen[0]["content"])
    assert seen[3]["spilled"]["size"] == 3_000_000
    assert (seen[4]["files"][0]["media_type"], seen[4]["files"][0]["size"]) == ("image/png", 2_000_000)
    assert max(len(str(entry.get("content", ""))) for entry in seen) < 4_000
    assert len(done) == len(calls)


async def test_server_that_crashes_in_a_call_is_an_observation_and_comes_back(server: Server) -> None:
    """A write that a crash took is of unknown outcome and not repeated; the next call has a new server."""
    replies = [
        {"calls": [{"tool": "mcp:plain/exiting", "arguments": {}}]},
        {"calls": [{"tool": "mcp:plain/echo", "arguments": {"a": 1}}]},
        {"text": "ok"},
    ]
    async with serving(server.address, replies=replies, agent={"tools": ["mcp:*/*"]}, config=ODD) as case:
        run = await case.start()
        seen = await answered(case, run)
        ran = activities_of(await case.history(run))
        done = events_named(await case.events(run), "ToolCompleted")
    assert seen[0]["is_error"]
    assert "unknown" in str(seen[0]["content"]).lower()
    assert done[0]["status"] == "unknown"
    assert seen[1]["content"] in ({"a": 1}, '{"a": 1}')
    assert len([name for name, _ in ran if name == "mcp:plain/exiting"]) == 1


async def test_cancelled_run_stops_waiting_for_a_server(server: Server, tmp_path: Path) -> None:
    """Cancelling a run reaches the call of an MCP tool, and the server is told."""
    journal = tmp_path / "journal"
    command = [sys.executable, str(PLAIN), "--journal", str(journal)]
    config = {"mcp": {"plain": {"command": command}}}
    replies = [{"calls": [{"tool": "mcp:plain/waiting", "arguments": {"seconds": 60}}]}]
    async with serving(server.address, replies=replies, agent={"tools": ["mcp:*/*"]}, config=config) as case:
        run = await case.start()
        async with asyncio.timeout(PATIENCE):
            while not journal.exists() or "call waiting" not in journal.read_text():
                await asyncio.sleep(0.05)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await asyncio.wait_for(run.result(), 20)
        assert_sound(await case.history(run))
    assert "cancelled" in journal.read_text()
