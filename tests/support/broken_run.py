"""A run with a defect that replay must find: one activity more than its history knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow

from mainspring.workflows.agent_run import AgentRun

with workflow.unsafe.imports_passed_through():
    from mainspring.schemas.activities import Armed
    from mainspring.schemas.run import RunInput

__all__ = ["EagerRun"]


@workflow.defn(name="AgentRun")
class EagerRun(AgentRun):
    """Arms twice."""

    @workflow.run
    async def run(self, *args: Any) -> dict[str, Any]:
        """As `AgentRun`."""
        return await super().run(*args)

    async def arm(self, request: RunInput) -> Armed:
        """Schedule something that was not there when the history was recorded, then arm."""
        await workflow.execute_activity("mainspring.audit", start_to_close_timeout=timedelta(seconds=1))
        return await super().arm(request)
