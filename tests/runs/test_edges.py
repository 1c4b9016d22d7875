"""Temporal's own edges, as a run meets them."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, serving
from support.waiting import until

LARGE = "x" * 2_200_000
PATIENCE_SECONDS = 4


async def test_name_too_long_for_a_search_attribute_ends_the_run_typed(server: Server) -> None:
    """A value above 2,048 bytes would end the run for good without an outcome; what is told is clipped."""
    async with serving(server.address, replies=[{"text": "never"}]) as case:
        with pytest.raises(RunFailed) as failed:
            await case.run(agent="n" * 3_000)
    assert failed.value.result is not None
    assert failed.value.result.outcome == "invalid_input"


async def test_update_above_the_servers_bound_parks_a_run_and_a_reset_rescues_it(server: Server) -> None:
    """A foreign client's update of 2.2 MB fails the run's task again and again; docs/limits.md is right."""
    replies = [{"text": "one"}, {"text": "two"}]
    foreign = await Client.connect(server.address)
    async with serving(server.address, replies=replies, replays=False) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="follow_up")
        with pytest.raises((RPCError, WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError)):
            await asyncio.wait_for(
                foreign.get_workflow_handle(run.id).execute_update("follow_up", LARGE), PATIENCE_SECONDS
            )
        await _reset_to_the_last_task(case, run.id)
        assert await run.ask("and now?") == "two"
        await run.finish()
        assert (await run.result()).answer == "two"


async def _reset_to_the_last_task(case: Case, run_id: str) -> None:
    history = await case.history(run_id)
    completed = [e.event_id for e in history.events if e.HasField("workflow_task_completed_event_attributes")]
    description = await case.handle(run_id).describe()
    await case.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=case.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run_id, run_id=description.run_id),
            reason="parked by an update that is too large",
            workflow_task_finish_event_id=completed[-1],
            request_id=str(uuid4()),
            reset_reapply_exclude_types=[2],  # updates
        )
    )
