"""The command line, as its users run it: the real console script in a process of its own.

A process takes a second to begin. What only reads arguments and prints is called in this one instead
(`Site.call`); what depends on the process is not: how it ends, what a pipe or a terminal is given, signals,
and, once for each module of commands, that the console script finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from temporalio.client import Client
from typer.testing import CliRunner, Result

from mainspring.channel import Channel
from mainspring.cli import COMMANDS
from mainspring.cli.app import app
from mainspring.cli.check import config_app
from mainspring.client import start_run
from mainspring.connect import DEFAULT_ADDRESS
from mainspring.embedded import Server, free_port
from mainspring.feed import is_served
from mainspring.replayed import ClosedChannel

for module in COMMANDS:  # registers their commands, as the console script does
    import_module(f"mainspring.cli.{module}")

PROGRAM = Path(sysconfig.get_path("scripts")) / "mainspring"
PLAIN = Path(__file__).parent / "servers" / "plain.py"
ANSI = re.compile(r"\x1b\[")
NOWHERE = "127.0.0.1:1"
ANSWER = "It is **blue**."

CONFIG: dict[str, Any] = {
    "models": {
        "default": {"script": "quick.yaml"},
        "slow": {"script": "slow.yaml"},
    },
    "agents": {
        "guide": {"instructions": "Answer.", "model": "default", "tools": ["files/*"]},
        "other": {"model": "slow"},
    },
}
SCRIPTS: dict[str, Any] = {
    "quick.yaml": {
        "replies": [
            {"text": "Let me look.", "calls": [{"tool": "files/list", "arguments": {"path": "."}}]},
            {"text": ANSWER},
        ],
        "then": "repeat_last",
    },
    "slow.yaml": {"replies": [{"text": "Slowly, slowly. " * 50, "delay": 60}]},
}


@dataclass(frozen=True)
class Site:
    """A folder with a configuration, and the server that serves it."""

    folder: Path
    address: str

    def run(self, *args: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the console script here; its exit status must be `status`."""
        done = subprocess.run(
            [PROGRAM, *args],
            cwd=self.folder,
            env=_environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def call(self, *args: str, status: int = 0, **environment: str) -> Result:
        """Run a command here, in this process; its exit status must be `status`."""
        wanted = _environment(**environment)
        changed = {name: wanted.get(name) for name in {*wanted, *os.environ}}
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(app, args, env=changed, catch_exceptions=False)
        assert done.exit_code == status, done.output
        return done

    def json(self, *args: str) -> Any:
        """What a command prints with --json, in this process."""
        return json.loads(self.call(*args, "--json").stdout)

    def start(self, *args: str) -> str:
        """Start a run; its id."""
        name = f"run-{uuid4().hex[:12]}"
        self.call("start", "Which colour?", "--agent", "guide", "--id", name, *args)
        return name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`mainspring dev` in a folder; ended as Ctrl-C ends it."""
    folder = _folder(tmp_path_factory.mktemp("site"))
    port = free_port()
    log = folder / "dev.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [PROGRAM, "dev", "--port", str(port), "--ui-port", str(free_port())],
            cwd=folder,
            env=_environment(),
            stdout=file,
            stderr=file,
        )
    try:
        _wait_for(lambda: "ready" in log.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        yield Site(folder, f"127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()


@pytest.fixture(scope="module")
def answered(site: Site) -> str:
    """A run that has ended with its answer."""
    name = site.start()
    site.call("watch", name)
    return name


@pytest.fixture
def lonely(tmp_path: Path) -> Site:
    """A folder with a configuration and no server."""
    return Site(_folder(tmp_path), NOWHERE)


# --- running ---


def test_run_prints_the_answer_alone_on_standard_output(site: Site) -> None:
    """Data is on standard output and progress on standard error, both without colours in a pipe."""
    done = site.run("run", "Which colour?", "--agent", "guide")
    assert done.stdout == f"{ANSWER}\n"
    assert "files/list" in done.stderr
    assert not ANSI.search(done.stdout + done.stderr)


def test_run_with_json_prints_the_result(site: Site) -> None:
    """A program gets the whole typed result, alone on standard output."""
    result = json.loads(site.run("run", "Which colour?", "--agent", "guide", "--json").stdout)
    assert (result["outcome"], result["answer"], result["spend"]["tool_calls"]) == ("completed", ANSWER, 1)


def test_run_that_ends_without_an_answer_exits_with_1(site: Site) -> None:
    """The exit status tells a script that there is no answer, and standard output stays empty."""
    done = site.run("run", "Which colour?", "--agent", "guide", "--turns", "1", status=1)
    assert done.stdout == ""
    assert "NIKA-460" in done.stderr


def test_run_starts_a_server_where_there_is_none(lonely: Site) -> None:
    """With a configuration and no server, one is started for the run, and ended with it."""
    port = int(DEFAULT_ADDRESS.rpartition(":")[2])
    if free_port(port) != port:
        pytest.skip(f"somebody serves {DEFAULT_ADDRESS}, where `run` looks first")
    done = lonely.run("run", "Which colour?", "--agent", "guide", TEMPORAL_CONFIG_FILE=_default_taken(lonely))
    assert done.stdout == f"{ANSWER}\n"
    assert not (lonely.folder / ".mainspring" / "temporal.json").exists()


def test_interrupted_run_goes_on_and_says_how_to_come_back(site: Site) -> None:
    """Ctrl-C leaves the run going and names the commands to watch and to cancel it, and they do."""
    name = f"run-{uuid4().hex[:12]}"
    command = [PROGRAM, "run", "wait", "--agent", "other", "--id", name]
    process = subprocess.Popen(
        command, cwd=site.folder, env=_environment(), stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("turn 1"):
            break
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"mainspring watch {name}" in told
    assert f"mainspring cancel {name}" in told
    site.run("cancel", name)
    assert "cancelled" in site.call("watch", name, status=1).stderr  # it was open until then


async def test_run_says_that_nobody_serves_it(lonely: Site, server: Server) -> None:
    """A run that waits for a worker is told apart from one that takes its time."""
    command = ("run", "wait", "--agent", "guide")
    async with _process(lonely, server, *command) as process, asyncio.timeout(60):
        assert process.stderr is not None
        told = ""
        while "no worker serves task queue 'mainspring'" not in told:
            told += (await process.stderr.readline()).decode()
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 130


async def test_run_says_that_its_worker_is_gone(lonely: Site, server: Server) -> None:
    """A worker that died a moment ago, and that the server still remembers, does not pass for one."""
    queue = f"queue-{uuid4().hex[:12]}"
    (lonely.folder / "mainspring.yaml").write_text(yaml.safe_dump({**CONFIG, "task_queue": queue}))
    client = await Client.connect(server.address)
    async with _process(lonely, server, "worker") as worker, asyncio.timeout(60):
        await (await start_run(client, agent="guide", prompt="x", task_queue=queue)).result()
        worker.kill()
        await worker.wait()
    assert await is_served(client, queue), "the server remembers it"
    async with _process(lonely, server, "run", "hi", "--agent", "guide") as run, asyncio.timeout(60):
        assert run.stderr is not None
        while b"no worker serves task queue" not in (line := await run.stderr.readline()):
            assert line, "it ended without a hint"
        run.kill()


def test_run_in_a_terminal_is_live(site: Site) -> None:
    """On a terminal the text that is being written is shown while it is written."""
    name = f"run-{uuid4().hex[:12]}"
    shown = _in_terminal(site, ["run", "wait", "--agent", "other", "--id", name], until="Slowly")
    assert "Slowly" in shown
    site.call("cancel", name)


# --- starting and talking ---


def test_start_prints_the_id_that_watch_takes(site: Site) -> None:
    """What `start` prints is what the other commands take, and `watch` prints the answer."""
    name = site.run("start", "Which colour?", "--agent", "guide").stdout.strip()
    assert site.run("watch", name).stdout == f"{ANSWER}\n"


def test_prompt_can_come_from_standard_input(site: Site) -> None:
    """A dash stands for standard input, and an empty one is refused like a blank prompt."""
    assert "blank" in site.call("start", "-", "--agent", "guide", status=2).stderr


def test_conversation_is_talked_to_from_the_command_line(site: Site) -> None:
    """A follow-up prints its own answer; `finish` ends the conversation, and then no message is taken."""
    name = site.start("--conversation")
    assert site.run("follow-up", name, "And now?", "--wait").stdout == f"{ANSWER}\n"
    _wait_for(lambda: site.json("list", "--awaiting", "follow_up"), 30)  # it is told a moment later
    assert [row["run"] for row in site.json("list", "--awaiting", "follow_up")] == [name]
    site.call("finish", name)
    assert site.json("watch", name)["exchanges"] == 2
    assert "has ended" in site.call("steer", name, "too late", status=2).stderr


def test_message_is_repeated_under_its_id(site: Site) -> None:
    """A message that is sent again under the same --message-id is the same message."""
    name = site.start("--conversation")
    numbers = [site.json("follow-up", name, "And now?", "--message-id", "mine") for _ in range(2)]
    assert numbers == [{"accepted": 1}] * 2
    site.call("cancel", name)


# --- looking ---


def test_looking_commands_print_json(site: Site, answered: str) -> None:
    """With --json, what is printed is for a program; events are one object a line."""
    assert site.json("state", answered)["outcome"] == "completed"
    assert [entry["seq"] for entry in site.json("transcript", answered)] == [0, 1, 2, 3]
    assert site.json("explain", answered, "--turn", "2")["turn"] == 2
    events = [json.loads(line) for line in site.call("events", answered, "--json").stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[-1]["event"] == "Finished"


@pytest.mark.parametrize("command", ["state", "transcript", "explain"])
def test_looking_commands_are_plain_in_a_pipe(site: Site, answered: str, command: str) -> None:
    """Without --json, a pipe gets text without colours."""
    done = site.run(command, answered)
    assert done.stdout
    assert not ANSI.search(done.stdout + done.stderr)


def test_events_of_an_open_run_are_printed_without_waiting(site: Site) -> None:
    """Without --follow, the command ends with the newest event there is."""
    name = site.start("--conversation")
    _wait_for(lambda: site.json("state", name)["next_event"], 30)
    assert "RunStarted" in site.run("events", name).stdout
    site.call("cancel", name)


def test_agents_and_tools_are_listed(site: Site) -> None:
    """The configuration's agents, and the tools that one of them may use."""
    assert [row["agent"] for row in json.loads(site.run("agents", "--json").stdout)] == ["guide", "other"]
    names = [tool["declaration"]["name"] for tool in site.json("tools", "--agent", "guide")]
    assert names == ["files/list", "files/read", "files/search"]
    assert site.json("tools", "--agent", "other") == []


def test_tools_of_an_agent_are_those_of_its_runs(lonely: Site) -> None:
    """Also those that the loop itself serves, as `--rank` counts them."""
    tools = ["files/read", "nika:ask"]
    config = {"models": {"default": {"script": "quick.yaml"}}, "agents": {"guide": {"tools": tools}}}
    (lonely.folder / "mainspring.yaml").write_text(yaml.safe_dump(config))
    listed = lonely.json("tools", "--agent", "guide")
    assert [(item["declaration"]["name"], item["declaration"]["source"]) for item in listed] == [
        ("files/read", "builtin"),
        ("nika:ask", "intrinsic"),
    ]
    ranked = lonely.json("tools", "--agent", "guide", "--rank", "ask")
    assert sorted(row["tool"] for row in ranked["tools"]) == tools


async def test_closed_run_answers_without_a_worker_as_with_one(site: Site, answered: str) -> None:
    """What a worker says of a run that has ended, its replayed history says too."""
    client = await Client.connect(site.address)
    worker = Channel(client, answered)
    alone = ClosedChannel(client, await worker.describe(), served=False)
    for query in (("state",), ("events", 3), ("transcript", {"from": 1, "limit": 2}), ("explain", 1)):
        assert await alone.query(*query) == await worker.query(*query)


def test_terminated_run_without_a_worker_says_what_reads_it(lonely: Site, server: Server) -> None:
    """Only a worker tells of a run that was stopped amid its code: it is said at once, with status 3."""
    name, at = f"run-{uuid4().hex[:12]}", {"TEMPORAL_ADDRESS": server.address}
    config = {**CONFIG, "task_queue": f"queue-{uuid4().hex[:12]}"}
    (lonely.folder / "mainspring.yaml").write_text(yaml.safe_dump(config))
    lonely.call("start", "x", "--agent", "guide", "--id", name, **at)

    async def terminate() -> None:
        await (await Client.connect(server.address)).get_workflow_handle(name).terminate()

    asyncio.run(terminate())
    told = lonely.call("state", name, status=3, **at).stderr
    assert "has ended (terminated)" in told
    assert "mainspring worker" in told


def test_json_of_start_and_list_name_the_run_alike(site: Site) -> None:
    """A program reads a run's id under one name, and what is known of a cancelled run."""
    name = site.json("start", "x", "--agent", "guide", "--conversation")["run"]
    _wait_for(lambda: name in [row["run"] for row in site.json("list", "--awaiting", "follow_up")], 30)
    assert "cancellation requested" in site.call("cancel", name).stderr
    shown = json.loads(site.call("watch", name, "--json", status=1).stdout)
    assert (shown["outcome"], shown["spend"]["tool_calls"]) == ("cancelled", 1)


# --- checking ---


async def test_replay_judges_each_history(site: Site, answered: str, tmp_path: Path) -> None:
    """A history that this code would have written passes, another one fails, and the exit status says so."""
    handle = (await Client.connect(site.address)).get_workflow_handle(answered)
    history = (await handle.fetch_history()).to_json()
    (tmp_path / "good.json").write_text(history)
    (tmp_path / "bad.json").write_text(history.replace("mainspring.arm", "mainspring.leg"))
    done = site.run("replay", str(tmp_path / "good.json"), str(tmp_path / "bad.json"), "--json", status=1)
    good, bad = json.loads(done.stdout)
    assert (good["ok"], bad["ok"]) == (True, False)
    assert "mainspring.leg" in bad["failure"]


def test_replay_refuses_what_is_no_history(site: Site, answered: str, tmp_path: Path) -> None:
    """A run by its id replays; what is neither a history nor a run fails in its line, beside the others."""
    assert [result["ok"] for result in site.json("replay", answered)] == [True]
    (tmp_path / "broken.json").write_text("{}")
    done = site.call("replay", answered, str(tmp_path / "broken.json"), "no-such-run", answered, status=1)
    first, broken, unknown, last = done.stdout.splitlines()
    assert first == last
    assert first.startswith(f"✓ {answered}/")
    assert f"✗ {tmp_path / 'broken.json'}: not a history" in broken
    assert "✗ no-such-run: 'no-such-run' is neither a file nor a run" in unknown
    assert "4 replayed, 2 failed" in done.stderr


def test_config_commands_need_no_server(lonely: Site) -> None:
    """The schema and the configuration in effect are JSON."""
    assert "properties" in json.loads(lonely.call("config", "schema").stdout)
    assert "guide" in json.loads(lonely.call("config", "show").stdout)["agents"]


def test_doctor_finds_a_whole_installation_healthy(site: Site) -> None:
    """Where everything is there, every check passes or is only worth knowing."""
    checks = {check["name"]: check["ok"] for check in site.json("doctor")}
    assert False not in checks.values()
    assert checks["search attributes"] is True


def test_doctor_exits_with_1_and_says_what_to_do(lonely: Site) -> None:
    """A check that fails is marked, has advice, and makes the exit status 1; the others are still made."""
    done = lonely.run("doctor", status=1, TEMPORAL_ADDRESS=NOWHERE)
    assert f"✗ Temporal: no Temporal server at {NOWHERE}" in done.stdout
    assert "✓ configuration" in done.stdout


def test_doctor_finds_what_a_provider_lacks(lonely: Site) -> None:
    """A model whose key is missing is found before a run pays for finding it; the key's name is told."""
    config = {"models": {"default": "openai:gpt-5-mini"}, "agents": {"guide": {}}}
    (lonely.folder / "mainspring.yaml").write_text(yaml.safe_dump(config))
    nowhere = {"TEMPORAL_ADDRESS": NOWHERE}
    assert "✗ model default" in (told := lonely.call("doctor", status=1, **nowhere).stdout)
    assert "OPENAI_API_KEY" in told
    assert "✓ model default" in lonely.call("doctor", status=1, OPENAI_API_KEY="any", **nowhere).stdout


def test_doctor_finds_what_a_run_would_refuse(lonely: Site) -> None:
    """Patterns of `tools` and of `routing.pin` that match nothing are told, with the fields to correct."""
    agent = {"model": "default", "tools": ["files/*", "lok"], "routing": {"pin": ["nosuch/*"]}}
    config = {"models": {"default": {"script": "quick.yaml"}}, "agents": {"guide": agent}}
    (lonely.folder / "mainspring.yaml").write_text(yaml.safe_dump(config))
    told = lonely.call("doctor", status=1, TEMPORAL_ADDRESS=NOWHERE).stdout
    assert "✗ agent guide: tools: 'lok': there is no tool of that name" in told
    assert "routing.pin: 'nosuch/*': there is no group of tools 'nosuch'" in told
    assert "correct `agents.guide.tools` and `agents.guide.routing.pin`" in told


def test_doctor_tells_a_fault_of_the_deltas_once(lonely: Site) -> None:
    """No worker starts with it; the tools are looked at all the same."""
    file = lonely.folder / "mainspring.yaml"
    file.write_text(f"{file.read_text()}\ndeltas: {{redis: 'env:NO_SUCH_REDIS'}}\n")
    told = lonely.call("doctor", status=1, TEMPORAL_ADDRESS=NOWHERE).stdout
    assert told.count("NO_SUCH_REDIS") == 1
    assert "✗ deltas: " in told
    assert "✓ tools: 3 built in" in told


# --- mistakes ---


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["start", "x", "--agent", "guid"], "did you mean 'guide'"),
        (["start", "x", "--agent", "guide", "--model", "slo"], "did you mean 'slow'"),
        (["start", "x"], "guide, other"),
        (["steer", "nobody", "x"], "no run 'nobody'"),
        (["list", "--awaiting", "foo"], "'answer', 'follow_up', 'budget', 'resume', 'none'"),
        (["list", "--status", "foo"], "'thinking', 'acting', 'waiting', 'closed'"),
        (["run"], "PROMPT"),
        (["agents", "--config", "absent.yaml"], "absent.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_exits_with_2_and_one_message(site: Site, args: list[str], told: str) -> None:
    """A mistake of the user's is named, with what would be right, on one line, and is never a traceback."""
    message = site.call(*args, status=2).stderr
    assert message.startswith("mainspring: ")
    assert message.count("\n") == 1
    assert told in message


def test_wrong_use_is_the_exit_status_of_the_process(site: Site) -> None:
    """A script sees 2, whether it is the command line or ours to refuse."""
    assert "frobnicate" in site.run("frobnicate", status=2).stderr
    assert "no run 'nobody'" in site.run("steer", "nobody", "x", status=2).stderr


@pytest.mark.parametrize("command", [["state", "x"], ["run", "x"], ["worker"]], ids=" ".join)
def test_no_server_exits_with_3_and_names_the_address(lonely: Site, command: list[str]) -> None:
    """A server that was named and does not answer is an error; no other one is started in its place."""
    assert NOWHERE in lonely.run(*command, status=3, TEMPORAL_ADDRESS=NOWHERE).stderr


def test_wrong_configuration_names_file_line_and_key(lonely: Site) -> None:
    """A configuration error shows where it is and the nearest known key."""
    (lonely.folder / "mainspring.yaml").write_text("modles: {}\n")
    told = lonely.call("agents", status=2).stderr
    assert "mainspring.yaml:1:1" in told
    assert "models" in told


def test_wrong_configuration_locks_nobody_out_of_their_runs(site: Site, answered: str) -> None:
    """What only talks to runs warns in one line and goes on; what needs the configuration refuses."""
    file = site.folder / "mainspring.yaml"
    right = file.read_text()
    file.write_text(f"{right}\nmodles: {{}}\nagentz: {{}}\n")
    try:
        told = site.call("state", answered).stderr
        assert told.startswith("! the configuration is wrong and left aside: mainspring.yaml:")
        assert told.count("\n") == 1
        assert "(and 1 more)" in told
        assert answered in [row["run"] for row in site.json("list")]
        assert "has ended" in site.call("steer", answered, "x", status=2).stderr
        for refusing in (["start", "x"], ["agents"], ["tools"], ["state", answered, "--config", str(file)]):
            assert site.call(*refusing, status=2).stderr.startswith("mainspring: mainspring.yaml:")
    finally:
        file.write_text(right)


async def test_worker_stops_cleanly_on_sigterm(lonely: Site, server: Server) -> None:
    """A worker that is told to stop ends with status 0, and what it had started ends with it."""
    queue = f"queue-{uuid4().hex[:12]}"
    command = [sys.executable, str(PLAIN), "--deaf", "--journal", str(lonely.folder / "journal")]
    agent = {"model": "default", "tools": ["mcp:plain/*"]}
    models = {"default": {"script": "hello.yaml"}}
    config = {"task_queue": queue, "models": models, "agents": {"guide": agent}}
    config["mcp"] = {"plain": {"command": command}}
    (lonely.folder / "mainspring.yaml").write_text(yaml.safe_dump(config))
    (lonely.folder / "hello.yaml").write_text(yaml.safe_dump({"replies": [{"text": "Hello."}]}))
    async with _process(lonely, server, "worker") as process, asyncio.timeout(60):
        client = await Client.connect(server.address)
        run = await start_run(client, agent="guide", prompt="Hello?", task_queue=queue)
        assert (await run.result()).answer == "Hello."
        assert _processes_of(lonely.folder)
        process.send_signal(signal.SIGTERM)
        _, told = await process.communicate()
    assert process.returncode == 0, told.decode()
    assert _processes_of(lonely.folder) == []


def test_reader_that_has_read_enough_ends_the_command(site: Site, answered: str) -> None:
    """`mainspring … | head` ends quietly."""
    shell = f"'{PROGRAM}' events {answered} | head -n 1"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=site.folder, env=_environment(), capture_output=True, text=True, check=True
    )
    assert "RunStarted" in done.stdout
    assert "Traceback" not in done.stderr


def test_interrupt_while_importing_ends_quietly() -> None:
    """Ctrl-C in the first second is 130 and no traceback."""
    program = "import os, signal; from mainspring.cli import interrupts; interrupts.ends_quietly()"
    command = [sys.executable, "-c", f"{program}; os.kill(os.getpid(), signal.SIGINT)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_output_that_cannot_be_written_is_told(lonely: Site) -> None:
    """A full disk is one message and status 1."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, "config", "schema"],
            cwd=lonely.folder,
            env=_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "mainspring: the output cannot be written: No space left on device\n"


def test_help_shows_whole_summaries(lonely: Site) -> None:
    """No command's summary is cut."""
    shown = lonely.call("--help").stdout
    assert "..." not in shown.partition("Commands:")[2]


def test_help_shows_arguments_as_they_are_written(lonely: Site) -> None:
    """An argument is RUN or FILE; Python's types are nobody's business there."""
    shown = lonely.call("steer", "--help").stdout
    assert "steer [OPTIONS] RUN MESSAGE" in shown
    assert "<" not in shown


def test_every_command_shows_an_example(lonely: Site) -> None:
    """The help of each command ends with how it is used."""
    commands = [info for group in (app, config_app) for info in group.registered_commands]
    assert len(commands) > 20
    for info in commands:
        assert info.epilog is not None, info.name
        assert info.epilog.startswith("Example: "), info.name
    assert "Example: mainspring run" in lonely.run("run", "--help").stdout


# --- support ---


def _folder(folder: Path) -> Path:
    (folder / "mainspring.yaml").write_text(yaml.safe_dump(CONFIG))
    for name, script in SCRIPTS.items():
        (folder / name).write_text(yaml.safe_dump(script))
    return folder


def _environment(**more: str) -> dict[str, str]:
    """The environment of a command, without what would lead it to another server or colour its output."""
    dropped = ("TEMPORAL_", "MAINSPRING_", "FORCE_COLOR", "CLICOLOR")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(dropped) and not name.endswith("_API_KEY")
    }
    return {**kept, "HOME": "/nowhere", "COLUMNS": "200", **more}


def _default_taken(site: Site) -> str:
    """A client configuration without an address, so that the default one is looked at."""
    file = site.folder / "temporal.toml"
    file.write_text('[profile.default]\nnamespace = "default"\n')
    return str(file)


def _in_terminal(site: Site, args: list[str], *, until: str) -> str:
    """Run the console script on a terminal until it has shown something, then press Ctrl-C."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *args],
        cwd=site.folder,
        env=_environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = ""
    deadline = time.monotonic() + 40
    with contextlib.suppress(OSError):  # the terminal is gone when the process is
        while until not in shown and time.monotonic() < deadline:
            shown += os.read(ours, 4096).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        while os.read(ours, 4096):
            pass
    process.wait(20)
    os.close(ours)
    return shown


@contextlib.asynccontextmanager
async def _process(site: Site, server: Server, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The console script with another server, killed at the end if it has not ended."""
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *args,
        cwd=site.folder,
        env=_environment(TEMPORAL_ADDRESS=server.address),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _processes_of(folder: Path) -> list[str]:
    """The processes whose command line names that folder."""
    if sys.platform == "linux":  # a slim container has no `ps`
        shown = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                shown.append(file.read_bytes().decode(errors="replace"))
    else:
        command = ["ps", "-A", "-ww", "-o", "command="]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in shown if str(folder) in line]


def _wait_for(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
