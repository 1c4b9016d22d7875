"""`dev` and `worker`: processes that serve runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from mainspring.cli.app import app, command, config_file, where
from mainspring.cli.begin import log_to
from mainspring.cli.output import note
from mainspring.connect import Place, connect
from mainspring.embedded import embedded, free_port
from mainspring.process import stop_requested
from mainspring.worker import plugin_of, serving, work

__all__: list[str] = []

PORT = 7233
UI_PORT = 8233
GRACE_SECONDS = 5.0


@app.command(epilog="Example: mainspring dev, and in another terminal: mainspring run 'Hello' --agent guide")
@command
async def dev(
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Of Temporal. Default: 7233, or a free one.", min=1, max=65535),
    ] = None,
    ui_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Of the web UI. Default: 8233, or a free one.", min=1, max=65535),
    ] = None,
) -> None:
    """Run an embedded Temporal with its UI, and a worker, until Ctrl-C. Not for production."""
    stop = stop_requested()
    plugin = plugin_of(config_file())
    state_dir = Path(plugin.config.state_dir)
    log = state_dir / "worker.log"
    log_to(log)
    web = ui_port or free_port(UI_PORT)
    async with embedded(state_dir, port=port or free_port(PORT), ui=True, ui_port=web) as server:
        note(f"Temporal  {server.address}{' (already running)' * server.reused}")
        note(f"UI        {server.ui_url or 'none'}")
        note(f"state     {state_dir}")
        client = await connect(Place.at(server.address, where(plugin.config).options), [plugin])
        async with serving(client, plugin, graceful_seconds=GRACE_SECONDS):
            agents = ", ".join(plugin.config.agents) or "none"
            note(f"worker    task queue {plugin.config.task_queue} · agents: {agents} · log {log}")
            note(
                "ready; Ctrl-C ends it, and runs go on when it starts again; "
                "restart it after editing mainspring.yaml or tools"
            )
            await stop.wait()
            note("stopping")


@app.command(epilog="Example: TEMPORAL_ADDRESS=temporal:7233 mainspring worker")
@command
async def worker() -> None:
    """Serve the configuration's task queue until SIGTERM or Ctrl-C."""
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("temporalio").setLevel(logging.INFO)
    await work(config_file())
