"""The plugin: everything that a Temporal client and a Temporal worker need to start and serve agent runs.

    client = await Client.connect("localhost:7233", plugins=[MainspringPlugin.from_file("mainspring.yaml")])
    worker = Worker(client, task_queue="mainspring")

It brings its own workflows and activities and leaves the user's beside them. List it last among plugins: it
serves names that nobody else does with a dynamic activity, and wraps one that the worker already has.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from mainspring.config import load
from mainspring.converter import data_converter
from mainspring.schemas.config import Config
from mainspring.workflows.agent_run import AgentRun

if TYPE_CHECKING:
    from mainspring.activities.functions import ToolFunction
    from mainspring.services import Services

__all__ = ["PASSED_THROUGH", "MainspringPlugin"]

PASSED_THROUGH: tuple[str, ...] = (
    "mainspring.schemas",
    "mainspring.converter",
    *(
        f"mainspring.workflows.{name}"
        for name in (
            "arming",
            "budget",
            "catalog",
            "dispatch",
            "events",
            "gates",
            "intrinsics",
            "ledger",
            "messages",
            "outcomes",
            "plan",
            "router",
            "run_input",
            "tokens",
            "values",
            "views",
        )
    ),
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions",
    "typing_inspection",
)
"""Pure modules, shared with the sandbox; `agent_run` and `shell` stay in it."""

HEARTBEAT_THROTTLE = timedelta(seconds=0.5)
"""Live text is seen, and a cancellation arrives, within about this time."""
_USUAL_THROTTLE = {
    "max_heartbeat_throttle_interval": timedelta(seconds=60),
    "default_heartbeat_throttle_interval": timedelta(seconds=30),
}


class MainspringPlugin(SimplePlugin):
    """Agent runs for a Temporal client and worker.

    Args:
        config: The configuration, as `mainspring.config.load` reads it.
        tools: `@tool` functions beside those that the configuration names.
    """

    def __init__(self, config: Config | None = None, *, tools: Sequence[ToolFunction] = ()) -> None:
        self.config = config or Config()
        self._tools = tuple(tools)
        self._services: Services | None = None
        super().__init__(
            "mainspring.MainspringPlugin",
            data_converter=data_converter,
            workflows=[AgentRun],
            workflow_runner=_runner,
            run_context=self._run_context,
        )

    @classmethod
    def from_file(cls, path: str | Path, *, tools: Sequence[ToolFunction] = ()) -> MainspringPlugin:
        """The plugin of a configuration file.

        Modules under `tools.python` are found beside the file: its folder joins the import path.

        Raises: ConfigError, naming file, line, column and what is allowed.
        """
        config = load(path)
        folder = str(Path(path).resolve().parent)
        if config.tools.python and folder not in sys.path:
            sys.path.insert(0, folder)
        return cls(config, tools=tools)

    @property
    def services(self) -> Services:
        """What the activities of this process share; made when first asked for, so a client needs none."""
        if self._services is None:
            from mainspring.services import Services

            self._services = Services(self.config, self._tools)
        return self._services

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows and activities to the worker."""
        config = super().configure_worker(config)
        for name, usual in _USUAL_THROTTLE.items():
            if config.get(name) in (None, usual):
                config[name] = HEARTBEAT_THROTTLE  # type: ignore[literal-required]
        activities: list[Callable[..., Any]] = list(config.get("activities") or ())
        config["activities"] = self.services.beside(activities)
        return config

    @asynccontextmanager
    async def _run_context(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if self._services is not None:
                services, self._services = self._services, None
                await services.close()


def _runner(given: WorkflowRunner | None) -> WorkflowRunner:
    """The user's sandbox with our pure modules passed through; another runner is left alone."""
    runner = given or SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    restrictions = runner.restrictions.with_passthrough_modules(*PASSED_THROUGH)
    return dataclasses.replace(runner, restrictions=restrictions)
