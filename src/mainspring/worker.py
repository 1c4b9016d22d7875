"""The worker process: `mainspring worker`, `python -m mainspring.worker`, `python worker.py`.

It serves the task queue of its configuration until SIGTERM or SIGINT, lets what is in flight end, and then
ends the process deliberately: an interpreter that shuts down after a worker ran may crash, and an exit status
must not depend on it.

Exit status: 0 stopped as asked, 2 the configuration is wrong, 3 no server.

Source: shared design, temporal-facts.md 7, 14; dependencies.md.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from temporalio.client import Client
from temporalio.worker import Worker

from mainspring import config
from mainspring.activities.tools import Catalog
from mainspring.connect import connect, place
from mainspring.errors import ConfigError, MainspringError
from mainspring.plugin import MainspringPlugin
from mainspring.process import LOG_FORMAT, end_process, log_through_python, short_failures, stop_requested
from mainspring.run_errors import Unreachable
from mainspring.state_folder import state_folder
from mainspring.telemetry.sdk import sdk_from_environment

__all__ = [
    "catalog_of",
    "exit_status",
    "main",
    "make_worker",
    "plugin_of",
    "serving",
    "work",
]

GRACEFUL_SECONDS = 30.0


def main() -> NoReturn:
    """Serve until told to stop; ends the process."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    log_through_python()
    try:
        asyncio.run(work(None))
        status = 0
    except MainspringError as error:
        print(f"mainspring worker: {error}", file=sys.stderr)
        status = exit_status(error)
    except KeyboardInterrupt:
        status = 130
    end_process(status)


async def work(config_file: Path | None) -> None:
    """Serve the task queue of a configuration until SIGTERM or SIGINT.

    Raises: ConfigError, Unreachable.
    """
    plugin = plugin_of(config_file)
    client = await connect(place(Path(plugin.config.state_dir)), [plugin])
    if plugin.config.blobs == "file":
        with suppress(OSError):  # what cannot be kept is told when there is something to keep
            state_folder(plugin.config.state_dir)
    stop = stop_requested()
    with sdk_from_environment():
        await _until_stopped(client, plugin, stop)


async def _until_stopped(client: Client, plugin: MainspringPlugin, stop: asyncio.Event) -> None:
    async with serving(client, plugin) as worker:
        address = client.service_client.config.target_host
        log = logging.getLogger("mainspring.worker")
        log.info("serving task queue %r at %s, namespace %r", worker.task_queue, address, client.namespace)
        await stop.wait()
        log.info("stopping; what is in flight has %.0f s to end", GRACEFUL_SECONDS)


def plugin_of(config_file: Path | None) -> MainspringPlugin:
    """The plugin of a configuration file, or of the one that is found without a name.

    Raises: ConfigError.
    """
    file = config_file or config.find()
    return MainspringPlugin.from_file(file)


def make_worker(
    client: Client, plugin: MainspringPlugin, *, graceful_seconds: float = GRACEFUL_SECONDS
) -> Worker:
    """A worker for the plugin's task queue. The client must have been connected with the plugin.

    Raises: ConfigError, when what the configuration names cannot be put together.
    """
    try:
        return Worker(
            client,
            task_queue=plugin.config.task_queue,
            graceful_shutdown_timeout=timedelta(seconds=graceful_seconds),
        )
    except ValueError as error:  # two tools of one name, a blob store of an unknown kind
        raise ConfigError(str(error)) from error


async def catalog_of(plugin: MainspringPlugin) -> Catalog:
    """Every tool of the configuration, asked for without a worker; what had to be started is ended.

    Raises: ConfigError.
    """
    try:
        services = plugin.services
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        return await services.toolbox.catalog()
    finally:
        await services.close()


@asynccontextmanager
async def serving(
    client: Client, plugin: MainspringPlugin, *, graceful_seconds: float = GRACEFUL_SECONDS
) -> AsyncGenerator[Worker]:
    """Serve for as long as the block runs; a worker that fails for good ends the block with its error."""
    short_failures()
    async with make_worker(client, plugin, graceful_seconds=graceful_seconds) as worker:
        yield worker


def exit_status(error: MainspringError) -> int:
    """What an error means to a script."""
    return 3 if isinstance(error, Unreachable) else 2


if __name__ == "__main__":
    main()
