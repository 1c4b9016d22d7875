"""`replay`: would runs go on with this version's code, and what would other settings have decided in them?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any

import typer

from mainspring.backtest import Backtested, backtest, histories, read_settings
from mainspring.cli.app import AS_JSON, EXIT_NO_ANSWER, app, command, connected
from mainspring.cli.output import note, out, print_json, print_table
from mainspring.render import count, one_line, styled
from mainspring.run_errors import Refused
from mainspring.schemas.agent import GuardSpec, RoutingSpec
from mainspring.workflows.backtest import Change, Compared, Decisions, Told, Verdict

__all__: list[str] = []

PROGRESS_SECONDS = 2.0
TURNS_NAMED = 5
TOOLS_NAMED = 5
FAILURE_CHARACTERS = 500


def _names(kind: type[GuardSpec | RoutingSpec]) -> str:
    return ", ".join(kind.model_fields)


@app.command(
    epilog="Example: mainspring replay --query \"StartTime > '2026-11-01T00:00:00Z'\" --guard stall_after=3"
)
@command
async def replay(
    histories_: Annotated[
        list[str] | None,
        typer.Argument(metavar="HISTORY", help="History files (JSON), or ids of runs to fetch."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Replay what this visibility query finds.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Most histories of a query.")] = 100,
    guard: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help=f"What would the guard have said? Of {_names(GuardSpec)}; repeatable."
        ),
    ] = None,
    routing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help=f"What would the router have offered? Of {_names(RoutingSpec)}; repeatable. "
            "pin takes names or globs, as pin=a,b or pin='[a, b]', and more with each pin=.",
        ),
    ] = None,
    turns: Annotated[
        bool, typer.Option("--turns", help="Show every turn, of several histories too.")
    ] = False,
    as_json: AS_JSON = False,
) -> int:
    """Replay histories: would runs in flight go on with this version, and what would other settings decide?

    Guard and router are asked again about the recorded turns; no model and no tool is called. What the model
    would have done after another decision is not known: nothing is claimed beyond the turn at which the
    exchange would have ended otherwise than it did.
    """
    if not histories_ and query is None:
        raise Refused("name history files or run ids, or give --query")
    change = Change(
        read_settings("--guard", guard or (), GuardSpec),
        read_settings("--routing", routing or (), RoutingSpec),
    )
    found: list[Backtested] = []
    heard = time.monotonic()
    sources = histories(histories_ or [], query, limit, connected)
    async with aclosing(sources), aclosing(backtest(sources, change)) as results:
        async for tested in results:
            found.append(tested)
            if not as_json:
                out.print(styled(_line(tested, change)))
                if turns:
                    _print_turns(tested)
            if time.monotonic() - heard > PROGRESS_SECONDS:
                heard = time.monotonic()
                note(f"{len(found)} replayed …")
    if as_json:
        print_json([_json(tested, change) for tested in found])
    elif len(found) == 1 and not turns:
        _print_turns(found[0])
    _note_idle(found, change)
    failed = sum(tested.failure is not None for tested in found)
    note(f"{len(found)} replayed, {failed} failed")
    return EXIT_NO_ANSWER if failed else 0


def _note_idle(found: Sequence[Backtested], change: Change) -> None:
    """Say which pins match nothing, wherever it is known which tools there were."""
    replayed = [set(tested.idle) for tested in found if tested.failure is None]
    idle = set[str]().union(*replayed).intersection(*replayed)
    pins = change.routing.get("pin")
    for pin in pins if isinstance(pins, list) else ():
        if pin in idle:
            note(f"! the pattern {pin!r} of pin matches no tool of any history")


# -- for a person --------------------------------------------------------------------------------------


def _line(tested: Backtested, change: Change) -> str:
    """One history in a line."""
    if tested.failure is not None:
        size = f" · {tested.events} events" if tested.events else ""
        return f"✗ {tested.label}{size}: {one_line(tested.failure, FAILURE_CHARACTERS)}"
    told = f" · {_told(tested.turns, change)}" if tested.turns else ""
    return f"✓ {tested.label} · {tested.events} events{told}"


def _told(turns: Sequence[Compared], change: Change) -> str:
    """What the settings would have changed; without any, what was decided."""
    summary = _summary(turns)
    stalled, nudged = summary["stalled"], summary["nudged"]
    told: list[str] = []
    if not (change.guard or change.routing):
        told = [count(len(turns), "turn")]
        told += [_nudges(nudged["then"])] * bool(nudged["then"])
        told += [f"stalled at turn {stalled['then']}"] * bool(stalled["then"])
        return ", ".join(told)
    if stalled["now"] != stalled["then"]:
        if stalled["now"] is None:
            told.append(f"would not have stalled at turn {stalled['then']}")
        else:
            before = f" (then: turn {stalled['then']})" if stalled["then"] else ""
            told.append(f"would have stalled at turn {stalled['now']} of {len(turns)}{before}")
    if nudged["now"] != nudged["then"]:
        told.append(f"{_nudges(nudged['now'])} (then: {_nudges(nudged['then'])})")
    offers = summary["offers"]
    if offers["differ"]:
        told.append(
            f"other offers on {offers['differ']} of {count(len(turns), 'turn')}: "
            f"{offers['then']:g} → {offers['now']:g} tools on average"
        )
    missed = offers["missed"]
    if missed["now"] != missed["then"]:
        told.append(f"{count(missed['now'], 'call')} outside the offer (then: {missed['then']})")
    searches = summary["searches_refused"]
    if searches["now"] != searches["then"]:
        told.append(f"{searches['now']} of the searches refused (then: {searches['then']})")
    return "; ".join(told) or f"{count(len(turns), 'turn')}, the same decisions"


def _nudges(numbers: Sequence[int]) -> str:
    if not numbers:
        return "no nudge"
    named = ", ".join(map(str, numbers[:TURNS_NAMED])) + ", …" * (len(numbers) > TURNS_NAMED)
    return f"nudged at turn{'s' * (len(numbers) > 1)} {named}"


def _print_turns(tested: Backtested) -> None:
    """Every turn of a run, and what is to be said of the whole."""
    if not tested.turns:
        return
    rows = [
        (
            item.then.turn,
            item.then.exchange,
            one_line(", ".join(item.did) or "–", 80),
            _guard_cell(item),
            _offer_cell(item),
        )
        for item in tested.turns
    ]
    headings = ("turn", "exchange", "did", "guard", "offered")
    print_table(headings, rows, drop=("exchange", "did"), headed=True)
    claimed = [item for item in tested.turns if item.now is not None]
    if len(claimed) < len(tested.turns):
        note(f"turns after {claimed[-1].then.turn}: not claimed; the exchange would have ended otherwise")
    if not tested.exact:
        note("! with the recorded settings other decisions come out than the run made: read this with care")


def _guard_cell(item: Compared) -> str:
    then = _verdict(item.then.verdict)
    now = "?" if item.now is None else _verdict(item.now.verdict)
    return then if then == now else f"{then} → {now}"


def _verdict(verdict: Verdict) -> str:
    match verdict.kind:
        case "none":
            return "–"
        case "proceed":
            return "go on"
        case "nudge" if verdict.reason == "error_streak":
            return f"nudge, errors ×{verdict.repeats}"
        case kind:
            cycle = "" if verdict.period == 1 else f" of {verdict.period}"
            return f"{kind}, cycle{cycle} ×{verdict.repeats}"


def _offer_cell(item: Compared) -> str:
    then = item.then.offer
    if item.now is None:
        return f"{then.offered} → ?"
    now = item.now.offer
    of = f" of {now.universe}"
    told = f"{then.offered} → {now.offered}{of}" if _differ(then, now) else f"{now.offered}{of}"
    parts = [told, *_others(then, now)]
    if item.missed:
        parts.append(f"without {', '.join(item.missed)}")
    if item.now.refused != item.then.refused:
        parts.append("searches: refused" if item.now.refused else "searches: not refused")
    return ", ".join(parts)


def _others(then: Told, now: Told) -> list[str]:
    """Which tools came and went, where as many are offered as before."""
    if then.offered != now.offered or not (isinstance(then.names, tuple) and isinstance(now.names, tuple)):
        return []
    came = [f"+{name}" for name in now.names if name not in then.names]
    went = [f"-{name}" for name in then.names if name not in now.names]
    return [" ".join(_named(names)) for names in (came, went) if names]


def _named(names: Sequence[str]) -> list[str]:
    """The first of them, and that there are more."""
    return [*names[:TOOLS_NAMED], *["…"] * (len(names) > TOOLS_NAMED)]


def _differ(then: Told, now: Told) -> bool:
    return then.offered != now.offered or (then.names is not None and then.names != now.names)


# -- for a program -------------------------------------------------------------------------------------


def _json(tested: Backtested, change: Change) -> dict[str, Any]:
    """A run as one object."""
    told = {**_summary(tested.turns), "text": _told(tested.turns, change)} if tested.turns else None
    return {
        "history": tested.label,
        "events": tested.events,
        "ok": tested.failure is None,
        "failure": tested.failure,
        "exact": tested.exact,
        "settings": {"guard": dict(change.guard), "routing": dict(change.routing)},
        "summary": told,
        "turns": [
            {
                "turn": item.then.turn,
                "exchange": item.then.exchange,
                "did": list(item.did),
                "then": _decisions(item.then),
                "now": None if item.now is None else _decisions(item.now),
                "missed": list(item.missed),
            }
            for item in tested.turns
        ],
    }


def _decisions(decided: Decisions) -> dict[str, Any]:
    verdict, offer = decided.verdict, decided.offer
    return {
        "guard": {
            "verdict": verdict.kind,
            "reason": verdict.reason,
            "period": verdict.period,
            "repeats": verdict.repeats,
        },
        "offered": offer.offered,
        "universe": offer.universe,
        "by_source": dict(offer.by_source),
        "names": offer.names if offer.names is None or offer.names == "all" else list(offer.names),
        "searches_refused": decided.refused,
    }


def _summary(turns: Sequence[Compared]) -> dict[str, Any]:
    """What differs, as far as it is claimed; turns by their numbers in the run."""
    claimed = [(item, item.now) for item in turns if item.now is not None]
    then = [item.then for item, _ in claimed]
    now = [decided for _, decided in claimed]
    differ = sum(_differ(item.then.offer, decided.offer) for item, decided in claimed)
    return {
        "turns": len(turns),
        "claimed": len(claimed),
        "stalled": {"then": _first_stall([item.then for item in turns]), "now": _first_stall(now)},
        "nudged": {"then": _nudged(then), "now": _nudged(now)},
        "offers": {
            "differ": differ,
            "then": _mean(then),
            "now": _mean(now),
            "missed": {
                "then": sum(len(item.then.offer.lacks(item.called)) for item, _ in claimed),
                "now": sum(len(item.missed) for item, _ in claimed),
            },
        },
        "searches_refused": {
            "then": sum(decided.refused for decided in then),
            "now": sum(decided.refused for decided in now),
        },
    }


def _first_stall(decided: Sequence[Decisions]) -> int | None:
    return next((item.turn for item in decided if item.verdict.kind == "stall"), None)


def _nudged(decided: Sequence[Decisions]) -> list[int]:
    return [item.turn for item in decided if item.verdict.kind == "nudge"]


def _mean(decided: Sequence[Decisions]) -> float:
    return round(sum(item.offer.offered for item in decided) / max(1, len(decided)), 1)
