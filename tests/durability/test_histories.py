"""Stories of runs: each keeps the laws of every run, and each that was ever recorded still replays.

The files are made by `tests/histories/record.py`.
"""

from __future__ import annotations

import getpass
import json
import re
import socket
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, ReplayerConfig
from temporalio.workflow import NondeterminismError

from mainspring.embedded import Server
from mainspring.plugin import MainspringPlugin
from mainspring.replayed import replayed
from mainspring.testing import replay
from support.broken_run import EagerRun
from support.stories import STORIES, play

HISTORIES = Path(__file__).parents[1] / "histories"
FILES = sorted(HISTORIES.glob("*.json"))
PLACES = re.compile(
    r"(?<![\w.:/])/(home|root|tmp|usr|var|work|Users|private|opt|build)\b|site-packages|\.py\b"
)


def history_of(file: Path) -> WorkflowHistory:
    """The history in a file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return WorkflowHistory.from_json(document.pop("workflowId"), document)


@pytest.mark.parametrize("name", STORIES)
async def test_story_keeps_the_laws_of_every_run(server: Server, name: str) -> None:
    """Events, transcript and digest of a run are as `support.invariants` says, and it ends as it should."""
    result, _ = await play(STORIES[name], server.address)
    assert result.outcome == STORIES[name].outcome


def test_every_story_is_recorded() -> None:
    """A story without a golden history would not protect runs in flight."""
    assert {path.stem.partition("-")[2] for path in FILES} >= set(STORIES)


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandboxed", "plain"])
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
async def test_recorded_history_replays(file: Path, sandbox: bool) -> None:
    """A run that an earlier version began goes on with this one, in Temporal's sandbox and without."""
    await replay(history_of(file), MainspringPlugin(sandbox=sandbox))


class _EagerPlugin(MainspringPlugin):
    """The plugin with a broken workflow in place of ours."""

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Replace it."""
        config = super().configure_replayer(config)
        config["workflows"] = [EagerRun]
        return config


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
async def test_replay_finds_an_activity_more(file: Path) -> None:
    """A workflow that schedules what the history does not know is caught: the test above can fail."""
    history = history_of(file)
    assert _was_armed(history), "a story that schedules nothing proves nothing here"
    with pytest.raises(NondeterminismError):
        await Replayer(workflows=[], plugins=[_EagerPlugin()]).replay_workflow(history)


def _was_armed(history: WorkflowHistory) -> bool:
    return any(event.HasField("activity_task_scheduled_event_attributes") for event in history.events)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_recorded_history_names_no_machine(file: Path) -> None:
    """No path, host or user of the machine that it was recorded on, and no identity but `worker`."""
    text = file.read_text(encoding="utf-8")
    assert set(_values(json.loads(text), "identity")) <= {"worker"}
    payloads = [b64decode(data).decode("utf-8", "replace") for data in _values(json.loads(text), "data")]
    assert payloads
    text = "\n".join([text, *payloads])
    assert PLACES.search(text) is None
    assert socket.gethostname() not in text
    assert f"{getpass.getuser()}@" not in text


def _values(value: Any, wanted: str, key: str = "") -> list[str]:
    """Every text under a key that ends so, at any depth."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in _values(item, wanted, name)]
    if isinstance(value, list):
        return [found for item in value for found in _values(item, wanted)]
    return [value] if key.lower().endswith(wanted) else []


async def test_run_that_an_earlier_version_armed_keeps_its_decisions() -> None:
    """Six identical turns of a run that 0.1.0 armed, which had no guard, end in an answer here too."""
    run = await replayed(history_of(HISTORIES / "0.1.0-repeated.json"))
    assert run is not None
    names = [record["event"] for record in run.journal.records]
    assert (run.outcome, run.meter.turns, run.guard) == ("completed", 7, None)
    assert not {"Nudged", "Stalled"} & set(names)


async def test_same_story_of_this_version_has_the_guard() -> None:
    """The same turns of a run armed since then are nudged and stall: the law above can fail."""
    run = await replayed(history_of(HISTORIES / "0.2.0-repeated.json"))
    assert run is not None
    names = [record["event"] for record in run.journal.records]
    assert (run.outcome, run.meter.turns) == ("stalled", 5)
    assert names.count("Nudged") == names.count("Stalled") == 1
