"""The application: global options, how commands run, and what errors become.

A command is a coroutine. A mistake of the user's is one message on standard error and an exit status, never a
traceback.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import inspect
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from temporalio.client import Client
from typer.core import TyperGroup

from mainspring import config as configuration
from mainspring.attachments import attachment
from mainspring.cli import interrupts
from mainspring.cli.interrupts import EXIT_INTERRUPTED
from mainspring.cli.output import note, problem
from mainspring.connect import Place, connect, place
from mainspring.errors import ConfigError, MainspringError
from mainspring.process import LOG_FORMAT, end_process, log_through_python
from mainspring.run_errors import NoWorker, RunFailed, Unreachable
from mainspring.schemas.config import Config
from mainspring.schemas.ledger import Attachment
from mainspring.state_folder import state_folder

__all__ = [
    "AS_JSON",
    "EXIT_INTERRUPTED",
    "EXIT_NO_ANSWER",
    "EXIT_NO_SERVER",
    "EXIT_USE",
    "Group",
    "app",
    "attached",
    "chosen_config",
    "command",
    "config_file",
    "connected",
    "loaded",
    "optional_config",
    "run_app",
    "where",
]

EXIT_NO_ANSWER = 1
EXIT_USE = 2
EXIT_NO_SERVER = 3
EXIT_UNWRITTEN = 1
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO)
_WRONG_USE: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""What the command line library raises for wrong use; it has no public name in typer."""

P = ParamSpec("P")


class Group(TyperGroup):
    """Commands whose summaries are whole, and whose mistakes are one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, each with the first sentences of its help."""
        for command in self.commands.values():
            command.short_help = " ".join((command.help or "").split("\n\n")[0].split())
        super().format_commands(ctx, formatter)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; its help says FILE, and not `{FILE} <list[path]>`."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            shown = type(found).get_help

            def get_help(ctx: Any) -> str:
                return _readable(shown(found, ctx))

            setattr(found, "get_help", get_help)  # noqa: B010 - a method, to type checkers
        return found

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line; ends with SystemExit unless asked not to."""
        alone = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        if not alone:
            return super().main(*args, **options)
        try:
            status = super().main(*args, **options)
        except _WRONG_USE as error:
            _wrong_use(error)
            status = EXIT_USE
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            if not isinstance(error, BrokenPipeError):  # whoever reads us has not simply read enough
                problem(f"the output cannot be written: {error.strerror}")
            status = EXIT_UNWRITTEN
        except (KeyboardInterrupt, typer.Abort):
            status = EXIT_INTERRUPTED
        sys.exit(status if isinstance(status, int) else 0)


def _readable(help_: str) -> str:
    """Help without what the library adds to arguments, its columns as they were."""
    plain = re.sub(r"\{([A-Z]+)\}", r"\1", help_)
    return re.sub(r"(?m)^(  [A-Z]+)( <[a-z\[\]]+>)", lambda found: found[1] + " " * len(found[2]), plain)


def _wrong_use(error: Any) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    context = getattr(error, "ctx", None)
    hint = f" (`{context.command_path} --help` shows its use)" if context else ""
    told = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    problem(told + hint)


app = typer.Typer(
    name="mainspring",
    cls=Group,
    help="Agent runs on Temporal: each run survives the loss of any process, and can be watched and steered.",
    epilog="Example: mainspring run 'Which module owns retries?' --agent guide",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


CONFIG = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Configuration. Default: $MAINSPRING_CONFIG, else the nearest mainspring.yaml here or above.",
    ),
]


class _Chosen:
    """Options that every command of this invocation shares."""

    config: Path | None = None


@app.callback()
def _globals(config: CONFIG = None) -> None:
    _Chosen.config = config


def run_app() -> NoReturn:
    """Run the command line and end the process deliberately; the interpreter's own shutdown may crash."""
    _open_streams()
    logging.basicConfig(
        level=os.environ.get("MAINSPRING_LOG", "ERROR").upper(), format=LOG_FORMAT, stream=sys.stderr
    )
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    log_through_python()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a model wrote may not fit the terminal
    status = 0
    try:
        app()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_process(status)


def _open_streams() -> None:
    """Streams that were closed when we were started fail at being written to, as any that cannot be."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8"))  # noqa: SIM115


def command(function: Callable[P, Coroutine[Any, Any, int | None]]) -> Callable[P, None]:
    """Make a coroutine a command: run it, turn its errors into messages, exit with what it returns.

    Every command takes --config too, since people write it there.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        config = kwargs.pop(_CONFIG.name, None)
        if isinstance(config, Path):
            _Chosen.config = config
        interrupts.raises()
        try:
            status = asyncio.run(_awaited(function(*args, **kwargs)))
        except MainspringError as error:
            problem(str(error))
            status = _status(error)
        except KeyboardInterrupt:
            status = EXIT_INTERRUPTED
        raise typer.Exit(status or 0)

    taken = inspect.signature(function, eval_str=True)
    parameters = [*taken.parameters.values(), _CONFIG]
    run.__signature__ = taken.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_CONFIG = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=CONFIG)


async def _awaited(coroutine: Awaitable[int | None]) -> int | None:
    return await coroutine


def _status(error: MainspringError) -> int:
    if isinstance(error, Unreachable | NoWorker):
        return EXIT_NO_SERVER
    return EXIT_NO_ANSWER if isinstance(error, RunFailed) else EXIT_USE


def config_file() -> Path:
    """The configuration file of this invocation.

    Raises: ConfigError, when there is none.
    """
    return _Chosen.config or configuration.find()


def chosen_config() -> Path | None:
    """The file that `--config` names."""
    return _Chosen.config


def loaded() -> Config:
    """The configuration of this invocation.

    Raises: ConfigError.
    """
    return configuration.load(config_file())


def optional_config() -> Config | None:
    """The configuration, or None where no file was named and none is found: talking to runs needs none.

    Raises: ConfigError, when there is one and it is wrong.
    """
    if _Chosen.config is None:
        try:
            configuration.find()
        except ConfigError:
            return None
    return loaded()


def where(config: Config | None) -> Place:
    """Where Temporal is for this invocation."""
    return place(Path(config.state_dir if config else ".mainspring"))


async def connected() -> Client:
    """A client for talking to runs.

    That needs nothing of the configuration but the state folder: where a file that was found is wrong, this
    is told, and the usual folder beside it is looked into.

    Raises: Unreachable; ConfigError, of a file that `--config` names.
    """
    try:
        config = optional_config()
    except ConfigError as error:
        if _Chosen.config is not None:
            raise
        first, *more = str(error).splitlines()
        others = f" (and {len(more)} more)" if more else ""
        note(f"! the configuration is wrong and left aside: {first}{others}")
        return await connect(place(configuration.find().parent / ".mainspring"))
    return await connect(where(config))


async def attached(paths: list[Path] | None) -> list[Attachment]:
    """Files as attachments; large ones go to the configuration's blob store.

    Raises: ConfigError; MainspringError, when one cannot be read or is too large.
    """
    if not paths:
        return []
    from mainspring.services import blob_store  # it brings the activities, which only this needs

    config = optional_config()
    store = blob_store(config) if config else None
    if config is not None and config.blobs == "file":
        state_folder(config.state_dir)
    return [await attachment(path, blobs=store) for path in paths]
