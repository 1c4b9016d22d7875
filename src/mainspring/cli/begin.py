"""`run`, `start` and `watch`: begin a run, and follow one."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from mainspring.cli.app import (
    AS_JSON,
    EXIT_INTERRUPTED,
    app,
    attached,
    command,
    config_file,
    connected,
    optional_config,
    where,
)
from mainspring.cli.follow import end, follow
from mainspring.cli.output import note, print_answer, print_json
from mainspring.cli.reading import reading
from mainspring.client import Run, start_run
from mainspring.connect import Place, connect
from mainspring.embedded import embedded
from mainspring.errors import ConfigError
from mainspring.process import LOG_FORMAT, stop_requested
from mainspring.run_errors import Refused, Unreachable
from mainspring.schemas.base import JsonValue
from mainspring.schemas.config import Config
from mainspring.state_folder import state_folder
from mainspring.validate import did_you_mean

__all__ = ["log_to"]

REACH_SECONDS = 3.0
OWN_WORKER_GRACE_SECONDS = 2.0

AGENT = Annotated[
    str | None,
    typer.Option("--agent", "-a", metavar="AGENT", help="Configured agent. Default: the only one there is."),
]
MODEL = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="Configured model, instead of the agent's."),
]
TURNS = Annotated[
    int | None, typer.Option("--turns", min=1, metavar="N", help="Most turns, instead of the agent's.")
]
RUN_ID = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The run's id. Default: made from the agent's name.")
]
ATTACH = Annotated[
    list[Path] | None,
    typer.Option("--attach", metavar="FILE", help="A file to go with the prompt; repeat it."),
]
UNATTENDED = Annotated[
    bool, typer.Option("--unattended", help="Nobody can be asked: a question of the model's is told so.")
]
PROMPT = Annotated[
    str, typer.Argument(metavar="PROMPT", help="The first message; `-` reads it from standard input.")
]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What `run` and `start` begin."""

    prompt: str
    agent: str | None
    model: str | None
    turns: int | None
    id: str | None
    attach: list[Path] | None
    conversation: bool = False
    attended: bool = True


@app.command(epilog="Example: mainspring run 'Which module owns retries?' --agent guide --turns 10")
@command
async def run(
    prompt: PROMPT,
    agent: AGENT = None,
    model: MODEL = None,
    turns: TURNS = None,
    id: RUN_ID = None,
    attach: ATTACH = None,
    unattended: UNATTENDED = False,
    worker: Annotated[
        bool, typer.Option("--worker", help="Serve the task queue in this process too.")
    ] = False,
    as_json: AS_JSON = False,
) -> int:
    """Start a run, follow it live, print its answer.

    It uses a Temporal server that can be reached; where there is none, it starts an embedded one with a
    worker. What the run asks is asked here, on a terminal. Ctrl-C leaves the run going.
    """
    config = optional_config()
    wanted = _Wanted(_text(prompt), agent, model, turns, id, attach, attended=not unattended)
    stop = stop_requested()
    async with _server(config, worker) as (client, ui, own):
        begun = await _begin(client, config, wanted)
        note(f"run {begun.id}" + (f" · {_link(ui, client, begun.id)}" if ui else ""))
        if not await follow(begun, 0, stop, ask=True):
            _tell_how_to_go_on(begun.id, own, config)
            return EXIT_INTERRUPTED
        return await end(begun, as_json)


@app.command(epilog="Example: RUN=$(mainspring start 'Tidy the docs' --agent guide)")
@command
async def start(
    prompt: PROMPT,
    agent: AGENT = None,
    model: MODEL = None,
    turns: TURNS = None,
    id: RUN_ID = None,
    attach: ATTACH = None,
    conversation: Annotated[
        bool, typer.Option("--conversation", help="Wait for follow-ups after each answer.")
    ] = False,
    unattended: UNATTENDED = False,
    as_json: AS_JSON = False,
) -> None:
    """Start a run and print its id; the run goes on by itself."""
    config = optional_config()
    client = await connected()
    wanted = _Wanted(_text(prompt), agent, model, turns, id, attach, conversation, not unattended)
    begun = await _begin(client, config, wanted)
    if as_json:
        print_json({"run": begun.id, "id": begun.id})
    else:
        print_answer(begun.id)


@app.command(epilog="Example: mainspring watch guide-1f2e3d4c5b6a --answer")
@command
async def watch(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")],
    from_: Annotated[int, typer.Option("--from", min=0, metavar="N", help="First event, by its number.")] = 0,
    answer: Annotated[
        bool, typer.Option("--answer", help="Ask here what the run asks; without, it is only shown.")
    ] = False,
    as_json: AS_JSON = False,
) -> int:
    """Follow a run live until it ends, then print its answer. Ctrl-C leaves the run going."""
    found = await reading(run)
    if not await follow(found, from_, stop_requested(), ask=answer):
        return EXIT_INTERRUPTED
    return await end(found, as_json)


# --- beginning ---


def _text(given: str) -> str:
    return sys.stdin.read() if given == "-" else given


async def _begin(client: Client, config: Config | None, wanted: _Wanted) -> Run[JsonValue]:
    budgets: dict[str, JsonValue] = {} if wanted.turns is None else {"turns": wanted.turns}
    overrides: dict[str, JsonValue] = {"budgets": budgets} if budgets else {}
    if wanted.model is not None:
        overrides["model"] = _known(wanted.model, "model", config.models if config else None)
    return await start_run(
        client,
        agent=_agent(wanted.agent, config),
        prompt=wanted.prompt,
        id=wanted.id,
        task_queue=config.task_queue if config else "mainspring",
        lifetime="conversation" if wanted.conversation else "single",
        attended=wanted.attended,
        attachments=await attached(wanted.attach),
        overrides=overrides,
    )


def _agent(named: str | None, config: Config | None) -> str:
    agents = list(config.agents) if config else None
    if named is not None:
        return _known(named, "agent", agents)
    if agents is not None and len(agents) == 1:
        return agents[0]
    listed = f"; configured are: {', '.join(agents)}" if agents else ""
    raise Refused(f"name the agent with --agent{listed}")


def _known(name: str, kind: str, names: Iterable[str] | None) -> str:
    """The name, once our configuration has it; without one, the worker decides."""
    known = None if names is None else list(names)
    if known is not None and name not in known:
        raise Refused(f"no {kind} {name!r} is configured{did_you_mean(name, known)}")
    return name


@asynccontextmanager
async def _server(config: Config | None, worker: bool) -> AsyncGenerator[tuple[Client, str | None, bool]]:
    """A client, the UI's address where it is known, and whether server and worker are our own."""
    at = where(config)
    async with AsyncExitStack() as held:
        try:
            client = await connect(at, timeout_seconds=REACH_SECONDS)
        except Unreachable as error:
            if at.named:
                raise
            client, ui = await _own(held, config, error)
            yield client, ui, True
            return
        if worker:
            client = await _serve(held, at, config)
        yield client, at.ui_url, False


async def _own(held: AsyncExitStack, config: Config | None, why: Unreachable) -> tuple[Client, str | None]:
    """An embedded server with a worker in this process."""
    if config is None:
        raise Unreachable(f"{why}, and there is no mainspring.yaml to start an embedded one with")
    note("no Temporal server is reachable: starting an embedded one")
    server = await held.enter_async_context(embedded(Path(config.state_dir)))
    at = Place.at(server.address, where(config).options)
    return await _serve(held, at, config), server.ui_url


async def _serve(held: AsyncExitStack, at: Place, config: Config | None) -> Client:
    """A client whose process serves the task queue as well."""
    from mainspring.worker import plugin_of, serving  # they bring the activities, which only this needs

    if config is None:
        raise ConfigError("a worker needs a configuration: there is no mainspring.yaml here or above")
    plugin = plugin_of(config_file())
    log_to(Path(config.state_dir) / "worker.log")
    client = await connect(at, [plugin])
    await held.enter_async_context(serving(client, plugin, graceful_seconds=OWN_WORKER_GRACE_SECONDS))
    return client


def log_to(file: Path) -> None:
    """Send what a worker in this process logs to a file, away from the terminal."""
    state_folder(file.parent)
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    written = logging.FileHandler(file, encoding="utf-8")
    written.setFormatter(logging.Formatter(LOG_FORMAT))
    root.addHandler(written)
    root.setLevel(logging.INFO)
    logging.getLogger("temporalio").setLevel(logging.INFO)


def _link(ui: str, client: Client, run_id: str) -> str:
    return f"{ui}/namespaces/{client.namespace}/workflows/{run_id}"


def _tell_how_to_go_on(run_id: str, own: bool, config: Config | None) -> None:
    note("")
    if own and config is not None:
        note(f"run {run_id} is kept in {config.state_dir}; `mainspring dev` takes it up again, and then:")
    else:
        note(f"run {run_id} goes on")
    note(f"  mainspring watch {run_id}")
    note(f"  mainspring cancel {run_id}")
