"""The plugin: everything that a Temporal client and a Temporal worker need to start and serve agent runs.

    client = await Client.connect("localhost:7233", plugins=[MainspringPlugin.from_file("mainspring.yaml")])
    worker = Worker(client, task_queue="mainspring")

It brings its own workflows and activities and leaves the user's beside them. List it last among plugins: it
serves names that nobody else does with a dynamic activity, and wraps one that the worker already has.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DefaultPayloadConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import ReplayerConfig, Worker, WorkerConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from mainspring.config import load
from mainspring.converter import data_converter
from mainspring.errors import MainspringError
from mainspring.schemas.config import Config
from mainspring.telemetry import Providers, Telemetry
from mainspring.workflows.agent_run import AgentRun

if TYPE_CHECKING:
    from mainspring.activities.deltas import DeltaSink
    from mainspring.activities.functions import ToolFunction
    from mainspring.services import Services

__all__ = ["PASSED_THROUGH", "MainspringPlugin", "sandbox"]

PASSED_THROUGH: tuple[str, ...] = (
    "mainspring.schemas",
    "mainspring.converter",
    *(
        f"mainspring.workflows.{name}"
        for name in (
            "acts",
            "arming",
            "backtest",
            "bm25",
            "budget",
            "catalog",
            "dispatch",
            "envelope",
            "events",
            "gates",
            "guard",
            "intrinsics",
            "json_schema",
            "ledger",
            "messages",
            "outcomes",
            "plan",
            "questions",
            "recorded",
            "router",
            "run_input",
            "searches",
            "signatures",
            "tokens",
            "trace",
            "universe",
            "values",
            "views",
            "words",
        )
    ),
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "numpy",
    "typing_extensions",
    "typing_inspection",
)
"""Pure modules, shared with the sandbox where it is used; `agent_run` and `shell` are not."""

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
        sandbox: Run our workflows in Temporal's sandbox. It catches clocks, chance and files in workflow
            code, which is of use where that code is changed: our tests set it. Elsewhere it only costs time
            (decision 0006). The user's own workflows run as the worker says, whatever is set here.
        deltas: Where every piece of a streaming reply goes, in place of the configuration's Redis.
        telemetry: Where telemetry goes, in place of the process's OpenTelemetry providers.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        tools: Sequence[ToolFunction] = (),
        sandbox: bool = False,
        deltas: DeltaSink | None = None,
        telemetry: Providers | None = None,
    ) -> None:
        self.config = config or Config()
        self.sandbox = sandbox
        spec = self.config.telemetry
        self.telemetry = Telemetry(spec, telemetry) if spec.enabled else None
        self._tools = tuple(tools)
        self._deltas = deltas
        self._services: Services | None = None
        self._made: list[Services] = []
        self._running = 0
        super().__init__(
            "mainspring.MainspringPlugin",
            data_converter=data_converter,
            workflows=[AgentRun],
            run_context=self._run_context,
        )

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        tools: Sequence[ToolFunction] = (),
        sandbox: bool = False,
        deltas: DeltaSink | None = None,
        telemetry: Providers | None = None,
    ) -> MainspringPlugin:
        """The plugin of a configuration file.

        Modules under `tools.python` are found beside the file: its folder joins the import path.

        Raises: ConfigError, naming file, line, column and what is allowed.
        """
        config = load(path)
        folder = str(Path(path).resolve().parent)
        if config.tools.python and folder not in sys.path:
            sys.path.insert(0, folder)
        return cls(config, tools=tools, sandbox=sandbox, deltas=deltas, telemetry=telemetry)

    @property
    def services(self) -> Services:
        """What the activities of this process share; made when first asked for, so a client needs none."""
        if self._services is None:
            from mainspring.services import Services

            self._services = Services(self.config, self._tools, self._deltas)
            self._made.append(self._services)
        return self._services

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows and activities to the worker."""
        config = super().configure_worker(config)
        client = config.get("client")
        assert client is not None
        _check_client(client)
        for name, usual in _USUAL_THROTTLE.items():
            if config.get(name) in (None, usual):
                config[name] = HEARTBEAT_THROTTLE  # type: ignore[literal-required]
        # The SDK leaves these callables bare.
        theirs = config.get("activities") or ()  # pyright: ignore[reportUnknownVariableType]
        config["activities"] = self.services.beside(theirs)  # pyright: ignore[reportUnknownArgumentType]
        if self.telemetry is not None:  # a replayer has none: what it repeats was told
            config["interceptors"] = [*(config.get("interceptors") or ()), self.telemetry.interceptor]
        if self.sandbox:
            config["unsandboxed_workflow_runner"] = sandbox()
        return config

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Add workflows to the replayer."""
        config = super().configure_replayer(config)
        if self.sandbox:
            config["unsandboxed_workflow_runner"] = sandbox()
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run a worker, with telemetry; a replayer has none."""
        if self.telemetry is not None:
            self.telemetry.start()
        await super().run_worker(worker, next)

    @asynccontextmanager
    async def _run_context(self) -> AsyncGenerator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:  # the last of this plugin's workers
                made, self._made, self._services = self._made, [], None
                await asyncio.gather(*(services.close() for services in made))
                if self.telemetry is not None:
                    await self.telemetry.stop()


def _check_client(client: Client) -> None:
    """A worker whose client reads payloads as it always did would park a run at the first bad one.

    Raises: MainspringError.
    """
    given = client.data_converter.payload_converter_class
    if given in (DefaultPayloadConverter, PydanticPayloadConverter):
        raise MainspringError(
            "the worker has the Mainspring plugin and its client has not; "
            "give it to the client, Client.connect(…, plugins=[plugin]): its workers have it then too"
        )


def sandbox() -> SandboxedWorkflowRunner:
    """Temporal's sandbox with our pure modules passed through; the loop and the shell stay inside."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return SandboxedWorkflowRunner(restrictions=restrictions)
