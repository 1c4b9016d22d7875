"""A run that has ended, read without its worker: its history is replayed here, and asked instead.

A worker answers for closed runs too, and is asked first where one serves the task queue: it may know a codec
that we do not. Where none answers, the history is fetched and this version's code is taken through it. A run
that the server ended (terminated, timed out) stopped amid its code, and only a worker tells of it.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHistory
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from mainspring.channel import Channel, server_errors
from mainspring.plugin import MainspringPlugin
from mainspring.run_errors import NoWorker, Refused
from mainspring.workflows.agent_run import AgentRun
from mainspring.workflows.views import Viewed

__all__ = ["ClosedChannel", "replayed"]

WORKER_SECONDS = 4.0
_BY_ITSELF = (
    WorkflowExecutionStatus.COMPLETED,
    WorkflowExecutionStatus.FAILED,
    WorkflowExecutionStatus.CANCELED,
)


class ClosedChannel(Channel):
    """The line to a run that has ended.

    Args:
        served: Whether a worker may answer; one that does not within `WORKER_SECONDS` is not asked again.
        described: What the server knows of the run.
    """

    def __init__(self, client: Client, described: WorkflowExecutionDescription, *, served: bool) -> None:
        super().__init__(client, described.id, patience_seconds=WORKER_SECONDS)
        self._served = served
        self._described = described
        self._replayed: dict[str | None, AgentRun] = {}

    async def query(self, name: str, *args: object, execution: str | None = None) -> Any:
        """Ask the run's worker, else the replayed run.

        Raises: as `Channel.query`; NoWorker, when the history cannot be replayed here either.
        """
        if self._served:
            try:
                async with asyncio.timeout(WORKER_SECONDS):
                    return await super().query(name, *args, execution=execution)
            except (NoWorker, TimeoutError):
                self._served = False
        if execution not in self._replayed:
            self._replayed[execution] = await self._replay(execution)
        try:
            return getattr(self._replayed[execution], f"query_{name}")(*args)
        except ValueError as error:
            raise Refused(f"query {name} of run {self.id!r}: {error}") from error

    async def _replay(self, execution: str | None) -> AgentRun:
        run = None
        if execution is not None or self._described.status in _BY_ITSELF:
            with server_errors(self.client):
                history = await self.client.get_workflow_handle(self.id, run_id=execution).fetch_history()
            run = await replayed(history)
        if run is None:
            status = self._described.status
            raise NoWorker(
                f"run {self.id!r} has ended ({status.name.lower() if status else 'closed'}); its details are "
                f"read by a worker, and none serves task queue {self._described.task_queue!r}; "
                "start one with `mainspring worker`"
            )
        return run


async def replayed(history: WorkflowHistory) -> AgentRun | None:
    """A run as its code left it, only to be asked; None when the history cannot be replayed here."""
    kept: list[AgentRun] = []

    class Keeps(WorkflowInboundInterceptor):
        async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
            try:
                return await self.next.execute_workflow(input)
            finally:
                kept.append(_copy(workflow.instance()))

    class Keeping(Interceptor):
        def workflow_interceptor_class(
            self, input: WorkflowInterceptorClassInput
        ) -> type[WorkflowInboundInterceptor]:
            return Keeps

    replayer = Replayer(workflows=[], plugins=[MainspringPlugin()], interceptors=[Keeping()])
    outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return kept[0] if kept and outcome.replay_failure is None else None


def _copy(run: Any) -> AgentRun:
    """The run without the event loop that it lives in."""
    copy = object.__new__(AgentRun)
    for name in Viewed.__annotations__:
        setattr(copy, name, deepcopy(getattr(run, name)))
    return copy
