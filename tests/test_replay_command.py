"""`mainspring replay`, as its users call it: what a person and a program are told, and how it ends."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from mainspring.cli import backtest as replay_command
from mainspring.cli.app import app
from mainspring.embedded import Server
from support.invariants import serving
from support.tools import nap, observe, write

assert replay_command.__all__ == []  # importing it registers the command

GOLDEN = Path(__file__).parent / "histories"
README = Path(__file__).parents[1] / "README.md"
LOOKS = {"calls": [{"tool": "observe", "arguments": {"i": 1}}]}
HUNT = {"calls": [{"tool": "nika:find_tools", "arguments": {"query": "take some time"}}]}
LOOSE = {"guard": {"nudge_after": 50, "stall_after": 50}}


@dataclass(frozen=True)
class Runs:
    """Recorded runs on a server: one went round in circles, one answered at once, others had more tools."""

    address: str
    folder: Path
    looping: str
    quick: str

    @property
    def files(self) -> tuple[str, str]:
        """Their histories as files."""
        return str(self.folder / "looping.json"), str(self.folder / "quick.json")

    @property
    def routed(self) -> str:
        """A history with two tools, as a file."""
        return str(self.folder / "routed.json")

    @property
    def searching(self) -> str:
        """A history with a search of the catalog, as a file."""
        return str(self.folder / "searching.json")

    def call(self, *args: str, status: int = 0) -> Result:
        """Run `mainspring replay` with this server; its exit status must be `status`."""
        environment = {"TEMPORAL_ADDRESS": self.address, "COLUMNS": "200"}
        done = CliRunner().invoke(app, ["replay", *args], env=environment, catch_exceptions=False)
        assert done.exit_code == status, done.output
        return done

    def json(self, *args: str) -> Any:
        """What it prints with --json."""
        return json.loads(self.call(*args, "--json").stdout)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def runs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runs]:
    """The two runs, and their histories in a folder."""
    folder = tmp_path_factory.mktemp("histories")
    naps = {"calls": [{"tool": "nap", "arguments": {"seconds": 0}}]}
    replies = {
        "looping": [{**LOOKS, "repeat": 7}, {"text": "ok"}],
        "quick": [{"text": "ok"}],
        "routed": [naps, {"text": "ok"}],
        "searching": [HUNT, {"text": "ok"}],
    }
    searching = {"tools": ["*", "nika:find_tools"], "routing": {"threshold": 0, "top": 1}}
    ids: dict[str, str] = {}
    for name, said in replies.items():
        tools = {"routed": [observe, nap], "searching": [observe, nap, write]}.get(name, [observe])
        agent = searching if name == "searching" else LOOSE
        async with serving(server.address, replies=said, tools=tools, agent=agent) as case:
            run = await case.start("Observe something.")
            await run.result()
            (folder / f"{name}.json").write_text((await case.history(run)).to_json())
            ids[name] = run.id
    yield Runs(server.address, folder, ids["looping"], ids["quick"])


def test_replay_shows_every_turn_of_one_history(runs: Runs) -> None:
    """What was called, and what the guard said and would have said; beyond that turn nothing is claimed."""
    done = runs.call(runs.files[0], "--guard", "nudge_after=2", "--guard", "stall_after=4")
    first, header, *rows = done.stdout.splitlines()
    assert header.split("\t") == ["turn", "exchange", "did", "guard", "offered"]
    assert first.startswith(f"✓ {runs.files[0]} · ")
    assert first.endswith("would have stalled at turn 4 of 8; nudged at turn 2 (then: no nudge)")
    assert [row.split("\t") for row in rows[:5]] == [
        ["1", "1", "observe(i=1)", "go on", "1 of 1"],
        ["2", "1", "observe(i=1)", "go on → nudge, cycle ×2", "1 of 1"],
        ["3", "1", "observe(i=1)", "go on", "1 of 1"],
        ["4", "1", "observe(i=1)", "go on → stall, cycle ×4", "1 of 1"],
        ["5", "1", "observe(i=1)", "go on → ?", "1 → ?"],
    ]
    assert len(rows) == 8
    assert "turns after 4: not claimed" in done.stderr


def test_replay_shows_offers_and_what_they_lack(runs: Runs) -> None:
    """How many tools there would have been, and which of those that were called would not have been there."""
    done = runs.call(runs.routed, "--routing", "threshold=0", "--routing", "top=1")
    first, _, *rows = done.stdout.splitlines()
    assert "other offers on 1 of 2 turns: 2 → 1.5 tools on average" in first
    assert first.endswith("; 1 call outside the offer (then: 0)")
    assert [row.split("\t")[-1] for row in rows] == ["2 → 1 of 2, without nap", "2 of 2"]
    (told,) = runs.json(runs.routed, "--routing", "threshold=0", "--routing", "top=1")
    assert [turn["missed"] for turn in told["turns"]] == [["nap"], []]
    assert [turn["now"]["names"] for turn in told["turns"]] == [["observe"], "all"]


def test_replay_says_which_searches_would_have_been_refused(runs: Runs) -> None:
    """In the line of the run and in its turn, and that what they found would not have been offered."""
    change = ("--routing", "searches=0")
    done = runs.call(runs.searching, *change)
    first, _, *rows = done.stdout.splitlines()
    assert "; 1 of the searches refused (then: 0)" in first
    assert rows[0].endswith(", searches: refused")
    assert "the same decisions" in runs.call(runs.searching, "--routing", "searches=1").stdout
    (told,) = runs.json(runs.searching, *change)
    assert told["summary"]["searches_refused"] == {"then": 0, "now": 1}
    assert [turn["now"]["searches_refused"] for turn in told["turns"]] == [1, 0]


def test_replay_says_which_tools_differ(runs: Runs) -> None:
    """Where as many are offered as before, but others."""
    done = runs.call(runs.searching, "--routing", "searches=0")
    assert done.stdout.splitlines()[-1].endswith("\t2 → 2 of 4, +observe, -nap")


def test_replay_says_which_pins_match_nothing(runs: Runs) -> None:
    """A pattern that some history has a tool for is none of them."""
    pins = ("--routing", 'pin=["nosuch/*", nap]', "--routing", "pin=observe")
    told = runs.call(runs.searching, runs.files[1], *pins).stderr
    assert told.count("matches no tool") == 1
    assert "! the pattern 'nosuch/*' of pin matches no tool of any history" in told


def test_replay_shows_many_histories_a_line_each(runs: Runs) -> None:
    """Which of them other settings would have changed, and at which turn; --turns shows the rest."""
    done = runs.call(*runs.files, "--guard", "stall_after=3")
    looping, quick = done.stdout.splitlines()
    assert looping.endswith("would have stalled at turn 3 of 8")
    assert quick.endswith("1 turn, the same decisions")
    assert "2 replayed, 0 failed" in done.stderr
    assert len(runs.call(*runs.files, "--turns").stdout.splitlines()) == 2 + 2 + 8 + 1


def test_replay_tells_what_was_decided(runs: Runs) -> None:
    """Without other settings: how many turns, and what the guard said in them."""
    assert runs.call(runs.files[0]).stdout.splitlines()[0].endswith(" events · 8 turns")
    nudged = GOLDEN / "0.1.0-parallel-tools.json"
    assert runs.call(str(nudged)).stdout.splitlines()[0].endswith(" · 4 turns")


def test_replay_prints_one_object_a_run(runs: Runs) -> None:
    """For programs: the summary, and both decisions of each turn, null where nothing is claimed."""
    looping, quick = runs.json(*runs.files, "--guard", "stall_after=3", "--routing", "threshold=0")
    assert (looping["ok"], looping["exact"], looping["failure"]) == (True, True, None)
    assert looping["settings"] == {"guard": {"stall_after": 3}, "routing": {"threshold": 0}}
    assert looping["summary"]["stalled"] == {"then": None, "now": 3}
    assert (looping["summary"]["turns"], looping["summary"]["claimed"]) == (8, 3)
    assert [turn["now"] and turn["now"]["guard"]["verdict"] for turn in looping["turns"]] == [
        "proceed",
        "proceed",
        "stall",
        *[None] * 5,
    ]
    assert looping["turns"][2]["now"]["guard"] == {
        "verdict": "stall",
        "reason": None,
        "period": 1,
        "repeats": 3,
    }
    assert quick["summary"]["stalled"] == {"then": None, "now": None}


def test_replay_reports_a_failure_and_goes_on(runs: Runs, tmp_path: Path) -> None:
    """One that does not replay is told of in its line; the others are judged, and the exit status is 1."""
    bad = tmp_path / "bad.json"
    bad.write_text(Path(runs.files[1]).read_text().replace("mainspring.arm", "mainspring.leg"))
    done = runs.call(str(bad), runs.files[0], "--guard", "stall_after=3", status=1)
    first, second = done.stdout.splitlines()
    assert first.startswith(f"✗ {bad} · ")
    assert "mainspring.leg" in first
    assert "would have stalled at turn 3" in second
    told = json.loads(runs.call(str(bad), runs.files[0], "--json", status=1).stdout)
    assert [(item["ok"], item["summary"] is None) for item in told] == [(False, True), (True, False)]


def test_replay_shows_what_came_before_an_error(runs: Runs) -> None:
    """A query that the server refuses ends the command, after the histories that were named before it."""
    done = runs.call(runs.files[1], "--query", "no query", status=2)
    assert done.stdout.startswith(f"✓ {runs.files[1]} · ")
    assert done.stderr.startswith("mainspring: ")


def test_replay_reads_runs_of_the_server(runs: Runs) -> None:
    """By id, and by a visibility query."""
    (by_id,) = runs.json(runs.looping, "--guard", "stall_after=3")
    assert by_id["history"].startswith(f"{runs.looping}/")
    assert by_id["summary"]["stalled"]["now"] == 3
    query = f"WorkflowId IN ('{runs.looping}', '{runs.quick}')"
    ends = time.monotonic() + 20
    while len(found := runs.json("--query", query, "--guard", "stall_after=3")) < 2:
        assert time.monotonic() < ends
        time.sleep(0.2)  # visibility comes later
    assert sorted(str(item["summary"]["stalled"]["now"]) for item in found) == ["3", "None"]


def test_replay_takes_the_queries_that_are_shown(runs: Runs) -> None:
    """The examples of its help and of the README are queries that a server understands."""
    of_help = next(item.epilog for item in app.registered_commands if "mainspring replay" in str(item.epilog))
    of_readme = next(line for line in README.read_text("utf-8").splitlines() if "replay --query" in line)
    for example in (of_help, of_readme):
        _, query = shlex.split(str(example).partition("mainspring replay ")[2])[:2]
        assert "StartTime" in query
        runs.call("--query", f"WorkflowId = '{runs.quick}' AND {query}")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            ["--guard", "nudge_afte=2"],
            "did you mean 'nudge_after'? (nudge_after takes a whole number, 2 to 100;",
        ),
        (["--guard", "nudge_after=1"], "2 to 100"),
        (["--routing", "top=none"], "1 to 128"),
    ],
)
def test_replay_refuses_wrong_settings(runs: Runs, args: list[str], told: str) -> None:
    """Before anything is read: exit status 2, with the near name or what is allowed."""
    done = runs.call("no-such-file", *args, status=2)
    assert told in done.stderr
    assert done.stdout == ""


def test_replay_needs_something_to_replay(runs: Runs) -> None:
    """Neither a file nor a query is wrong use."""
    assert "--query" in runs.call(status=2).stderr
