"""What the activities of one worker process share: tools, blobs, the process cache.

Made by the plugin when a worker is built; a client that only starts and reads runs never needs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from temporalio import activity

from mainspring.activities.arm import ArmActivity
from mainspring.activities.blobs import BlobStore
from mainspring.activities.delta_feed import DeltaFeeds
from mainspring.activities.deltas import DeltaSink
from mainspring.activities.functions import ToolFunction
from mainspring.activities.model import ModelActivity
from mainspring.activities.redis_deltas import configured
from mainspring.activities.secrets import resolve
from mainspring.activities.tools import CALL_TOOL, Toolbox
from mainspring.activities.transcript import ProcessCache
from mainspring.errors import ConfigError
from mainspring.schemas.config import Config

__all__ = ["Services", "blob_store", "python_tools"]


def blob_store(config: Config) -> BlobStore:
    """The configuration's blob store; `file` is a folder under the state folder."""
    if config.blobs != "file":
        return BlobStore(config.blobs)
    return BlobStore((Path(config.state_dir).absolute() / "blobs").as_uri())


def python_tools(modules: Sequence[str]) -> list[ToolFunction]:
    """The `@tool` functions of some modules, in the order of their definition.

    Raises: ConfigError, when a module cannot be imported or holds no tool.
    """
    found: list[ToolFunction] = []
    for name in modules:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"tools.python: the module {name!r} cannot be imported ({reason})") from error
        tools = [value for value in vars(module).values() if isinstance(value, ToolFunction)]
        if not tools:
            raise ConfigError(f"tools.python: the module {name!r} holds no @tool function")
        found += tools
    return found


class Services:
    """The activities of a worker process and what they share.

    Args:
        config: The configuration.
        tools: `@tool` functions beside those of the configuration.
        deltas: Where every piece of a reply goes, in place of the configuration's Redis; its maker closes it.

    Raises: ConfigError.
    """

    def __init__(
        self, config: Config, tools: Sequence[ToolFunction] = (), deltas: DeltaSink | None = None
    ) -> None:
        self.config = config
        self.cache = ProcessCache()
        self.blobs = blob_store(config)
        foreign = [entry.definition() for entry in config.tools.activities]
        plain = config.mcp_activity != "dynamic"
        self.toolbox = Toolbox(
            [*python_tools(config.tools.python), *tools],
            foreign,
            config.mcp,
            blobs=self.blobs,
            cache=self.cache,
            files_root=Path(config.files.root) if config.files else None,
            secrets=resolve,
            mcp_activity=CALL_TOOL if plain else None,
        )
        self._plain = plain
        self._arm = ArmActivity(config, self.toolbox, self.cache, self.blobs)
        self._redis = configured(config.deltas) if deltas is None else None
        sink = self._redis if deltas is None else deltas
        feeds = None if sink is None else DeltaFeeds(sink)
        self._model = ModelActivity(self.cache, self.blobs, feeds=feeds)

    def activities(self) -> list[Callable[..., Any]]:
        """Ours, without the dynamic one."""
        return [self._arm.arm, self._arm.catalog_page, self._model.call_model, *self.toolbox.activities()]

    def beside(self, theirs: Sequence[Callable[..., Any]]) -> list[Callable[..., Any]]:
        """Ours beside the activities that a worker has: its own of the same name stay in place of ours.

        A worker has one dynamic activity at most: theirs, if there is one, is called for names that are not
        ours, or stays alone where the configuration serves MCP tools by a plain activity.
        """
        named = [item for item in theirs if _name(item) is not None]
        dynamic = [item for item in theirs if _name(item) is None]
        taken = {_name(item) for item in named}
        ours = [item for item in self.activities() if _name(item) not in taken]
        if self._plain:
            return [*named, *dynamic, *ours]
        self.toolbox.fallback = dynamic[0] if dynamic else None
        return [*named, *ours, self.toolbox.dynamic]

    async def close(self) -> None:
        """End what was started: MCP sessions and their servers, and connections of ours to Redis."""
        await self.toolbox.close()
        if self._redis is not None:
            await self._redis.close()


def _name(function: Callable[..., Any]) -> str | None:
    """An activity's name; None when it is dynamic."""
    # The SDK has no public way to ask.
    definition: Any = activity._Definition.must_from_callable(function)  # pyright: ignore[reportPrivateUsage]
    name: str | None = definition.name
    return name
