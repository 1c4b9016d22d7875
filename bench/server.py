"""A Temporal server of the benchmark's own, that ends with the benchmark."""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from temporalio.client import Client
from temporalio.service import RPCError

START_SECONDS = 30.0
STOP_SECONDS = 5.0
CONTROL_QUERIES = 3
# The embedded server has one shard, and its default of 20 polls a second would cap a single run at
# about 10 turns a second: the benchmark would measure that cap.
DYNAMIC_CONFIG = {
    "history.transferProcessorMaxPollRPS": 2000,
    "history.timerProcessorMaxPollRPS": 2000,
}


class ServerFailed(Exception):
    """The embedded server did not start; says what it wrote."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it is, and where its metrics are."""

    address: str
    metrics_url: str

    def requests(self, operation: str) -> int:
        """How many requests of one gRPC operation, "QueryWorkflow" say, the frontend has served.

        Read from the count of a latency histogram, failed requests included: that is up to date,
        while the server's plain counters are published once a second, and a look right after the
        work would miss its end.
        """
        with urllib.request.urlopen(self.metrics_url, timeout=10) as response:
            text = response.read().decode()
        return sum(
            int(float(line.rsplit(" ", 1)[1]))
            for line in text.splitlines()
            if line.startswith("service_latency_count{")
            and f'operation="{operation}"' in line
            and 'service_name="frontend"' in line
        )


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[Server]:
    """Serve an empty, in-memory Temporal on free local ports for as long as the block runs.

    Raises:
        ServerFailed: No server binary, it did not come up within `START_SECONDS`, or it does not
            count requests.
    """
    port, metrics_port = _free_ports(2)
    with tempfile.TemporaryFile() as log:  # not a pipe: nobody would empty it
        process = subprocess.Popen(
            [_binary(), *_arguments(port, metrics_port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        try:
            client = await _until_ready(process, f"127.0.0.1:{port}", log)
            server = Server(f"127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}/metrics")
            await _check_counting(server, client)
            yield server
        finally:
            _stop(process)


def _arguments(port: int, metrics_port: int) -> list[str]:
    arguments = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"]
    arguments += ["--port", str(port), "--metrics-port", str(metrics_port)]
    for key, value in DYNAMIC_CONFIG.items():
        arguments += ["--dynamic-config-value", f"{key}={value}"]
    return arguments


def _binary() -> str:
    """The `temporal` beside this interpreter (the `embedded` extra), else the one on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise ServerFailed("no `temporal` binary: install mainspring[embedded]")
    return found


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until all are known, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


async def _until_ready(process: "subprocess.Popen[bytes]", address: str, log: BinaryIO) -> Client:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        if process.poll() is not None:
            log.seek(0)
            raise ServerFailed(log.read().decode(errors="replace")[-2000:])
        try:
            client = await Client.connect(address)
            await client.count_workflows()
        except (RPCError, RuntimeError):
            await asyncio.sleep(0.1)
        else:
            return client
    raise ServerFailed(f"no answer from {address} within {START_SECONDS:.0f} s")


async def _check_counting(server: Server, client: Client) -> None:
    """Make queries whose number is known and see them counted.

    A count that reads 0 whatever happens would pass the bar "no queries" for ever.
    """
    before = server.requests("QueryWorkflow")
    for _ in range(CONTROL_QUERIES):
        with contextlib.suppress(RPCError):  # there is no such workflow; the query counts all the same
            await client.get_workflow_handle("bench-control").query("none")
    counted = server.requests("QueryWorkflow") - before
    if counted != CONTROL_QUERIES:
        raise ServerFailed(f"the server counted {counted} of {CONTROL_QUERIES} queries")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_with_parent() -> None:
    """Runs in the child before exec: ask the kernel to end it when this process is killed outright."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() == 1:  # the parent died before the request was made
        os._exit(1)
