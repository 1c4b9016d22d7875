"""A contestant's own process: commands in as JSON lines on stdin, replies out on stdout.

A process of its own, because contestants' dependencies may clash and because caches, imports and
garbage of one must not cost the other. Run as `python -m bench.process NAME ADDRESS`.
"""

import asyncio
import json
import os
import sys
import threading
from typing import Any, TextIO

from bench.contestant import load
from bench.measure import Bench

COMMANDS = frozenset({"time", "history", "replay", "serve", "rest", "digests"})


async def obey(bench: Bench, commands: TextIO, replies: TextIO) -> None:
    """Execute commands one by one, for ever; a failure is a reply, not the end.

    The end of the commands ends the process, at once and in the middle of a command: the parent
    has gone, perhaps killed, and a measurement must not outlive it.
    """
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(commands, loop, lines), daemon=True).start()
    while True:
        command = json.loads(await lines.get())
        _say(replies, await _execute(bench, command.pop("do"), command))


def _read(commands: TextIO, loop: asyncio.AbstractEventLoop, lines: "asyncio.Queue[str]") -> None:
    for line in commands:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    # Not sys.exit: an interpreter that ran a worker can crash while it shuts down.
    os._exit(0)


async def _execute(bench: Bench, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name not in COMMANDS:
        return {"error": f"no such command: {name}"}
    try:
        reply: dict[str, Any] = await getattr(bench, name)(**arguments)
    except Exception as error:  # reported to the parent, which decides what it means
        return {"error": _reason(error)}
    return reply


def _reason(error: BaseException) -> str:
    """The chain of causes on one line: a failed workflow names its reason only in its cause."""
    parts: list[str] = []
    at: BaseException | None = error
    while at is not None and len(parts) < 4:
        parts.append(f"{type(at).__name__}: {at}"[:300])
        at = at.__cause__
    return " <- ".join(parts)


def _say(replies: TextIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def main() -> None:
    """Load the contestant, say so, and obey until the parent has gone."""
    name, address = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not end up among the replies
    try:
        bench = Bench(load(name), address)
    except ImportError as error:
        _say(replies, {"error": _reason(error)})
    else:
        _say(replies, {"ready": name})
        asyncio.run(obey(bench, sys.stdin, replies))


if __name__ == "__main__":
    main()
