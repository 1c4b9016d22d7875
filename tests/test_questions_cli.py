"""Questions, offers and stalls at the command line: what a person sees, types, and is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from typer.testing import CliRunner, Result

from mainspring.cli import COMMANDS
from mainspring.cli.app import app
from mainspring.embedded import free_port
from support.terminal import Terminal, on_terminal

for module in COMMANDS:  # registers their commands, as the console script does
    import_module(f"mainspring.cli.{module}")

PROGRAM = Path(sysconfig.get_path("scripts")) / "mainspring"
QUESTION = "Which colour should the label have?"
COLOURS = {"question": QUESTION, "options": ["red", "blue"]}
WHICH = {"calls": [{"tool": "nika:ask", "arguments": COLOURS}]}
TWO = {"calls": [{"tool": "nika:ask", "arguments": {"question": what}} for what in ("First?", "Second?")]}
RUDE = {"calls": [{"tool": "nika:ask", "arguments": {"question": "Sure\x1b[2J?"}}]}
LOOK = {"calls": [{"tool": "files/list", "arguments": {"path": "."}}]}
MISSING = {"calls": [{"tool": "files/read", "arguments": {"path": "absent.txt"}}]}
SCRIPTS: dict[str, Any] = {
    "which": {"replies": [WHICH, {"text": "Labelled."}]},
    "two": {"replies": [TWO, {"text": "Both known."}]},
    "talk": {"replies": [{"text": "Hello."}, WHICH, {"text": "Labelled."}], "then": "repeat_last"},
    "rude": {"replies": [RUDE, {"text": "Done."}]},
    "stuck": {"replies": [LOOK, MISSING] * 6},
    "wide": {"replies": [{"text": "Found."}]},
}
ASKER = ["nika:ask", "files/*"]


@dataclass(frozen=True)
class Site:
    """A folder with a configuration, and the server that serves it."""

    folder: Path

    def call(self, *args: str, status: int = 0, input: str | None = None) -> Result:
        """Run a command here, in this process and without a terminal; its exit status must be `status`."""
        changed = {name: _environment().get(name) for name in {*_environment(), *os.environ}}
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(app, args, env=changed, input=input, catch_exceptions=False)
        assert done.exit_code == status, done.output
        return done

    def json(self, *args: str) -> Any:
        """What a command prints with --json."""
        return json.loads(self.call(*args, "--json").stdout)

    def asking(self, agent: str = "which", *args: str) -> str:
        """Start a run that asks, and wait until it does; its id."""
        name = f"run-{uuid4().hex[:12]}"
        self.call("start", "Label it.", "--agent", agent, "--id", name, *args)
        _wait_for(lambda: bool(self.json("state", name)["questions"]))
        return name

    def ids(self, run: str) -> list[str]:
        """The questions that wait."""
        return [item["question_id"] for item in self.json("state", run)["questions"]]

    def answer_of(self, run: str) -> str:
        """What was answered to the run's first question."""
        entries = self.json("transcript", run)
        return next(entry["content"] for entry in entries if entry.get("tool") == "nika:ask")

    def terminal(self, *args: str) -> contextlib.AbstractContextManager[Terminal]:
        """The console script on a terminal."""
        return on_terminal([PROGRAM, *args], self.folder, _environment())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`mainspring dev` in a folder; ended as Ctrl-C ends it."""
    folder = tmp_path_factory.mktemp("site")
    models = {name: {"script": f"{name}.yaml"} for name in SCRIPTS}
    agents: dict[str, Any] = {name: {"model": name, "tools": ASKER} for name in SCRIPTS}
    agents["wide"]["routing"] = {"threshold": 2, "top": 1, "pin": ["files/list"]}
    config = {"models": models, "agents": agents}
    (folder / "mainspring.yaml").write_text(yaml.safe_dump(config))
    for name, script in SCRIPTS.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(script))
    log = folder / "dev.log"
    with log.open("w") as file:
        command = [PROGRAM, "dev", "--port", str(free_port()), "--ui-port", str(free_port())]
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=file, stderr=file)
    try:
        _wait_for(lambda: "ready" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield Site(folder)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()


# --- answer ---


def test_answer_says_which_question_it_answered(site: Site) -> None:
    """One question needs no name; what was said is the call's observation, as it was written."""
    run = site.asking()
    (question,) = site.ids(run)
    assert site.call("answer", run, "green").stderr == f"answered: green ({question}: {QUESTION})\n"
    assert site.call("watch", run).stdout == "Labelled.\n"
    assert site.answer_of(run) == "green"


@pytest.mark.parametrize(
    ("typed", "meant"), [("2", "blue"), ("3", "3"), ("red", "red")], ids=["number", "no number", "option"]
)
def test_number_of_an_option_is_that_option(site: Site, typed: str, meant: str) -> None:
    """As at the prompt, with and without the name of the question; it is told what was answered."""
    run = site.asking()
    (question,) = site.ids(run)
    told = json.loads(site.call("answer", run, typed, "--question", question, "--json").stdout)
    assert told["answer"] == meant
    site.call("watch", run)
    assert site.answer_of(run) == meant


def test_number_is_a_number_where_there_are_no_options(site: Site) -> None:
    """Options are those of the question that is answered; what is written to one without is kept as it is."""
    run = site.asking("two")
    first, second = site.ids(run)
    site.call("answer", run, " 2 ", "--question", first)
    assert site.call("answer", run, "1").stderr == f"answered: 1 ({second}: Second?)\n"
    site.call("watch", run)
    assert site.answer_of(run) == " 2 "


def test_answer_with_json_names_the_question(site: Site) -> None:
    """A program reads which question has its answer, and takes the text from standard input."""
    run = site.asking()
    (question,) = site.ids(run)
    told = json.loads(site.call("answer", run, "-", "--json", input="light\nblue").stdout)
    assert told == {
        "status": "answered",
        "question_id": question,
        "question": QUESTION,
        "answer": "light\nblue",
    }
    site.call("watch", run)
    assert site.answer_of(run) == "light\nblue"


def test_answer_of_several_must_name_its_question(site: Site) -> None:
    """An answer is never given to a question that was not meant."""
    run = site.asking("two")
    first, second = site.ids(run)
    told = site.call("answer", run, "x", status=2).stderr
    assert f"{first}: First?; {second}: Second?" in told
    site.call("answer", run, "later", "--question", second)
    assert "answered" in site.call("answer", run, "again", "--question", second, status=2).stderr
    assert site.ids(run) == [first]
    site.call("answer", run, "sooner")
    assert site.call("watch", run).stdout == "Both known.\n"


@pytest.mark.parametrize(
    ("args", "told"), [((), "TEXT"), (("x", "--question", "z"), "'z'"), (("  ",), "blank")], ids=str
)
def test_answer_that_cannot_be_given_is_refused(site: Site, args: tuple[str, ...], told: str) -> None:
    """Without a terminal there is nobody to ask; the question goes on waiting, and the exit status is 2."""
    run = site.asking()
    refused = site.call("answer", run, *args, status=2).stderr
    assert told in refused
    assert "answer: answer:" not in refused
    assert len(site.ids(run)) == 1
    site.call("cancel", run)


def test_answer_to_a_run_that_asks_nothing_is_refused(site: Site) -> None:
    """It is told apart from a run that has ended and from one that there is not."""
    run = site.asking()
    site.call("answer", run, "red")
    site.call("watch", run)
    assert "has ended" in site.call("answer", run, "blue", status=2).stderr
    assert "no run" in site.call("answer", "nobody", "blue", status=2).stderr


def test_answer_on_a_terminal_asks_question_after_question(site: Site) -> None:
    """Without TEXT the person is shown what waits and types; a blank line asks again."""
    run = site.asking("two")
    with site.terminal("answer", run) as terminal:
        assert "? First?" in terminal.until("›")
        terminal.type("\n")
        terminal.until("›", 2)
        terminal.type("one\n")
        assert "? Second?" in terminal.until("›", 3)
        terminal.type("two\n")
        assert terminal.end() == 0
        assert terminal.edits_lines
    site.call("watch", run)
    assert site.answer_of(run) == "one"


# --- run and watch ---


def test_run_on_a_terminal_asks_and_goes_on(site: Site) -> None:
    """A number picks an option, and the same command shows the answer of the run."""
    with site.terminal("run", "Label it.", "--agent", "which") as terminal:
        shown = terminal.until("›")
        assert "? Which colour" in shown
        assert "2) blue" in shown
        terminal.type("2\n")
        shown = terminal.until("Labelled.")
        assert "✓ answered: blue" in shown
        assert shown.count(QUESTION) == 1
        assert terminal.end() == 0
        assert terminal.edits_lines


def test_run_on_a_terminal_takes_a_pasted_text_whole(site: Site) -> None:
    """A text of several lines is one answer, its last line too, and nothing of it reaches the shell."""
    name = f"run-{uuid4().hex[:12]}"
    with site.terminal("run", "Label it.", "--agent", "which", "--id", name) as terminal:
        terminal.until("›")
        terminal.type("light blue\nwith dots\nand a frame")
        terminal.until("Labelled.")
        assert terminal.end() == 0
        assert terminal.edits_lines
    assert site.answer_of(name) == "light blue\nwith dots\nand a frame"


def test_line_that_the_terminal_cuts_is_not_sent(site: Site) -> None:
    """A line longer than a terminal takes would arrive without its end: it is asked for in another way."""
    name = f"run-{uuid4().hex[:12]}"
    with site.terminal("run", "Label it.", "--agent", "which", "--id", name) as terminal:
        terminal.until("›")
        terminal.type("x" * 6_000 + "\n")
        terminal.until("mainspring answer RUN - < FILE")
        terminal.until("›", 2)
        assert len(site.ids(name)) == 1
        terminal.type("red\n")
        terminal.until("Labelled.")


def test_run_in_the_background_asks_nobody(site: Site) -> None:
    """A job that would be stopped for reading the terminal says how to answer instead."""
    name = f"run-{uuid4().hex[:12]}"
    job = f"set -m; '{PROGRAM}' run 'Label it.' --agent which --id {name} & wait $!"
    with on_terminal(["sh", "-c", job], site.folder, _environment()) as terminal:
        terminal.until(f"mainspring answer {name}")
        terminal.type("1\n")
        assert len(site.ids(name)) == 1
        site.call("answer", name, "red")
        terminal.until("Labelled.")
        assert terminal.end() == 0


def test_question_cannot_steer_the_terminal(site: Site) -> None:
    """What a model writes into a question is shown, and never obeyed by the terminal."""
    run = site.asking("rude")
    with site.terminal("answer", run) as terminal:
        assert "Sure\N{REPLACEMENT CHARACTER}[2J?" in terminal.until("›")
        terminal.type("yes\n")
        assert terminal.end() == 0
    assert "\x1b" not in site.call("state", run).stdout
    site.call("watch", run)


def test_what_was_typed_before_the_question_is_no_answer(site: Site) -> None:
    """Keys that were pressed while nothing was asked answer nothing."""
    name = f"run-{uuid4().hex[:12]}"
    with site.terminal("run", "Label it.", "--agent", "which", "--id", name) as terminal:
        terminal.type("1\n")
        terminal.until("›")
        time.sleep(0.5)
        assert len(site.ids(name)) == 1
        terminal.type("dark\n")
        terminal.until("Labelled.")
    assert site.answer_of(name) == "dark"


def test_run_drops_its_question_when_somebody_else_answers(site: Site) -> None:
    """Two people are asked, one answers: the other is told, and what was half typed is gone."""
    name = f"run-{uuid4().hex[:12]}"
    with site.terminal("run", "Label it.", "--agent", "two", "--id", name) as terminal:
        terminal.until("›")
        terminal.type("half a thou")
        first, second = site.ids(name)
        site.call("answer", name, "elsewhere", "--question", first)
        assert "somebody else has answered it" in terminal.until("? Second?")
        terminal.until("›", 2)
        terminal.type("here\n")
        assert "✓ answered: here" in terminal.until("Both known.")
        assert terminal.end() == 0
    assert site.answer_of(name) == "elsewhere"
    assert second


def test_run_leaves_a_question_at_the_end_of_input(site: Site) -> None:
    """Ctrl-D leaves the question to others, says how they answer, and goes on following."""
    name = f"run-{uuid4().hex[:12]}"
    with site.terminal("run", "Label it.", "--agent", "which", "--id", name) as terminal:
        terminal.until("›")
        terminal.type("\x04")
        terminal.until(f"mainspring answer {name}")
        site.call("answer", name, "red")
        assert "✓ answered: red" in terminal.until("Labelled.")
        assert terminal.end() == 0


def test_interrupt_at_the_prompt_leaves_the_run_going(site: Site) -> None:
    """Ctrl-C is what it always is, also while somebody is asked: 130, and the run waits for its answer."""
    name = f"run-{uuid4().hex[:12]}"
    with site.terminal("run", "Label it.", "--agent", "which", "--id", name) as terminal:
        terminal.until("›")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert f"mainspring watch {name}" in terminal.shown
        assert terminal.edits_lines
    assert len(site.ids(name)) == 1
    with site.terminal("watch", name, "--answer") as terminal:
        terminal.until("›")
        terminal.type("blue\n")
        terminal.until("Labelled.")


def test_watch_on_a_terminal_says_how_to_answer(site: Site) -> None:
    """Whoever only looks on is not asked; the command that answers is shown."""
    run = site.asking()
    with site.terminal("watch", run) as terminal:
        shown = terminal.until(f"mainspring answer {run}")
        assert f"? {QUESTION}" in shown
        site.call("answer", run, "red")
        assert "›" not in terminal.until("Labelled.")


def test_run_without_a_terminal_says_how_to_answer_once(site: Site) -> None:
    """In a pipe the hint is on standard error, and data alone on standard output."""
    name = f"run-{uuid4().hex[:12]}"
    command = [PROGRAM, "run", "Label it.", "--agent", "which", "--id", name]
    with subprocess.Popen(
        command,
        cwd=site.folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        told = ""
        while "mainspring answer" not in told:
            line = process.stderr.readline()
            assert line, told
            told += line
        site.call("answer", name, "red")
        printed, more = process.communicate(timeout=60)
    assert printed == "Labelled.\n"
    assert (told + more).count(f'mainspring answer {name} "…"') == 1
    assert site.call("watch", name).stderr.count("mainspring answer") == 0  # nothing waits any more


def _talking(site: Site) -> str:
    name = f"run-{uuid4().hex[:12]}"
    site.call("start", "Hello", "--agent", "talk", "--id", name, "--conversation")
    _wait_for(lambda: site.json("state", name)["awaiting"] == "follow_up")
    return name


def test_follow_up_that_waits_asks_on_a_terminal(site: Site) -> None:
    """Whoever waits for the answer of a follow-up is asked what it needs, and then has the answer."""
    run = _talking(site)
    with site.terminal("follow-up", run, "Label it.", "--wait") as terminal:
        assert f"? {QUESTION}" in terminal.until("›")
        terminal.type("1\n")
        terminal.until("Labelled.")
        assert terminal.end() == 0
        assert terminal.edits_lines
    assert site.answer_of(run) == "red"
    site.call("finish", run)


def test_follow_up_that_waits_in_a_pipe_says_how_to_answer(site: Site) -> None:
    """It does not wait in silence for somebody who knows nothing of it, behind whatever question."""
    run = _talking(site)
    site.call("follow-up", run, "Label it.")
    _wait_for(lambda: len(site.ids(run)) == 1)
    command = [PROGRAM, "follow-up", run, "And now?", "--wait"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        cwd=site.folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert f"mainspring answer {run}" in process.stderr.readline()
        site.call("answer", run, "red")
        assert process.communicate(timeout=60)[0] == "Labelled.\n"
    site.call("finish", run)


def test_unattended_run_waits_for_nobody(site: Site) -> None:
    """With --unattended a question ends at once, and the run goes on without its answer."""
    run = f"run-{uuid4().hex[:12]}"
    done = site.call("run", "Label it.", "--agent", "which", "--id", run, "--unattended")
    assert done.stdout == "Labelled.\n"
    assert "put to nobody" in done.stderr


# --- looking ---


def test_state_and_list_show_what_a_run_asks(site: Site) -> None:
    """The question, its options and the command that answers it; `list` finds the run by what it awaits."""
    run = site.asking()
    shown = site.call("state", run).stdout
    for told in ("waiting for answer", QUESTION, "1) red", "2) blue", f"mainspring answer {run}"):
        assert told in shown
    _wait_for(lambda: run in [row["run"] for row in site.json("list", "--awaiting", "answer")])
    found = site.json("list", "--awaiting", "answer")
    assert (run, "answer") in [(row["run"], row["awaiting"]) for row in found]
    assert run not in [row["run"] for row in site.json("list", "--awaiting", "follow_up")]
    assert "\tanswer\t" in site.call("list").stdout
    site.call("answer", run, "red")
    site.call("watch", run)
    assert "asks" not in site.call("state", run).stdout


def test_steer_says_that_the_run_waits_for_an_answer(site: Site) -> None:
    """A message to a run that asks is heard after the answer; with --interrupt the question is withdrawn."""
    run = site.asking()
    assert f"mainspring answer {run}" in (told := site.call("steer", run, "and hurry").stderr)
    assert "--interrupt" in told
    assert "mainspring answer" not in site.call("steer", run, "never mind", "--interrupt").stderr
    assert "– question withdrawn" in site.call("watch", run).stderr


def test_stalled_run_says_what_repeated(site: Site) -> None:
    """Period, repeats and the turns themselves, one a line, once; the nudge was told when it came."""
    run = f"run-{uuid4().hex[:12]}"
    told = site.call("run", "Look.", "--agent", "stuck", "--id", run, status=1).stderr
    assert "! nudged: the same 2 turns came 3 times in a row" in told
    assert told.count("the same 2 turns came 5 times in a row") == 1
    end = told[told.index("stalled (NIKA-467)") :].splitlines()
    assert [line.split("(")[0] for line in end[1:3]] == ["  files/list", "  files/read"]
    guard = next(line for line in site.call("state", run).stdout.splitlines() if line.startswith("guard"))
    assert guard.split(None, 1)[1] == "the same 2 turns came 5 times in a row · 1 nudge"


def test_explain_says_why_the_tools_were_offered(site: Site) -> None:
    """The reason, the scores and the pins are shown; so is that the offer was narrowed, while it happens."""
    run = f"run-{uuid4().hex[:12]}"
    told = site.call("run", "search the text of the files", "--agent", "wide", "--id", run).stderr
    assert "offered 3 of 4 tools" in told
    shown = site.call("explain", run).stdout
    assert "those that meet the words best" in shown
    assert "files/search" in next(line for line in shown.splitlines() if line.startswith("scores"))
    assert "files/list, nika:ask" in next(line for line in shown.splitlines() if line.startswith("pinned"))


def test_explain_of_a_small_offer_says_that_it_is_small(site: Site) -> None:
    """Where nothing was ranked there are no scores, and the reason says so."""
    run = site.asking()
    site.call("answer", run, "red")
    site.call("watch", run)
    shown = site.call("explain", run).stdout
    assert "all, since they are few" in shown
    assert "scores" not in shown


# --- tools --rank ---


def test_tools_are_ranked_as_the_run_ranks_them(site: Site) -> None:
    """What `tools --rank` says would be offered is what a run of these words is offered, with its scores."""
    words, run = "search the text of the files", f"run-{uuid4().hex[:12]}"
    ranked = site.json("tools", "--agent", "wide", "--rank", words)
    site.call("run", words, "--agent", "wide", "--id", run)
    offered = site.json("explain", run)["offered"]
    assert sorted(row["tool"] for row in ranked["tools"] if row["offered"]) == sorted(offered["names"])
    assert (ranked["offered"], ranked["universe"]) == (offered["count"], offered["universe"])
    best = ranked["tools"][0]
    assert offered["ranked"] == [{"name": best["tool"], "score": best["score"]}]
    assert [row["tool"] for row in ranked["tools"] if row["pinned"]] == ["files/list", "nika:ask"]


def test_tools_are_ranked_in_a_table(site: Site) -> None:
    """A person sees the best first, with what would be offered and why."""
    done = site.call("tools", "--agent", "wide", "--rank", "search the text of the files")
    first = done.stdout.splitlines()[0].split("\t")
    assert (first[0], first[2]) == ("files/search", "yes")
    assert float(first[1]) > 0
    assert "offered: 3 of 4 tools" in done.stderr
    assert "all, since they are few" in site.call("tools", "--agent", "which", "--rank", "search").stderr
    assert "blank" in site.call("tools", "--rank", " ", status=2).stderr


# --- support ---


def _environment() -> dict[str, str]:
    """The environment of a command, without what would lead it to another server or colour its output."""
    dropped = ("TEMPORAL_", "MAINSPRING_", "FORCE_COLOR", "CLICOLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "HOME": "/nowhere", "COLUMNS": "200"}


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
