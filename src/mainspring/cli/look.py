"""Looking at runs: `list`, `state`, `events`, `transcript`, `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from mainspring.channel import server_errors
from mainspring.cli.app import AS_JSON, app, command, connected
from mainspring.cli.output import note, out, print_json, print_table
from mainspring.client import Run, get_run
from mainspring.render import one_line, spend_line
from mainspring.run_errors import Refused
from mainspring.schemas.base import wire
from mainspring.schemas.ledger import Entry

__all__: list[str] = []

PATIENCE_SECONDS = 15.0
COLUMNS = ("Agent", "Status", "Outcome", "Awaiting", "Turns", "Tokens")

RUN = Annotated[str, typer.Argument(help="The run's id.")]


async def _run(run_id: str) -> Run[Any]:
    return get_run(await connected(), run_id, patience_seconds=PATIENCE_SECONDS)


@app.command("list", epilog="Example: mainspring list --awaiting approval --limit 20")
@command
async def list_(
    awaiting: Annotated[
        str | None,
        typer.Option(help="Waiting for: approval, answer, callback, budget, follow_up, resume, none."),
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="Of this agent.")] = None,
    status: Annotated[str | None, typer.Option(help="thinking, acting, waiting or closed.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most runs, newest first.")] = 50,
    as_json: AS_JSON = False,
) -> None:
    """List runs, newest first."""
    client = await connected()
    asked = {"MainspringAwaiting": awaiting, "MainspringAgent": agent, "MainspringStatus": status}
    conditions = ["WorkflowType = 'AgentRun'"]
    conditions += [f"{name} = '{_quoted(value)}'" for name, value in asked.items() if value is not None]
    rows = [_row(found) for found in await _found(client, " AND ".join(conditions), limit)]
    if as_json:
        print_json(rows)
        return
    headings = ["run", *(name.lower() for name in COLUMNS), "started"]
    for row in rows:
        row["started"] = row["started"][:19].replace("T", " ")
    print_table(headings, [[row[heading] for heading in headings] for row in rows])


async def _found(client: Client, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        with server_errors(client):
            return [found async for found in client.list_workflows(query, limit=limit)]
    except Refused as error:
        cause = error.__cause__
        if isinstance(cause, RPCError) and cause.status is RPCStatusCode.INVALID_ARGUMENT:
            hint = "register the search attributes of ours; `mainspring doctor` says how"
            raise Refused(f"the server cannot filter so: {cause.message}; {hint}") from error
        raise


def _quoted(value: str) -> str:
    if "'" in value or "\\" in value:
        raise Refused(f"{value!r} cannot be searched for")
    return value


def _row(found: WorkflowExecution) -> dict[str, Any]:
    attributes = found.search_attributes
    row: dict[str, Any] = {"run": found.id}
    for name in COLUMNS:
        values = attributes.get(f"Mainspring{name}")
        row[name.lower()] = values[0] if values else None
    if row["status"] is None and found.status is not None:
        row["status"] = found.status.name.lower()  # a server without our attributes
    row["started"] = found.start_time.astimezone().isoformat(timespec="seconds")
    return row


@app.command(epilog="Example: mainspring state guide-1f2e3d4c5b6a --json")
@command
async def state(run: RUN, as_json: AS_JSON = False) -> None:
    """What a run is doing, has spent, and waits for."""
    shown = await (await _run(run)).state()
    if as_json:
        print_json(shown)
        return
    awaiting = f", waiting for {shown['awaiting']}" if shown.get("awaiting", "none") != "none" else ""
    outcome = f" ({shown['outcome']})" if shown.get("outcome") else ""
    lines = {
        "status": f"{shown['status']}{outcome}{awaiting}{', paused' * bool(shown.get('paused'))}",
        "agent": f"{shown.get('agent')} · model {shown.get('model')} · {shown.get('lifetime')}",
        "turn": f"{shown['turn']} · exchange {shown['exchange']}",
        "spent": spend_line(shown["spend"]),
        "left": ", ".join(f"{value} {name}" for name, value in shown["left"].items() if value is not None),
        "queued": ", ".join(one_line(item["message"], 60) for item in shown.get("queued", ())),
        "notes": "; ".join(shown.get("notes", ())),
        "says": one_line(shown.get("last_text", ""), 300),
    }
    _print_lines({name: value for name, value in lines.items() if value})


@app.command(epilog="Example: mainspring events guide-1f2e3d4c5b6a --follow --json | jq .event")
@command
async def events(
    run: RUN,
    from_: Annotated[int, typer.Option("--from", min=0, help="First event, by its number.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    as_json: AS_JSON = False,
) -> None:
    """Events of a run, one a line; with --json one JSON object a line."""
    found = await _run(run)
    newest = None if follow else await _newest_event(found, from_)
    if newest is not None and newest < from_:
        return
    async for event in found.events(from_):
        if as_json:
            print_json(event, lines=True)
        else:
            _print_event(event)
        if newest is not None and event["seq"] >= newest:
            return


async def _newest_event(run: Run[Any], start: int) -> int:
    """Number of the newest event there is now; one below `start` when there is none from there on."""
    newest = start - 1
    while page := await run.channel.query("events", newest + 1):
        newest = page[-1]["seq"]
    return newest


def _print_event(event: Mapping[str, Any]) -> None:
    rest = {key: value for key, value in event.items() if key not in ("seq", "turn", "at", "event")}
    told = " ".join(f"{key}={one_line(value, 120)}" for key, value in rest.items())
    out.print(f"{event['seq']:>5} {event['at']} turn {event['turn']} {event['event']} {told}", markup=False)


@app.command(epilog="Example: mainspring transcript guide-1f2e3d4c5b6a --from 10 --limit 5")
@command
async def transcript(
    run: RUN,
    from_: Annotated[int, typer.Option("--from", min=0, help="First entry, by its number.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Most entries.")] = None,
    as_json: AS_JSON = False,
) -> None:
    """The ledger of a run: what was said, called and observed."""
    entries = await (await _run(run)).transcript(from_, limit)
    if as_json:
        print_json([wire(entry) for entry in entries])
        return
    for entry in entries:
        out.print(_entry(entry), markup=False)


def _entry(entry: Entry) -> str:
    who = f"{entry.role}/{entry.control_kind}" if entry.control_kind else entry.role
    label = f"{entry.seq:>4} {who}" + (f" {entry.tool}" if entry.tool else "") + " ✗" * entry.is_error
    calls = "".join(f"\n       → {call.tool} {one_line(call.arguments, 200)}" for call in entry.calls)
    return f"{label}: {one_line(entry.content, 500)}{calls}"


@app.command(epilog="Example: mainspring explain guide-1f2e3d4c5b6a --turn 3")
@command
async def explain(
    run: RUN,
    turn: Annotated[int | None, typer.Option(min=1, help="Default: the newest.")] = None,
    as_json: AS_JSON = False,
) -> None:
    """Why a turn went as it did: the tools offered, the plan, the verdicts, the request."""
    shown = await (await _run(run)).explain(turn)
    if as_json:
        print_json(shown)
        return
    offered = shown["offered"]
    ranges = shown["plan"].get("ranges") or "all of them"
    _print_lines(
        {
            "turn": f"{shown['turn']} of exchange {shown['exchange']} · model {shown['model']}",
            "offered": f"{offered['count']} of {offered['universe']}: {', '.join(offered['names'])}",
            "entries": f"{ranges}, of {shown['ledger'].get('length', 0)}",
            "verdicts": "; ".join(shown["verdicts"]) or "none",
        }
    )
    note(f"the request: {len(shown['messages'])} messages (--json shows them)")


def _print_lines(lines: Mapping[str, str]) -> None:
    width = max((len(name) for name in lines), default=0)
    for name, value in lines.items():
        out.print(f"{name:<{width}}  {value}", markup=False)
