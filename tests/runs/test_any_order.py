"""Everything that people can say to a run, in random order and at random moments, each order from a seed.

Whatever the order, the laws of every run hold, its views answer at any moment, what the model was asked is
what `explain` tells, and its history replays in Temporal's sandbox and without.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import yaml
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.service import RPCError

from mainspring import services
from mainspring.activities.projection import Projection, Projections
from mainspring.activities.transcript import ProcessCache
from mainspring.client import Run
from mainspring.embedded import Server
from mainspring.plugin import MainspringPlugin
from mainspring.schemas.ledger import Entry, Plan
from mainspring.testing import Case, replay
from mainspring.workflows.views import message_json
from support.invariants import serving
from support.tools import broken, nap, slow, vault, write

SEEDS = 12
AT_ONCE = 4
RUNS = 2
"""Of each seed."""
SENT_MAX = 7


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


BATCHES: tuple[list[dict[str, Any]], ...] = (
    [_call("nap", seconds=0.1)],
    [_call("nap", seconds=0.1), _call("no_such_tool"), _call("write", key="any order")],
    [_call("slow", key="any order", seconds=0.4), _call("nap", seconds=0), _call("broken", why="so")],
    [_call("nap", seconds=0), {"tool": "nap", "raw_arguments": "{"}, _call("nap", seconds=0.05)],
    [_call("nap", seconds=0), _call("nika:done", result="early")],
    [_call("no_such_tool")],
)


def _replies(chance: random.Random) -> list[dict[str, Any]]:
    """A script of about 30 replies of every kind."""
    replies: list[dict[str, Any]] = []
    for index in range(30):
        reply: dict[str, Any] = {"text": f"reply {index}", "delay": chance.choice((0, 0, 0.05, 0.2))}
        reply["usage"] = {"input_tokens": 100, "output_tokens": 10}
        kind = chance.random()
        if kind < 0.55:
            reply["calls"] = chance.choice(BATCHES)
            reply["text"] = chance.choice(("", reply["text"]))
        elif kind < 0.65:
            reply["text"] = ""  # a gate sends it back
        elif kind < 0.75:
            reply["fails"] = [{"status": 401, "message": "no"}]  # for good: a fallback, if there is one
        elif kind < 0.8:
            reply["finish_reason"] = "refusal"
        replies.append(reply)
    if chance.random() < 0.1:
        replies[chance.randrange(5, 30)]["calls"] = [_call("vault"), _call("nap", seconds=0)]
    return replies


def _script(chance: random.Random) -> dict[str, Any]:
    """What to serve: a script with a fallback, and an agent with tight bounds."""
    budgets: dict[str, Any] = {"turns": chance.choice((3, 50))}
    budgets.update(chance.choice(({}, {"tokens": 500}, {"calls": 4}, {"wall": "0.5s"})))
    limits = {
        "parallel_calls": chance.choice((1, 8)),
        "on_exhausted": chance.choice(("wait", "wait", "fail")),
        "cancel_grace": chance.choice((0, 0.2)),
        "completion": chance.choice(("implicit", "implicit", "explicit")),
        "idle_timeout": 0.5,
    }
    second = {"replies": [{**reply, "fails": []} for reply in _replies(chance)], "then": "repeat_last"}
    return {
        "replies": {"replies": _replies(chance), "then": "repeat_last"},
        "tools": [nap, slow, write, broken, vault],
        "agent": {
            "tools": ["nap", "slow", "write", "broken", "vault", "nika:done"],
            "budgets": budgets,
            "limits": limits,
            "refresh": chance.choice(("never", "exchange")),
        },
        "config": {
            "models": {
                "default": {"script": "script.yaml", "fallback": "second"},
                "second": {"script": "second.yaml"},
            }
        },
        "files": {"second.yaml": yaml.safe_dump(second)},
    }


SAYINGS: tuple[tuple[str, str, Any], ...] = (
    ("signal", "pause", None),
    ("signal", "resume", None),
    ("signal", "resume", None),
    ("signal", "interrupt", None),
    ("signal", "steer", "steer"),
    ("update", "steer", "steer by update"),
    ("signal", "steer", {"message": "steer at once", "interrupt": True}),
    ("update", "steer", {"message": "steer at once by update", "interrupt": True}),
    ("signal", "follow_up", "follow up"),
    ("update", "follow_up", "follow up by update"),
    ("update", "extend_budget", {"tokens": 300, "turns": 2, "calls": 3, "wall": 1}),
    ("signal", "no_such_signal", "x"),
)


async def _say(case: Case, run: Run[Any], saying: tuple[str, str, Any]) -> None:
    how, name, argument = saying
    handle = case.handle(run)
    args = [] if argument is None else [argument]
    with suppress(RPCError, WorkflowUpdateFailedError):  # it has ended, or is not armed yet
        if how == "signal":
            await handle.signal(name, args=args)
        else:
            await handle.execute_update(name, args=args)


async def _talk(case: Case, run: Run[Any], chance: random.Random) -> None:
    """Say things, one or several at once, then end the run one way or another."""
    for _ in range(chance.randrange(3, SENT_MAX)):
        at_once = chance.choice((1, 1, 1, 2, 4))
        await asyncio.gather(*(_say(case, run, chance.choice(SAYINGS)) for _ in range(at_once)))
        await asyncio.sleep(chance.choice((0, 0, 0.05, 0.1, 0.3)))
    if chance.random() < 0.3:
        await case.handle(run).cancel()
        await _say(case, run, chance.choice(SAYINGS))
    for _ in range(200):  # a run that waits for a person is given what it waits for
        if (await run.state())["outcome"] is not None:
            return
        for last in ("resume", "finish"):
            await _say(case, run, ("signal", last, None))
        await asyncio.sleep(0.05)
    raise AssertionError(f"never ended: {await run.state()}")


async def _watch(case: Case, run: Run[Any]) -> None:
    """Ask everything, all the time: nothing may ever raise."""
    handle = case.handle(run)
    while True:
        state = await handle.query("state")
        await handle.query("events", max(0, state["next_event"] - 3))
        await handle.query("transcript", {"from": max(0, state["ledger"]["length"] - 3)})
        await handle.query("armed")
        await handle.query("catalog")
        if state["turn"] > 0:
            assert (await handle.query("explain"))["turn"] >= state["turn"]
        await asyncio.sleep(0.3)


class Asked:
    """What the models were asked, by the run's id and the length of the ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_run: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(dict)
        usual = Projections.of

        def noting(
            projections: Projections, key: tuple[str, str], entries: Sequence[Entry], plan: Plan
        ) -> Projection:
            made = usual(projections, key, entries, plan)
            self.by_run[key[0]][len(entries)] = [message_json(message) for message in made.messages]
            return made

        monkeypatch.setattr(Projections, "of", noting)

    async def is_explained(self, case: Case, run: Run[Any]) -> None:
        """Every request of a run is what `explain` says of its turn."""
        explained: dict[int, list[dict[str, Any]]] = {}
        for turn in range(1, (await run.state())["turn"] + 1):
            found = await run.explain(turn)
            explained[found["ledger"]["length"]] = found["messages"]
        for length, messages in self.by_run[run.id].items():
            assert explained[length] == messages


async def _any_order(server: Server, seed: int, asked: Asked) -> None:
    chance = random.Random(seed)
    async with serving(server.address, **_script(chance), sandbox=bool(seed % 2)) as case:
        runs = [await case.start(lifetime=chance.choice(("single", "conversation"))) for _ in range(RUNS)]
        watching = [asyncio.create_task(_watch(case, run)) for run in runs]
        try:
            await asyncio.gather(*(_talk(case, run, random.Random(chance.random())) for run in runs))
        finally:
            for task in watching:
                task.cancel()
            watched = await asyncio.gather(*watching, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in watched), watched
        for run in runs:
            with suppress(WorkflowFailureError):
                await case.handle(run).result()
            await asked.is_explained(case, run)
            await replay(await case.history(run), MainspringPlugin(sandbox=not seed % 2))


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
async def test_any_order_keeps_the_laws(server: Server, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws of every run, whatever is said when; the first ones in processes that can hold nothing."""
    asked = Asked(monkeypatch)
    if first == 0:
        monkeypatch.setattr(services, "ProcessCache", partial(ProcessCache, bytes_max=1, chains_max=1))
    await asyncio.gather(*(_any_order(server, seed, asked) for seed in range(first, first + AT_ONCE)))
