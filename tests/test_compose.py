"""The compose file and the scripts beside it: what can be held against a real server without Docker is."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from temporalio import workflow
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from mainspring.config import load

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker-compose.temporal.yml"
DEPLOY = ROOT / "deploy"
ATTRIBUTES = {
    "MainspringAgent": "Keyword",
    "MainspringStatus": "Keyword",
    "MainspringOutcome": "Keyword",
    "MainspringAwaiting": "Keyword",
    "MainspringTurns": "Int",
    "MainspringTokens": "Int",
}

Services = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file, read."""
    return yaml.safe_load(COMPOSE.read_text())


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> Services:
    """Its services, in the order of the file."""
    return compose["services"]


# --- the file --------------------------------------------------------------------------------------------


def test_compose_file_meets_the_specification() -> None:
    """The compose file is valid under the Compose specification's own schema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, str(COMPOSE)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def unpinned(images: list[str]) -> list[str]:
    """Images whose tag does not name a version of at least two numbers."""
    pinned = re.compile(r"[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.]+)*")
    return [image for image in images if not pinned.fullmatch(image)]


def images_of(services: Services, dockerfile: str) -> list[str]:
    """Every image that is pulled or made: of the services, and of the stages of the worker's build."""
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?", dockerfile, re.MULTILINE)
    return [service["image"] for service in services.values()] + [image for image, _ in stages]


def test_every_image_is_pinned(services: Services) -> None:
    """No image, of a service or of a build stage, can change under its tag's name."""
    images = images_of(services, (DEPLOY / "Dockerfile").read_text())
    assert len(images) >= len(services) + 2
    assert unpinned(images) == []
    assert not [image for image in images if "auto-setup" in image]


@pytest.mark.parametrize(
    "image", ["temporalio/ui", "temporalio/ui:latest", "postgres:17", "python:3-slim", "a/b:${TAG}"]
)
def test_unpinned_image_is_detected(image: str) -> None:
    """The rule of the test above refuses tags that move."""
    assert unpinned([image]) == [image]


def test_server_and_tools_are_of_one_version(services: Services) -> None:
    """The schema is brought to the version of the server that will read it."""
    tags = {services[name]["image"].partition(":")[2] for name in ("schema", "temporal", "namespace")}
    assert len(tags) == 1


def test_worker_image_carries_the_project_version(services: Services) -> None:
    """The worker's image is tagged with the version that it is built from."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert services["worker"]["image"] == f"mainspring-worker:{version}"


def waits(services: Services) -> dict[str, set[str]]:
    """For each service, the conditions under which others wait for it."""
    found: dict[str, set[str]] = {name: set() for name in services}
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            found[name].add(how["condition"])
    return found


def unwatched(services: Services, dockerfile: str) -> list[str]:
    """Services that have no health check and are no one-shot that somebody waits for."""
    waited = waits(services)
    return [
        name
        for name, service in services.items()
        if "healthcheck" not in service
        and not ("build" in service and re.search(r"^HEALTHCHECK ", dockerfile, re.MULTILINE))
        and waited[name] != {"service_completed_successfully"}
    ]


def test_every_service_is_watched(services: Services) -> None:
    """Every service has a health check, or is a one-shot that others wait for."""
    assert unwatched(services, (DEPLOY / "Dockerfile").read_text()) == []


def test_unwatched_service_is_detected(services: Services) -> None:
    """The rule of the test above sees a health check that is gone, in the file and in the image."""
    bare = {name: {**service} for name, service in services.items()}
    for service in bare.values():
        service.pop("healthcheck", None)
    assert unwatched(bare, "") == ["postgresql", "temporal", "ui", "worker"]


def test_services_wait_for_what_they_need(services: Services) -> None:
    """A service with a health check is awaited healthy, a one-shot completed, in the order of the file."""
    order = [(name, *service.get("depends_on", {"-": {}})) for name, service in services.items()]
    assert order == [
        ("postgresql", "-"),
        ("schema", "postgresql"),
        ("temporal", "schema"),
        ("namespace", "temporal"),
        ("ui", "namespace"),
        ("worker", "namespace"),
    ]
    for name, conditions in waits(services).items():
        wanted = "service_healthy" if "healthcheck" in services[name] else "service_completed_successfully"
        assert conditions <= {wanted}, name


def test_one_shots_end_and_the_rest_comes_back(services: Services) -> None:
    """One-shots are retried a bounded number of times; everything else survives a reboot."""
    restarts = {name: service["restart"] for name, service in services.items()}
    assert {name for name, restart in restarts.items() if restart == "on-failure:5"} == {
        "schema",
        "namespace",
    }
    assert set(restarts.values()) == {"on-failure:5", "unless-stopped"}


def test_no_secret_is_written_in_the_file(services: Services) -> None:
    """Passwords and keys come from the environment."""
    for service in services.values():
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|PWD|KEY|TOKEN|SECRET", variable):
                assert value is None or re.fullmatch(r"\$\{[A-Z_]+(:-temporal)?\}", value), variable


def test_ports_are_local_and_documented(services: Services) -> None:
    """Every open port is bound to this machine by default, and is on the page that explains them."""
    page = (DEPLOY / "README.md").read_text()
    opened = [port for service in services.values() for port in service.get("ports", [])]
    assert opened
    for port in opened:
        bound = re.fullmatch(r"\$\{MAINSPRING_BIND:-127\.0\.0\.1\}:(\d+):\1", port)
        assert bound, port
        assert f"| {bound[1]} |" in page


def test_settings_are_documented() -> None:
    """Every variable that the compose file reads is on the page that explains them."""
    page = (DEPLOY / "README.md").read_text()
    read = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", COMPOSE.read_text()))
    assert "POSTGRES_PASSWORD" in read
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_state_lives_in_named_volumes(compose: dict[str, Any]) -> None:
    """The database and the blobs outlive their containers."""
    mounted = {
        (name, volume.partition(":")[0])
        for name, service in compose["services"].items()
        for volume in service.get("volumes", [])
        if not volume.startswith((".", "$"))
    }
    assert mounted == {("postgresql", "postgresql-data"), ("worker", "worker-state")}
    assert set(compose["volumes"]) == {volume for _, volume in mounted}


def test_mounted_files_exist(services: Services) -> None:
    """Every file of this checkout that a service mounts or runs is there."""
    for service in services.values():
        for volume in service.get("volumes", []):
            found = re.match(r"(?:\$\{[A-Z_]+:-)?(\./[\w./-]+)", volume)
            assert found is None or (ROOT / found[1]).exists(), volume
        for script in service.get("command", []):
            assert (ROOT / script.lstrip("/")).is_file(), script


def test_dynamic_configuration_reads_as_one() -> None:
    """Dynamic configuration is a map of keys to lists of values, where the server looks for it."""
    mounted = yaml.safe_load((DEPLOY / "dynamicconfig" / "mainspring.yaml").read_text())
    for key, values in mounted.items():
        assert re.fullmatch(r"[a-z]+\.[A-Za-z.]+", key)
        assert all("value" in value for value in values), key


# --- the image -------------------------------------------------------------------------------------------


def test_image_copies_every_source_folder() -> None:
    """The worker's image is built from every folder that the wheel is made of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for folder in folders:
        assert f"COPY {folder} ./{folder}\n" in dockerfile
        assert f"!{folder}" in ignored


def test_image_copies_only_what_exists() -> None:
    """Every path that the Dockerfile takes from the checkout is there, and let through to it."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    sources = [source for copy in copies for source in copy.split()]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert len(sources) > 5
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored


def test_worker_configuration_is_valid() -> None:
    """The configuration that the worker's container starts with is one that Mainspring accepts."""
    config = load(DEPLOY / "config" / "mainspring.yaml")
    assert sorted(config.agents) == ["guide", "hello"]
    assert config.state_dir == "/var/lib/mainspring"


# --- the scripts -----------------------------------------------------------------------------------------


@pytest.fixture
def sql_tool(tmp_path: Path) -> Path:
    """A stand-in for temporal-sql-tool that writes down its arguments; FAIL_AT makes the n-th call fail."""
    log = tmp_path / "calls"
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(f'#!/bin/sh\necho "$*" >>"{log}"\n[ "$(wc -l <"{log}")" -ne "${{FAIL_AT:-0}}" ]\n')
    tool.chmod(0o755)
    return log


def setup_schema(log: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the schema script with the stand-in that writes to `log`."""
    path = f"{log.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/sh", str(DEPLOY / "setup-schema.sh")],
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_schema_script_makes_and_updates_both_databases(sql_tool: Path) -> None:
    """Each database is created, set up and updated, in this order, and nothing more is done."""
    assert setup_schema(sql_tool).returncode == 0
    versions = "/etc/temporal/schema/postgresql/v12"
    assert sql_tool.read_text().splitlines() == [
        "--db temporal create",
        "--db temporal setup-schema --version 0.0",
        f"--db temporal update-schema --schema-dir {versions}/temporal/versioned",
        "--db temporal_visibility create",
        "--db temporal_visibility setup-schema --version 0.0",
        f"--db temporal_visibility update-schema --schema-dir {versions}/visibility/versioned",
    ]


@pytest.mark.parametrize("call", range(1, 7))
def test_schema_script_stops_at_the_first_failure(sql_tool: Path, call: int) -> None:
    """A step that fails ends the script with a failure: no server starts on half a schema."""
    ended = setup_schema(sql_tool, FAIL_AT=str(call))
    assert ended.returncode != 0
    assert len(sql_tool.read_text().splitlines()) == call


@pytest.fixture(scope="module")
def cli() -> str:
    """The `temporal` command beside this interpreter (extra `embedded`), or on the path."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    assert found, "the tests need the extra `embedded`"
    return found


@pytest_asyncio.fixture(scope="module")
async def server(cli: str) -> AsyncIterator[Client]:
    """A real server of its own, without search attributes of ours."""
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=cli) as environment:
        yield environment.client


async def ran(command: list[str], **environment: str) -> tuple[int, str]:
    """Exit status and words of a command that sees only these variables."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    words, _ = await process.communicate()
    return process.returncode or 0, words.decode()


async def setup_namespace(server: Client, cli: str, namespace: str) -> tuple[int, str]:
    """Run the namespace script against the server."""
    return await ran(
        ["/bin/sh", str(DEPLOY / "setup-namespace.sh")],
        PATH=f"{Path(cli).parent}{os.pathsep}{os.environ['PATH']}",
        HOME=os.environ.get("HOME", "/"),
        TEMPORAL_ADDRESS=server.service_client.config.target_host,
        TEMPORAL_NAMESPACE=namespace,
        SETUP_PAUSE_SECONDS="0.2",
    )


async def attributes(server: Client, cli: str, namespace: str) -> dict[str, str]:
    """Our search attributes as the server lists them."""
    command = [cli, "operator", "search-attribute", "list", "--namespace", namespace]
    address = ["--address", server.service_client.config.target_host]
    _, words = await ran([*command, *address], HOME=os.environ.get("HOME", "/"))
    rows = [line.split() for line in words.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[0].startswith("Mainspring")}


async def test_namespace_script_registers_the_search_attributes(server: Client, cli: str) -> None:
    """A new namespace has exactly the six attributes that runs write, with their types."""
    status, words = await setup_namespace(server, cli, "fresh")
    assert status == 0, words
    assert await attributes(server, cli, "fresh") == ATTRIBUTES


async def test_namespace_script_repeats_safely(server: Client, cli: str) -> None:
    """A second run succeeds and changes nothing."""
    await setup_namespace(server, cli, "twice")
    status, words = await setup_namespace(server, cli, "twice")
    assert (status, words) == (0, "namespace twice is ready\n")
    assert await attributes(server, cli, "twice") == ATTRIBUTES


async def test_namespace_script_completes_a_half_made_namespace(server: Client, cli: str) -> None:
    """Attributes that are there are left, missing ones are added; a longer name is not taken for one."""
    await setup_namespace(server, cli, "half")
    address = ["--address", server.service_client.config.target_host, "--namespace", "half"]
    home = os.environ.get("HOME", "/")
    attribute = [cli, "operator", "search-attribute"]
    await ran([*attribute, "remove", "--yes", "--name", "MainspringTurns", *address], HOME=home)
    await ran([*attribute, "create", "--name", "MainspringTurnsOld", "--type", "Int", *address], HOME=home)
    assert "MainspringTurns" not in await attributes(server, cli, "half")
    status, words = await setup_namespace(server, cli, "half")
    assert status == 0, words
    assert await attributes(server, cli, "half") == {**ATTRIBUTES, "MainspringTurnsOld": "Int"}


async def test_namespace_script_gives_up_and_says_why(server: Client, cli: str, free_port: int) -> None:
    """Without a server the script ends with a failure after its attempts, naming what it waited for."""
    status, words = await ran(
        ["/bin/sh", str(DEPLOY / "setup-namespace.sh")],
        PATH=f"{Path(cli).parent}{os.pathsep}{os.environ['PATH']}",
        HOME=os.environ.get("HOME", "/"),
        TEMPORAL_ADDRESS=f"127.0.0.1:{free_port}",
        TEMPORAL_CLIENT_CONNECT_TIMEOUT="1s",
        SETUP_ATTEMPTS="2",
        SETUP_PAUSE_SECONDS="0",
    )
    assert status == 1
    assert "gave up waiting for the server after 2 attempts" in words


@pytest.fixture
def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# --- the worker's health ---------------------------------------------------------------------------------


@workflow.defn(sandboxed=False)
class Idle:
    """A workflow for a worker that only has to poll."""

    @workflow.run
    async def run(self) -> None:
        """End at once."""


async def health(address: str, task_queue: str) -> tuple[int, str]:
    """Run the health check as the container does."""
    return await ran(
        [sys.executable, str(DEPLOY / "worker_health.py")],
        TEMPORAL_ADDRESS=address,
        MAINSPRING_TASK_QUEUE=task_queue,
        HOME=os.environ.get("HOME", "/"),
    )


async def test_worker_that_polls_is_healthy(server: Client) -> None:
    """The health check succeeds while a worker of this host polls its queue."""
    address = server.service_client.config.target_host
    async with Worker(server, task_queue="polled", workflows=[Idle]):
        for _ in range(20):  # the first poll is on its way
            status, words = await health(address, "polled")
            if status == 0:
                break
    assert status == 0, words
    assert "last poll of polled" in words


async def test_worker_of_another_host_does_not_count(server: Client) -> None:
    """A queue that only another host polls does not make this one healthy."""
    address = server.service_client.config.target_host
    other = await Client.connect(address, identity="1@elsewhere")
    async with Worker(other, task_queue="elsewhere", workflows=[Idle]):
        await asyncio.sleep(1)
        assert await health(address, "elsewhere") == (1, "no worker of this host polls elsewhere\n")


async def test_worker_without_a_server_is_not_healthy(free_port: int) -> None:
    """The health check fails when the server cannot be reached."""
    status, words = await health(f"127.0.0.1:{free_port}", "polled")
    assert status == 1
    assert words.startswith("the server does not answer: ")
