"""`config`, `doctor` and `replay`: is everything as it should be?"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from mainspring import config as configuration
from mainspring import doctor as examination
from mainspring.channel import server_errors
from mainspring.cli.app import AS_JSON, EXIT_NO_ANSWER, Group, app, chosen_config, command, connected, loaded
from mainspring.cli.output import note, out, print_json
from mainspring.plugin import MainspringPlugin
from mainspring.render import one_line, styled
from mainspring.run_errors import Refused, UnknownRun

__all__: list[str] = []

config_app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    help="The configuration: its schema, and what is in effect.",
    no_args_is_help=True,
)
app.add_typer(config_app, name="config", rich_help_panel=None)


@config_app.command(epilog="Example: mainspring config schema > mainspring.schema.json")
@command
async def schema() -> None:
    """Print the JSON Schema of mainspring.yaml, for editors."""
    print_json(configuration.json_schema())


@config_app.command(epilog="Example: mainspring config show")
@command
async def show() -> None:
    """Print the configuration in effect as JSON; secrets are not shown."""
    print_json(configuration.show(loaded()))


@app.command(epilog="Example: mainspring doctor")
@command
async def doctor(as_json: AS_JSON = False) -> int:
    """Check the installation, the configuration and the server, and say what to do."""
    checks = await examination.examine(chosen_config())
    failed = [check for check in checks if check.ok is False]
    if as_json:
        print_json([check.as_json() for check in checks])
    else:
        for check in checks:
            mark = {True: "✓", False: "✗", None: "–"}[check.ok]
            out.print(styled(f"{mark} {check.name}: {check.told}"))
            if check.advice:
                out.print(f"    {check.advice}", markup=False)
    return EXIT_NO_ANSWER if failed else 0


@app.command(epilog="Example: mainspring replay tests/histories/*.json")
@command
async def replay(
    histories: Annotated[
        list[str] | None,
        typer.Argument(metavar="HISTORY", help="History files (JSON), or ids of runs to fetch."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Replay what this visibility query finds.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Most histories of a query.")] = 100,
    as_json: AS_JSON = False,
) -> int:
    """Replay histories against this version's code: would runs in flight go on?"""
    if not histories and query is None:
        raise Refused("name history files or run ids, or give --query")
    replayer = Replayer(workflows=[], plugins=[MainspringPlugin()])
    results: list[dict[str, object]] = []
    async for label, history in _histories(histories or [], query, limit):
        outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        failure = None if outcome.replay_failure is None else _said(outcome.replay_failure)
        results.append(
            {
                "history": label,
                "events": len(history.events),
                "ok": failure is None,
                "failure": failure,
            }
        )
        if not as_json:
            told = "" if failure is None else f": {one_line(failure, 500)}"
            out.print(styled(f"{'✗' if told else '✓'} {label} · {len(history.events)} events{told}"))
    if as_json:
        print_json(results)
    failed = sum(not result["ok"] for result in results)
    note(f"{len(results)} replayed, {failed} failed")
    return EXIT_NO_ANSWER if failed else 0


def _said(failure: Exception) -> str:
    """What the replay found, without the debug output around it."""
    found = re.search(r'message: "((?:[^"\\]|\\.)*)"', str(failure))
    return found[1] if found else str(failure)


async def _histories(
    named: list[str], query: str | None, limit: int
) -> AsyncIterator[tuple[str, WorkflowHistory]]:
    client: Client | None = None
    for name in named:
        if Path(name).is_file():
            yield name, _read(Path(name))
            continue
        client = client or await connected()
        executions = 0
        async for label, history in _fetched(client, f"WorkflowId = '{_quotable(name)}'", limit):
            executions += 1
            yield label, history
        if not executions:
            raise UnknownRun(f"{name!r} is neither a file nor a run of the server")
    if query is not None:
        client = client or await connected()
        async for item in _fetched(client, query, limit):
            yield item


def _quotable(name: str) -> str:
    if "'" in name or "\\" in name:
        raise Refused(f"{name!r} is neither a file nor a run's id")
    return name


async def _fetched(client: Client, query: str, limit: int) -> AsyncIterator[tuple[str, WorkflowHistory]]:
    """The histories of a query; of a run that continued as new, each execution's."""
    with server_errors(client):
        async for found in client.list_workflows(query, limit=limit):
            handle = client.get_workflow_handle(found.id, run_id=found.run_id)
            yield f"{found.id}/{found.run_id}", await handle.fetch_history()


def _read(file: Path) -> WorkflowHistory:
    try:
        return WorkflowHistory.from_json(file.stem, file.read_text("utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"{file}: not a history in JSON: {one_line(error, 200)}") from error
