"""Health check of a worker's container: is this host polling the task queue?

The server is asked, not the process: a worker that hangs, or lost its connection, does not poll any more.
Exit status 0 healthy, 1 not. Needs only `temporalio`; the connection is in the standard TEMPORAL_* variables.
"""

import asyncio
import os
import socket
import sys
from datetime import UTC, datetime

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

SILENCE_SECONDS_MAX = 150
"""A long poll lasts about a minute and is noted when it starts; two missed ones mean trouble."""


async def silence_seconds(client: Client, task_queue: str, host: str) -> float | None:
    """Seconds since a worker of this host last asked for workflow tasks; None where none ever did."""
    described = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    # The SDK's identity of a worker is <process id>@<host name>.
    seen = [p.last_access_time for p in described.pollers if p.identity.partition("@")[2] == host]
    if not seen:
        return None
    latest = max(at.ToDatetime(tzinfo=UTC) for at in seen)
    return (datetime.now(UTC) - latest).total_seconds()


async def main() -> int:
    """Ask the server and say in one line what was found."""
    task_queue = os.environ.get("MAINSPRING_TASK_QUEUE", "mainspring")
    try:
        client = await Client.connect(**ClientConfig.load_client_connect_config())
        silence = await silence_seconds(client, task_queue, socket.gethostname())
    except (RuntimeError, RPCError) as error:  # RuntimeError: the connection could not be made
        print(f"the server does not answer: {error}")
        return 1
    if silence is None:
        print(f"no worker of this host polls {task_queue}")
        return 1
    print(f"last poll of {task_queue} {silence:.0f} s ago")
    return 0 if silence <= SILENCE_SECONDS_MAX else 1


if __name__ == "__main__":
    status = asyncio.run(main())
    sys.stdout.flush()
    # Not sys.exit: the SDK's threads have been seen to crash the interpreter while it shuts down, and that
    # would be taken for an unhealthy worker.
    os._exit(status)
