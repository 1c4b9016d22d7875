"""A blob store and a provider on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.activities.blobs import BlobStore
from support.model import Stub


@pytest.fixture
async def stub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stub]:
    """A provider on loopback; a key is set for it."""
    monkeypatch.setenv("STUB_KEY", "sk-stub-0123456789abcdef")
    found = Stub()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    yield found
    server.close()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """A blob store in a folder."""
    return BlobStore(tmp_path.as_uri())
