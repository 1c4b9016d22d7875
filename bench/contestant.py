"""What the benchmark knows of something it measures."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from temporalio.client import WorkflowHandle

FLOOR = "floor"
ENGINE = "mainspring"
MODULES = {
    FLOOR: "bench.floor",
    ENGINE: "bench.engine",
    "openai-agents": "bench.peers.openai_agents",
    "pydantic-ai": "bench.peers.pydantic_ai",
}
"""Contestant by name → the module that defines it. Each module has a function `contestant()`."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What client, worker and replayer are given so that a contestant can run a script of N turns."""

    argument: object
    workflows: Sequence[type] = ()
    activities: Sequence[Callable[..., Any]] = ()
    plugins: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to run the script on Temporal.

    Attributes:
        workflow_type: Name of the workflow that runs the script.
        model_activity: Activity type of a model call. In a history it opens each turn.
        prepare: Turns → setup. Called once for each operation; may read and write temporary files.
        transcript: Asks a finished run for its transcript, without what names the run or the time;
            returns it with the number of queries that took. None: nothing to compare.
    """

    name: str
    workflow_type: str
    model_activity: str
    prepare: Callable[[int], Setup]
    transcript: Callable[[WorkflowHandle[Any, Any]], Awaitable[tuple[list[Any], int]]] | None = field(
        default=None
    )


def load(name: str) -> Contestant:
    """The contestant of that name; ImportError when what it needs is not installed."""
    module = import_module(MODULES[name])
    made: Contestant = module.contestant()
    return made
