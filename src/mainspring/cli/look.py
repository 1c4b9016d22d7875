"""Looking at runs: `list`, `state`, `events`, `transcript`, `explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from mainspring.channel import server_errors
from mainspring.cli.app import AS_JSON, app, command, connected
from mainspring.cli.output import note, out, print_json, print_table, width
from mainspring.cli.reading import reading
from mainspring.client import Run
from mainspring.narration import repeated, why_offered
from mainspring.questions import Question, how_to_answer
from mainspring.render import count, duration, indented, one_line, shown, spend_line, visible
from mainspring.run_errors import Refused
from mainspring.schemas.base import wire
from mainspring.schemas.ledger import Entry

__all__: list[str] = []

COLUMNS = ("Agent", "Status", "Outcome", "Awaiting", "Turns", "Tokens")
DROPPED = ("tokens", "turns", "outcome", "awaiting", "started", "agent", "status")
"""Columns of `list` that a narrow terminal does without, the first one first."""

ENTRY_CHARACTERS = 2_000
INDENT = 7

RUN = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]


class Awaiting(StrEnum):
    """What a run of this version may wait for."""

    ANSWER = "answer"
    FOLLOW_UP = "follow_up"
    BUDGET = "budget"
    RESUME = "resume"
    NONE = "none"


class Status(StrEnum):
    """What a run may be doing."""

    THINKING = "thinking"
    ACTING = "acting"
    WAITING = "waiting"
    CLOSED = "closed"


@app.command("list", epilog="Example: mainspring list --awaiting answer --limit 20")
@command
async def list_(
    awaiting: Annotated[
        Awaiting | None, typer.Option(metavar="WHAT", help=f"Waiting for: {', '.join(Awaiting)}.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", metavar="AGENT", help="Of this agent.")
    ] = None,
    status: Annotated[
        Status | None, typer.Option(metavar="STATUS", help=f"Doing: {', '.join(Status)}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Most runs, newest first.")] = 50,
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
    print_table(headings, [[row[heading] for heading in headings] for row in rows], drop=DROPPED)


async def _found(client: Client, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        with server_errors(client):
            return [found async for found in client.list_workflows(query, limit=limit)]
    except Refused as error:
        cause = error.__cause__
        if isinstance(cause, RPCError) and cause.status is RPCStatusCode.INVALID_ARGUMENT:
            hint = "register Mainspring's search attributes; `mainspring doctor` says how"
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
    known = await (await reading(run)).state()
    if as_json:
        print_json(known)
        return
    doing, awaiting = known["status"], known.get("awaiting", "none")
    if awaiting != "none":
        doing = f"waiting for {awaiting}" if doing == "waiting" else f"{doing}, waiting for {awaiting}"
    outcome = f" ({known['outcome']})" if known.get("outcome") else ""
    names = [known.get("agent") or "–", f"model {known.get('model') or '–'}", known.get("lifetime") or "–"]
    lines = {
        "status": f"{doing}{outcome}{', paused' * bool(known.get('paused'))}",
        "agent": " · ".join(names),
        "turn": f"{known['turn']:,} · exchange {known['exchange']:,}",
        "spent": spend_line(known["spend"]),
        "left": _left(known["left"]),
        "guard": _guard(known.get("guard")),
        "asks": "\n".join(_question(run, item, known["questions"]) for item in known.get("questions", ())),
        "calls": ", ".join(item["tool"] for item in known.get("in_flight", ())),
        "queued": "\n".join(one_line(item["message"], 200) for item in known.get("queued", ())),
        "notes": "\n".join(known.get("notes", ())),
        "says": one_line(known.get("last_text", ""), 300),
    }
    _print_lines({name: value for name, value in lines.items() if value})


def _guard(seen: Mapping[str, Any] | None) -> str:
    """What repeats, and what the guard did about it; nothing where nothing does."""
    if seen is None:
        return ""
    told = [
        repeated(seen["period"], seen["repeats"]) if seen["repeats"] > 1 else "",
        f"every call of the last {count(seen['error_streak'], 'turn')} failed" * (seen["error_streak"] > 1),
        count(seen["nudges"], "nudge") if seen["nudges"] else "",
    ]
    return " · ".join(part for part in told if part)


def _question(run: str, plain: Mapping[str, Any], waiting: Sequence[Mapping[str, Any]]) -> str:
    """A question with its options and how it is answered."""
    question = Question.of(plain)
    options = [f"  {number}) {option}" for number, option in enumerate(question.options, 1)]
    until = question.expires.astimezone().strftime("%Y-%m-%d %H:%M")
    how = how_to_answer(run, question.id if len(waiting) > 1 else None)
    return "\n".join([visible(question.text), *map(visible, options), f"  until {until}: {how}"])


def _left(left: Mapping[str, Any]) -> str:
    told = [
        f"${value:,.4f}"
        if name == "dollars"
        else duration(value * 1000)
        if name == "wall"
        else count(value, name.removesuffix("s"))
        for name, value in left.items()
        if value is not None
    ]
    return ", ".join(told)


@app.command(epilog="Example: mainspring events guide-1f2e3d4c5b6a --follow --json | jq .event")
@command
async def events(
    run: RUN,
    from_: Annotated[int, typer.Option("--from", min=0, metavar="N", help="First event, by its number.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    as_json: AS_JSON = False,
) -> None:
    """Events of a run, one a line; with --json one JSON object a line."""
    found = await reading(run)
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
    told = " ".join(f"{key}={one_line(shown(value), 120)}" for key, value in rest.items())
    out.print(f"{event['seq']:>5} {event['at']} turn {event['turn']} {event['event']} {told}", markup=False)


@app.command(epilog="Example: mainspring transcript guide-1f2e3d4c5b6a --from 10 --limit 5")
@command
async def transcript(
    run: RUN,
    from_: Annotated[int, typer.Option("--from", min=0, metavar="N", help="First entry, by its number.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most entries.")] = None,
    as_json: AS_JSON = False,
) -> None:
    """The ledger of a run: what was said, called and observed."""
    entries = await (await reading(run)).transcript(from_, limit)
    if as_json:
        print_json([wire(entry) for entry in entries])
        return
    for entry in entries:
        out.print(_entry(entry, width()), markup=False)


def _entry(entry: Entry, columns: int | None) -> str:
    """An entry with its calls; its text keeps its lines, and on a terminal is wrapped."""
    who = f"{entry.role}/{entry.control_kind}" if entry.control_kind else entry.role
    label = f"{entry.seq:>4} {who}" + (f" {entry.tool}" if entry.tool else "") + " ✗" * entry.is_error
    text = shown(entry.content)
    clipped = text if len(text) <= ENTRY_CHARACTERS else f"{text[: ENTRY_CHARACTERS - 1]}…"
    told = indented(clipped.strip("\n"), INDENT, columns)
    first = f"{label}: {told}" if "\n" not in told else f"{label}:\n{' ' * INDENT}{told}"
    calls = (one_line(f"→ {call.tool} {shown(call.arguments)}", 200) for call in entry.calls)
    return first + "".join(f"\n{' ' * INDENT}{indented(call, INDENT + 2, columns)}" for call in calls)


@app.command(epilog="Example: mainspring explain guide-1f2e3d4c5b6a --turn 3")
@command
async def explain(
    run: RUN,
    turn: Annotated[int | None, typer.Option(min=1, metavar="N", help="Default: the newest.")] = None,
    as_json: AS_JSON = False,
) -> None:
    """Why a turn went as it did: the tools offered, the plan, the verdicts, the request."""
    found = await (await reading(run)).explain(turn)
    if as_json:
        print_json(found)
        return
    offered = found["offered"]
    names = ", ".join(offered["names"]) or "none"
    ranges = found["plan"].get("ranges")
    seen = "all of them" if ranges is None else ", ".join(f"{start} to {stop - 1}" for start, stop in ranges)
    _print_lines(
        {
            "turn": f"{found['turn']:,} of exchange {found['exchange']:,} · model {found['model']}",
            "offered": f"{offered['count']:,} of {offered['universe']:,}: {names}",
            **_why_offered(offered),
            "entries": f"{seen}, of {found['ledger'].get('length', 0):,}",
            "verdicts": "\n".join(found["verdicts"]) or "none",
        }
    )
    note(f"the request: {count(len(found['messages']), 'message')} (--json shows them)")


def _why_offered(offered: Mapping[str, Any]) -> dict[str, str]:
    """Why these tools, with their scores; nothing of a run that no router served."""
    ranked = [f"{item['score']:>8.3f}  {item['name']}" for item in offered.get("ranked", ())]
    lines = {
        "why": why_offered(offered["why"]) if offered.get("why") else "",
        "scores": "\n".join(ranked),
        "pinned": ", ".join(offered.get("pinned", ())),
        "recent": ", ".join(offered.get("recent", ())),
    }
    return {name: value for name, value in lines.items() if value}


def _print_lines(lines: Mapping[str, str]) -> None:
    indent = max((len(name) for name in lines), default=0) + 2
    for name, value in lines.items():
        out.print(f"{name:<{indent}}{indented(value, indent, width())}", markup=False)
