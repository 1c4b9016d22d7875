"""The example agent, as its files say: a scripted model, real files, a real git server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from mainspring.client import start_run
from mainspring.embedded import Server
from mainspring.plugin import MainspringPlugin

EXAMPLES = Path(__file__).parents[1] / "examples"


async def test_guide_answers_with_its_script(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide looks at this repository with every kind of tool, none of which fails, and then answers."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )
    plugin = MainspringPlugin.from_file(EXAMPLES / "mainspring.yaml")
    client = await Client.connect(server.address, plugins=[plugin])
    queue = f"examples-{uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue):
        run = await start_run(
            client,
            agent="guide",
            prompt="Which module decides what tools an agent may use?",
            overrides={"model": "scripted"},
            task_queue=queue,
        )
        result = await run.result()
        entries = await client.get_workflow_handle(run.id).query("transcript", {"from": 0, "limit": 100})
    observed = [entry for entry in entries if entry["kind"] == "observation"]
    assert result.outcome == "completed"
    assert result.answer is not None
    assert result.answer.startswith("`workflows/catalog.py` decides")
    assert "${" not in result.answer
    assert [entry for entry in observed if entry.get("is_error")] == []
    assert {entry["tool"].partition("/")[0] for entry in observed} == {"files", "repo", "mcp:git"}
    assert result.spend.turns == 9
