"""Is everything there that runs need? Each check says what it saw and, where it failed, what to do."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from mainspring import config as configuration
from mainspring.activities.arm_checks import secret_faults
from mainspring.activities.arm_models import resolve_models
from mainspring.activities.attributes import ATTRIBUTES
from mainspring.activities.redis_deltas import configured
from mainspring.connect import connect, place
from mainspring.embedded import SEARCH_ATTRIBUTES, EmbeddedError, binary
from mainspring.errors import ConfigError, MainspringError
from mainspring.feed import POLL_SECONDS, polled_before
from mainspring.plugin import MainspringPlugin
from mainspring.render import count, one_line
from mainspring.run_errors import Unreachable
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.config import Config, DeltaSpec
from mainspring.schemas.tools import ToolDeclaration
from mainspring.services import blob_store
from mainspring.state_folder import state_folder
from mainspring.worker import catalog_of, plugin_of
from mainspring.workflows.arming import check_tools
from mainspring.workflows.catalog import admits

__all__ = ["Check", "deltas_check", "examine", "worker_check"]

PACKAGES = ("mainspring", "temporalio", "pydantic-ai-slim", "mcp")
REACH_SECONDS = 5.0
FRESH_SECONDS = 15.0
"""A worker that asked no longer ago is surely there."""
EMBEDDED = "embedded Temporal"
PROBE = b"mainspring doctor"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Args:
        ok: None where it is worth knowing and not wrong.
        told: What was seen.
        advice: What to do about it.
    """

    name: str
    ok: bool | None
    told: str
    advice: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


async def examine(config_file: Path | None) -> list[Check]:
    """Look at everything; nothing here raises for what it finds."""
    checks = [*_installation()]
    embedded = any(check.name == EMBEDDED and check.ok for check in checks)
    plugin, check = _configuration(config_file)
    checks.append(check)
    config = plugin.config if plugin else None
    checks += [check async for check in _server(config, embedded)]
    if plugin is not None:
        checks += [check async for check in _models(plugin.config)]
        checks += [check async for check in _blobs(plugin.config)]
        checks += filter(None, [await deltas_check(plugin.config)])
        checks += [check async for check in _tools(plugin)]
    return checks


def _installation() -> Iterator[Check]:
    version = platform.python_version()
    wanted = sys.version_info >= (3, 11)
    yield Check("python", wanted, version, None if wanted else "Mainspring needs Python 3.11 or later")
    for name in PACKAGES:
        try:
            yield Check(name, True, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, False, "not installed", f"pip install {name}")
    try:
        yield Check(EMBEDDED, True, binary())
    except EmbeddedError as error:
        yield Check(EMBEDDED, None, "not installed", f"only `dev` and `run` need it: {error}")


def _configuration(config_file: Path | None) -> tuple[MainspringPlugin | None, Check]:
    try:
        file = config_file or configuration.find()
        plugin = plugin_of(file)
    except ConfigError as error:
        return None, Check("configuration", False, str(error), "correct it; `mainspring config schema` helps")
    agents = ", ".join(plugin.config.agents) or "no agents"
    return plugin, Check("configuration", True, f"{file} · {agents}")


async def _server(config: Config | None, embedded: bool) -> AsyncIterator[Check]:
    at = None
    try:
        at = place(Path(config.state_dir) if config else None)
        client = await connect(at, timeout_seconds=REACH_SECONDS)
        info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
    except (MainspringError, RPCError) as error:
        startable = embedded and isinstance(error, Unreachable) and at is not None and not at.named
        yield Check(
            "Temporal",
            None if startable else False,
            str(error),
            "`mainspring run` starts one when it needs it; `mainspring dev` keeps one with a worker"
            if startable
            else "address, namespace and TLS are read from TEMPORAL_* and temporal.toml",
        )
        return
    address = client.service_client.config.target_host
    yield Check("Temporal", True, f"{address} · namespace {client.namespace} · server {info.server_version}")
    yield await _search_attributes(client)
    queue = config.task_queue if config else "mainspring"
    yield worker_check("worker", queue, await polled_before(client, queue), "mainspring worker")
    for name, tools in _activity_queues(config).items():
        seconds = await polled_before(client, name, activities=True)
        advice = f"start the worker that has the activity of {', '.join(tools)}"
        yield worker_check("worker of activities", name, seconds, advice)


def _activity_queues(config: Config | None) -> dict[str, list[str]]:
    """Task queues of the configuration's own activities, with their tools; those that share ours left out."""
    queues: dict[str, list[str]] = {}
    for tool in config.tools.activities if config else ():
        if config is not None and tool.task_queue not in (None, config.task_queue):
            queues.setdefault(str(tool.task_queue), []).append(tool.name)
    return queues


def worker_check(name: str, queue: str, seconds: float | None, advice: str) -> Check:
    """Whether a task queue is served, as far as the server's memory of who asked it tells."""
    if seconds is None:
        return Check(name, None, f"no worker serves task queue {queue}", advice)
    if seconds > POLL_SECONDS:
        told = f"no worker serves task queue {queue}; the last one asked {seconds:.0f} s ago"
        return Check(name, None, told, advice)
    if seconds > FRESH_SECONDS:
        told = f"task queue {queue}: a worker asked {seconds:.0f} s ago, as an idle one does once a minute"
        return Check(name, True, told)
    return Check(name, True, f"task queue {queue} is served")


async def _search_attributes(client: Client) -> Check:
    name = "search attributes"
    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError as error:
        return Check(name, None, f"the server does not say ({error.message})")
    missing = [each for each, kind in ATTRIBUTES.items() if answer.custom_attributes.get(each) != kind]
    if not missing:
        return Check(name, True, "all registered")
    options = " ".join(f"--name {each} --type {SEARCH_ATTRIBUTES[each]}" for each in missing)
    advice = f"temporal operator search-attribute create --namespace {client.namespace} {options}"
    return Check(name, False, f"not registered: {', '.join(missing)}", advice)


async def _models(config: Config) -> AsyncIterator[Check]:
    """Each model that an agent uses, with its fallbacks: does it resolve, can its provider be asked?"""
    for name in dict.fromkeys(agent.model for agent in config.agents.values()):
        models, refused = await asyncio.to_thread(resolve_models, config, name)
        faults = [item.message for item in (*refused, *secret_faults(models))]
        faults += [fault for model in models if model.model and (fault := await _unusable(model))]
        shown = ", ".join(model.model or "scripted" for model in models)
        told = "; ".join(fault.removeprefix(f"model {name}: ") for fault in dict.fromkeys(faults))
        advice = "install or set it there, or correct `models`" if faults else None
        yield Check(f"model {name}", not faults, told or shown, advice)


async def _unusable(model: ModelSpec) -> str | None:
    """Why a provider's model cannot be asked; found out without asking it."""
    from mainspring.activities.providers import Connections  # it brings pydantic-ai, which takes a second

    try:
        await Connections().model(model)
    except ApplicationError as error:
        return one_line(error.message, 200)
    return None


async def _blobs(config: Config) -> AsyncIterator[Check]:
    try:
        if config.blobs == "file":
            state_folder(config.state_dir)
        store = blob_store(config)
        reference = await store.put(PROBE, "text/plain")
        whole = await store.get(reference) == PROBE
    except Exception as error:  # every store fails in its own way
        yield Check(
            "blobs", False, f"{type(error).__name__}: {error}", "correct `blobs` in the configuration"
        )
        return
    yield Check("blobs", whole, f"{store.url} · written and read back")
    if not store.shared:
        advice = "workers on several hosts need a shared one: blobs: s3://bucket/prefix"
        yield Check("shared blobs", None, "only this machine sees the blob store", advice)


async def deltas_check(config: Config) -> Check | None:
    """Whether the Redis of the live deltas takes and gives them; None where none is configured."""
    try:
        redis = configured(config.deltas)
    except ConfigError as error:
        return Check("deltas", False, str(error), "correct `deltas.redis`: no worker starts with it")
    if redis is None:
        return None
    try:
        async with asyncio.timeout(REACH_SECONDS):
            version = await redis.probe()
    except Exception as error:  # its own words may quote an address with its password
        advice = "start it, or correct `deltas.redis`; runs go on without their deltas"
        return Check("deltas", False, f"Redis does not serve: {type(error).__name__}", advice)
    finally:
        await redis.close()
    return Check("deltas", True, f"Redis {version} · written and read back")


async def _tools(plugin: MainspringPlugin) -> AsyncIterator[Check]:
    # Deltas have a check of their own, and what is wrong with them hides no tool.
    config = plugin.config.model_copy(update={"deltas": DeltaSpec()})
    try:
        catalog = await catalog_of(MainspringPlugin(config))
    except ConfigError as error:
        yield Check("tools", False, str(error), "correct `tools` in the configuration")
        return
    counts = {name: 0 for name in plugin.config.mcp}
    built_in = 0
    for tool in catalog.tools:
        built_in += tool.declaration.source == "builtin"
        if tool.name.startswith("mcp:"):
            counts[tool.name.removeprefix("mcp:").split("/")[0]] += 1
    yours = len(catalog.tools) - sum(counts.values()) - built_in
    yield Check("tools", True, f"{built_in:,} built in, {yours:,} of yours")
    for name, number in counts.items():
        why = catalog.failures.get(name)
        told = count(number, "tool") if why is None else why.removeprefix(f"MCP server {name} ")
        advice = None if why is None else f"correct `mcp.{name}`, or start what it needs"
        yield Check(f"MCP server {name}", why is None, told, advice)
    for check in _agents(config, [tool.declaration for tool in catalog.tools]):
        yield check


def _agents(config: Config, tools: Sequence[ToolDeclaration]) -> Iterator[Check]:
    """Agents whose runs would be refused for their tools."""
    names = {tool.name for tool in tools if not tool.name.startswith("mcp:")}
    for name, agent in config.agents.items():
        spec = agent.spec()
        admitted = [tool for tool in tools if admits(spec.tools, tool.name)]
        refused = check_tools(spec, admitted, servers=config.mcp, names=names)
        if refused:
            told = "; ".join(dict.fromkeys(item.message for item in refused))
            fields = " and ".join(dict.fromkeys(f"`agents.{name}.{item.field}`" for item in refused))
            yield Check(f"agent {name}", False, told, f"correct {fields}")
