"""Record golden histories: `python tests/histories/record.py STORY… | --all | --missing`.

Each story of `tests/support/stories.py` is run on an embedded server and its history saved beside this file
as `<version>-<story>.json`, without the names of this machine. A recorded history is never edited, and once
it is in a release never recorded anew: when one no longer replays, the change needs `workflow.patched`.
`tests/durability/test_histories.py` replays all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from temporalio.client import WorkflowHistory  # noqa: E402

from mainspring.embedded import embedded  # noqa: E402
from support.stories import STORIES, play  # noqa: E402

IDENTITIES = frozenset({"identity", "workerIdentity"})
QUEUES = frozenset({"taskQueue", "normalName", "workerTaskQueue"})


def scrubbed(value: Any, key: str = "") -> Any:
    """JSON of a history without what names a machine: identities, queues, stack traces, build ids."""
    if isinstance(value, dict):
        if key in QUEUES and "name" in value:
            value = {**value, "name": "sticky" if "STICKY" in str(value.get("kind")) else "queue"}
            value.pop("normalName", None)
        return {name: scrubbed(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [scrubbed(item) for item in value]
    if key in IDENTITIES:
        return "worker"
    return {"stackTrace": "", "buildId": "build"}.get(key, value)


def saved(history: WorkflowHistory) -> str:
    """The text of a file."""
    document = {"workflowId": history.workflow_id, **scrubbed(history.to_json_dict())}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


async def record(names: list[str]) -> None:
    """Play each story and save its history."""
    async with embedded() as server:
        for name in names:
            story = STORIES[name]
            result, history = await play(story, server.address)
            assert result.outcome == story.outcome, f"{name}: {result.outcome}, not {story.outcome}"
            file = HERE / f"{version('mainspring')}-{name}.json"
            file.write_text(saved(history), encoding="utf-8")
            print(f"{file.name}: {len(history.events)} events, {file.stat().st_size} bytes")


def main() -> None:
    """Read the arguments and record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("story", nargs="*", help=", ".join(STORIES))
    parser.add_argument("--all", action="store_true", help="every story")
    parser.add_argument("--missing", action="store_true", help="every story that no file tells yet")
    given = parser.parse_args()
    told = {path.stem.partition("-")[2] for path in HERE.glob("*.json")}
    names = list(STORIES) if given.all else list(given.story)
    if given.missing:
        names += [name for name in STORIES if name not in told]
    logging.disable(logging.WARNING)  # activities that fail, as they should
    asyncio.run(record(names))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
