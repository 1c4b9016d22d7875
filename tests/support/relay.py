"""A connection that can be cut: what a client sees when its server goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["Relay", "relayed"]


class Relay:
    """Passes bytes between a client and a server until it is cut; then nobody answers at its address."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.partition(":")
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        """Where the client connects to."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """Drop every connection and take no new one."""
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def listen(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        self._open |= {writer, far_writer}
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def relayed(target: str) -> AsyncIterator[Relay]:
    """A relay to that address, cut at the end if it was not before."""
    relay = Relay(target)
    await relay.listen()
    try:
        yield relay
    finally:
        relay.cut()
