"""The one script that every contestant runs.

N turns, each one model call that asks for one tool call, and one tool call that returns 2 KB; then
a last model call that answers. No network, no delay: what is left to measure is the machinery.
"""

import hashlib

OBSERVATION_BYTES = 2048
"""Size of one tool result, in ASCII characters."""

TOOL_NAME = "observe"
TOOL_DESCRIPTION = "What is seen at step i."
INSTRUCTIONS = "You call the tool `observe` once for each step and then answer."
ANSWER = "Done."


def prompt(turns: int) -> str:
    """What the run is asked; it names the number of turns, so that a scripted model can be stateless."""
    return f"Observe {turns} steps."


def turns_of(asked: str) -> int:
    """The number of turns in a `prompt`; ValueError when `asked` is not one."""
    return int(asked.split()[1])


def observation(i: int) -> str:
    """The tool's result at step `i`: always 2 KB, never the same twice, poorly compressible.

    Steps differ because an engine may rightly stop a run whose observations repeat.
    """
    digest = hashlib.shake_128(i.to_bytes(8, "big")).hexdigest(OBSERVATION_BYTES // 2)
    head = f"step {i}: "
    return head + digest[: OBSERVATION_BYTES - len(head)]
