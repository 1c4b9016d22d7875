"""Workers in processes of their own, to be killed outright.

A process takes a second or more to import everything. So that many can be killed in a row, one process does
it once and serves nobody: told `start`, it forks itself, and the child is the worker. It has no thread and no
connection, so that nothing is shared but what was imported.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from mainspring import services
from mainspring.plugin import MainspringPlugin
from support.journal import JOURNAL, look, note

__all__ = ["WorkerProcesses"]

TESTS = Path(__file__).resolve().parents[1]
STICKY_SECONDS = 0.2
"""How long a workflow task waits for a worker that is gone; 10 s where nobody expects it to be killed."""

GONE_SECONDS = 10.0


class WorkerProcesses:
    """Worker processes on one task queue.

    Args:
        config: The configuration file.
        journal: Where the tools of `support.journal` take effect.
    """

    def __init__(self, config: Path, address: str, task_queue: str, journal: Path) -> None:
        self._command = [sys.executable, str(Path(__file__).resolve()), str(config), address, task_queue]
        path = os.pathsep.join([str(TESTS), *sys.path])
        self._environment = {**os.environ, "PYTHONPATH": path, JOURNAL: str(journal)}
        self._log = journal.with_suffix(".log")
        self._pids: list[int] = []
        self._parent: subprocess.Popen[str] | None = None
        self.killed = 0

    @contextmanager
    def standing_by(self) -> Iterator[WorkerProcesses]:
        """Until the block ends; none is left then."""
        with self._log.open("ab") as log:
            self._parent = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            yield self
        finally:
            for pid in self._pids:
                _kill(pid)
            self._parent.kill()
            self._parent.communicate()

    @property
    def log(self) -> str:
        """What the processes wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start a worker."""
        assert self._parent is not None
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        told = self._parent.stdout.readline()
        assert told.strip().isdigit(), f"no worker was started:\n{self.log}"
        self._pids.append(int(told))

    def kill(self) -> None:
        """Kill the worker that was started first: no handler runs, nothing is flushed."""
        assert _kill(self._pids.pop(0)), f"the worker had ended by itself:\n{self.log}"
        self.killed += 1


def _kill(pid: int) -> bool:
    """Kill a process and wait until it is gone; whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    deadline = time.monotonic() + GONE_SECONDS
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.002)
        raise AssertionError(f"process {pid} is still there, {GONE_SECONDS:.0f} s after it was killed")
    return True


async def _serve(config: str, address: str, task_queue: str) -> None:
    plugin = MainspringPlugin.from_file(config, tools=[note, look])
    client = await Client.connect(address, plugins=[plugin])
    parent = os.getppid()
    async with Worker(
        client,
        task_queue=task_queue,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_SECONDS),
    ):
        while os.getppid() == parent:
            await asyncio.sleep(0.2)


def _fork_on_demand(arguments: list[str]) -> None:
    assert services  # imported here, once, and not in every child
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a child, so none stays as a zombie
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(2, 1)  # Temporal's core logs to standard output, where pids are told
            asyncio.run(_serve(*arguments))
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    _fork_on_demand(sys.argv[1:])
