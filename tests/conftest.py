"""One embedded Temporal server for the whole session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from mainspring.embedded import Server, embedded


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[Server]:
    """An embedded server on free ports, stopped at the end."""
    async with embedded() as started:
        yield started
