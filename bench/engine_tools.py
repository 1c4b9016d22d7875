"""The engine's tool for the script; its configuration names this module."""

from bench import script
from mainspring.tools import tool


@tool(effects="read", observes=True)
def observe(i: int) -> str:
    """What is seen at step i."""
    return script.observation(i)
