"""A workflow that continues as new all the time: a stand-in for a run, to talk to across change-overs.

It keeps the contract of a run that matters there: updates are known by their ids through all executions, and
each execution holds only its own events.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow

EXECUTIONS = 4


@workflow.defn(name="Chain")
class Chain:
    """Emits one event an execution and each message that it is sent; ends after `EXECUTIONS`."""

    @workflow.init
    def __init__(
        self, carry: dict[str, Any]
    ) -> None:  # updates may come before `run`: the carry must be there
        self.events: list[dict[str, Any]] = []
        self.known: dict[str, int] = carry.get("known", {})
        self.next_seq: int = carry.get("next_seq", 0)
        self.execution: int = carry.get("execution", 1)
        self.released = False

    @workflow.run
    async def run(self, carry: dict[str, Any]) -> int:
        """Run one execution of the chain."""
        execution = self.execution
        self._emit("TurnStarted", turn=execution)
        await workflow.wait_condition(lambda: self.released)
        if execution < EXECUTIONS:
            workflow.continue_as_new(
                {"next_seq": self.next_seq, "known": self.known, "execution": execution + 1}
            )
        self._emit("Finished", outcome="completed", turn=execution)
        return len(self.known)

    def _emit(self, name: str, **more: Any) -> None:
        self.events.append({"seq": self.next_seq, "event": name, **more})
        self.next_seq += 1

    @workflow.update
    def steer(self, message: dict[str, Any]) -> dict[str, int]:
        """Take a message once, by the id of its update; `release` in it lets the execution end."""
        info = workflow.current_update_info()
        assert info is not None
        self.known.setdefault(info.id, len(self.known) + 1)
        self.released = self.released or "release" in message["message"]
        return {"accepted": self.known[info.id]}

    @workflow.query(name="events")
    def query_events(self, start: int = 0) -> list[dict[str, Any]]:
        """Events of this execution, from `start`."""
        return [event for event in self.events if event["seq"] >= start]
