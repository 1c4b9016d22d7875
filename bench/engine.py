"""The script on the engine: a configuration file, a scripted model, one Python tool."""

import tempfile
from pathlib import Path
from typing import Any

import yaml
from temporalio.client import WorkflowHandle

from bench import script
from bench.contestant import ENGINE, Contestant, Setup
from mainspring.plugin import MainspringPlugin

PAGE_ENTRIES = 200


def contestant() -> Contestant:
    """The engine, as the benchmark runs it."""
    return Contestant(
        name=ENGINE,
        workflow_type="AgentRun",
        model_activity="mainspring.call_model",
        prepare=_setup,
        transcript=_transcript,
    )


def _setup(turns: int) -> Setup:
    # Kept until the process ends, and removed by its parent: a worker may read the script again.
    folder = Path(tempfile.mkdtemp(prefix="mainspring-bench-"))
    (folder / "script.yaml").write_text(yaml.safe_dump(_script(turns)))
    configuration = folder / "mainspring.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(folder, turns)))
    run = {"agent": "bench", "prompt": script.prompt(turns)}
    return Setup(run, plugins=[MainspringPlugin.from_file(configuration)])


def _script(turns: int) -> dict[str, Any]:
    call = {"tool": script.TOOL_NAME, "arguments": {"i": "${n}"}}
    return {"replies": [{"calls": [call], "repeat": turns}, {"text": script.ANSWER}]}


def _configuration(folder: Path, turns: int) -> dict[str, Any]:
    """All defaults, but for the ceiling on turns, which by default is below the script's length."""
    return {
        "state_dir": str(folder / "state"),
        "models": {"default": {"script": str(folder / "script.yaml")}},
        "tools": {"python": ["bench.engine_tools"]},
        "agents": {
            "bench": {
                "instructions": script.INSTRUCTIONS,
                "tools": [script.TOOL_NAME],
                "budgets": {"turns": turns + 1},
            }
        },
    }


async def _transcript(handle: WorkflowHandle[Any, Any]) -> tuple[list[Any], int]:
    """The ledger's entries, with call ids numbered by first appearance: they may name the run."""
    entries: list[dict[str, Any]] = []
    queries = 0
    while True:
        window = {"from": len(entries), "limit": PAGE_ENTRIES}
        page: list[dict[str, Any]] = await handle.query("transcript", window)
        queries += 1
        entries += page
        if not page:  # a short page is no sign of the end: pages are bounded in bytes too
            return _anonymous(entries), queries


def _anonymous(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    numbers: dict[str, int] = {}

    def number(call_id: str) -> int:
        return numbers.setdefault(call_id, len(numbers))

    made = []
    for entry in entries:
        copy = dict(entry)
        if copy.get("call_id"):
            copy["call_id"] = number(copy["call_id"])
        copy["calls"] = [{**call, "id": number(call["id"])} for call in copy.get("calls", ())]
        made.append(copy)
    return made
