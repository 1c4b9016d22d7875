"""Watch a run survive the loss of its worker: `make demo [KEEP=1]`, or `python examples/demo.py [--keep]`.

It starts an embedded Temporal and a worker process, and asks the agent `guide` about this repository. In the
middle of the run the worker process is killed outright (SIGKILL) and another is started: the run goes on
where it was. At the end the run's own history shows that no call that had completed was made again.

With a provider's key in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, GOOGLE_API_KEY) a real model
answers; without one, a scripted model does, with the same real tools.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from temporalio.client import Client, WorkflowHistory

from mainspring.client import Run, RunFailed, start_run
from mainspring.embedded import Server, embedded
from mainspring.errors import MainspringError
from mainspring.narration import line_of
from mainspring.process import end_process
from mainspring.render import count, spend_line

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "Which module decides what tools an agent may use?"
KILL_IN_TURN = 4
MODELS = {
    "OPENAI_API_KEY": "openai:gpt-5-mini",
    "ANTHROPIC_API_KEY": "anthropic:claude-haiku-4-5",
    "GOOGLE_API_KEY": "google:gemini-3.8-flash",
}


def main() -> None:
    """Run the demo; exit status 0 when the run answered and nothing was done twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the server and its UI up until Enter")
    keep = parser.parse_args().keep and sys.stdin.isatty()
    try:
        status = asyncio.run(demo(keep))
    except MainspringError as error:
        print(f"demo: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    end_process(status)


async def demo(keep: bool) -> int:
    """The whole of it, in order."""
    with tempfile.TemporaryDirectory(prefix="mainspring-demo-") as name:
        config = write_config(Path(name))
        async with embedded(ui=True) as server:
            say(f"Temporal {server.address} · UI {server.ui_url}")
            client = await Client.connect(server.address)
            with Workers(config, server).serving() as workers:
                run = await start_run(client, agent="guide", prompt=QUESTION)
                link = f"{server.ui_url}/namespaces/default/workflows/{run.id}"
                say(f"run {run.id}: {QUESTION}")
                say(f"in the Temporal UI while it goes on: {link}")
                status = await until_ended(run, await until_killed(run, workers))
                say(f"the run in the Temporal UI: {link}")
                if keep:
                    await asyncio.to_thread(input, "Enter ends the server … ")
                else:
                    say("(the server ends now; `make demo KEEP=1` keeps it up)")
    return status


def say(text: str) -> None:
    """A line, at once."""
    print(text, flush=True)


# --- what is run ---


def write_config(folder: Path) -> Path:
    """The example with absolute paths, a model that can be had, and git where there is git."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "mainspring.yaml").read_text("utf-8"))
    key = next((name for name in MODELS if os.environ.get(name)), None)
    if key is None:
        say("model: scripted (no provider key in the environment); the tools are real")
        document["models"] = {"default": {"script": str(ROOT / "examples" / "guide.script.yaml")}}
    else:
        say(f"model: {MODELS[key]} (by {key})")
        document["models"] = {"default": MODELS[key]}
    document["state_dir"] = str(folder / "state")
    document["files"] = {"root": str(ROOT)}
    document["mcp"]["git"]["cwd"] = str(ROOT)
    missing = git_missing()
    if missing is not None:
        say(f"MCP server git: left out, {missing}; a call of it gets an error, and the run goes on")
        del document["mcp"]
        agent = document["agents"]["guide"]
        agent["tools"] = [pattern for pattern in agent["tools"] if not pattern.startswith("mcp:")]
    file = folder / "mainspring.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file


def git_missing() -> str | None:
    """Why there can be no git server here; None when there can."""
    if shutil.which("mcp-server-git", path=search_path()) is None:
        return "mcp-server-git is not installed"
    if not (ROOT / ".git").exists():
        return "this folder is no git repository"
    return None


def search_path() -> str:
    """PATH with this interpreter's own programs first: it may not be activated."""
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])


class Workers:
    """One worker process at a time; the next one takes its place."""

    def __init__(self, config: Path, server: Server) -> None:
        self.environment = {
            **os.environ,
            "PATH": search_path(),
            "PYTHONPATH": str(ROOT / "examples"),  # the module of tools that the configuration names
            "MAINSPRING_CONFIG": str(config),
            "TEMPORAL_ADDRESS": server.address,
            "TEMPORAL_NAMESPACE": server.namespace,
        }
        self.log = config.parent / "worker.log"
        self.started: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def serving(self) -> Iterator[Workers]:
        """A worker runs; in the end none does, nor anything that one started."""
        try:
            self.start()
            yield self
        finally:
            for process in self.started:
                process.terminate()
            for process in self.started:
                self._wait(process)

    def start(self) -> None:
        """Start a worker process, in a process group of its own."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mainspring.worker"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        say(f"worker process {process.pid} started")

    def kill(self) -> None:
        """Kill the worker outright: no handler runs, nothing is flushed."""
        process = self.started[-1]
        process.send_signal(signal.SIGKILL)
        process.wait()
        say(f"worker process {process.pid} KILLED (SIGKILL)")

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # an MCP server that outlived a killed worker


# --- what happens ---


@dataclass(frozen=True)
class Killed:
    """The moment at which the worker was killed.

    Args:
        history: What the server held then.
        seen: Events that had been shown.
        at: On the monotonic clock.
    """

    history: WorkflowHistory
    seen: int
    at: float


async def until_killed(run: Run[Any], workers: Workers) -> Killed:
    """Follow the run until its `KILL_IN_TURN`th model call is under way; kill the worker, start another."""
    seen = 0
    async for event in run.events():
        show(event)
        seen = event["seq"] + 1
        if event["event"] == "Finished":
            raise MainspringError("the run was over before its worker could be killed")
        if event["event"] == "TurnStarted" and event["turn"] == KILL_IN_TURN:
            break
    while not await model_is_called(run):
        await asyncio.sleep(0.01)
    workers.kill()
    killed = Killed(await history_of(run), seen, time.monotonic())
    workers.start()
    say("waiting until Temporal misses the lost attempt's heartbeats (about 15 s)")
    return killed


async def model_is_called(run: Run[Any]) -> bool:
    """A model call has been taken by the worker."""
    pending = (await run.channel.describe()).raw_description.pending_activities
    return any(item.activity_type.name == "mainspring.call_model" and item.attempt for item in pending)


async def until_ended(run: Run[Any], killed: Killed) -> int:
    """Follow the run to its end; print answer, spend and evidence."""
    async for event in run.events(killed.seen):
        if event["event"] == "BudgetCheckpoint" and event["turn"] == KILL_IN_TURN:
            say(f"the run goes on, {time.monotonic() - killed.at:.0f} s after the kill")
        show(event)
    try:
        result = await run.result()
    except RunFailed as error:
        say(f"✗ {error}")
        return 1
    say(f"\n{result.answer}\n")
    say(f"spent: {spend_line(result.spend.model_dump())}")
    before, after = Activities.of(killed.history), Activities.of(await history_of(run))
    await calls_of(run)
    return report(before, after)


async def history_of(run: Run[Any]) -> WorkflowHistory:
    """What the server holds of the run now."""
    return await run.channel.client.get_workflow_handle(run.id).fetch_history()


def show(event: dict[str, Any]) -> None:
    """An event's line, if it has one."""
    line = line_of(event)
    if line is not None:
        say(f"  {line}")


async def calls_of(run: Run[Any]) -> list[str]:
    """Ids of the calls that the model made; each must have exactly one observation."""
    entries = await run.transcript()
    calls = [call.id for entry in entries for call in entry.calls]
    observed = [entry.call_id for entry in entries if entry.kind == "observation"]
    assert sorted(calls) == sorted(filter(None, observed)), "each call has exactly one observation"
    return calls


# --- the evidence ---


@dataclass
class Activities:
    """Activities of a history by id: type, the attempt that counted, how often scheduled and completed."""

    kinds: dict[str, str] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, history: WorkflowHistory) -> Activities:
        """Count them."""
        found = cls()
        ids: dict[int, str] = {}
        for event in history.events:
            if event.HasField("activity_task_scheduled_event_attributes"):
                scheduled = event.activity_task_scheduled_event_attributes
                ids[event.event_id] = scheduled.activity_id
                found.kinds[scheduled.activity_id] = scheduled.activity_type.name
                found.scheduled[scheduled.activity_id] = found.scheduled.get(scheduled.activity_id, 0) + 1
            elif event.HasField("activity_task_started_event_attributes"):
                started = event.activity_task_started_event_attributes
                found.attempts[ids[started.scheduled_event_id]] = started.attempt
            elif event.HasField("activity_task_completed_event_attributes"):
                done = ids[event.activity_task_completed_event_attributes.scheduled_event_id]
                found.completed[done] = found.completed.get(done, 0) + 1
        return found


def report(before: Activities, after: Activities) -> int:
    """Print what the two histories show; 0 when nothing that had completed was done again."""
    again = [item for item in after.kinds if after.scheduled[item] > 1 or after.completed.get(item, 0) > 1]
    changed = [item for item in before.completed if after.attempts[item] != before.attempts[item]]
    repeated = {item: attempt for item, attempt in after.attempts.items() if attempt > 1}
    models = sum(kind == "mainspring.call_model" for kind in after.kinds.values())
    tools = sum(not kind.startswith("mainspring.") for kind in after.kinds.values())
    armings = len(after.kinds) - models - tools
    counted = f"{count(tools, 'tool call')}, {count(models, 'model call')}, {count(armings, 'arming')}"
    say("from the run's history:")
    say(f"  {len(after.kinds)} activities: {counted}")
    told = f"{len(before.completed)} of them had completed when the worker was killed"
    say(f"  {told}; repeated: {len({*again, *changed})}")
    for item, attempt in repeated.items():
        say(f"  lost with the worker and made again: {after.kinds[item]} {item}, attempt {attempt}")
    proven = not again and not changed
    say("no completed call ran twice" if proven else f"✗ made twice: {', '.join([*again, *changed])}")
    return 0 if proven else 1


if __name__ == "__main__":
    main()
