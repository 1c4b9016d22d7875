"""A provider on loopback that speaks OpenAI's chat completions and keeps what it was sent, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["ChatServer", "calling", "chat_server", "saying"]

Reply = Mapping[str, Any]


def saying(text: str) -> Reply:
    """A reply of text alone."""
    return {"delta": {"role": "assistant", "content": text}, "finish": "stop"}


def calling(*calls: tuple[str, str], text: str | None = None) -> Reply:
    """A reply that calls tools: name, and arguments as the text that is sent."""
    made = [
        {
            "index": index,
            "id": "call",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    return {"delta": {"role": "assistant", "content": text, "tool_calls": made}, "finish": "tool_calls"}


class ChatServer:
    """Gives one reply after the other, the last one again and again."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.bodies: list[bytes] = []
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in head if line.startswith("content-length"))
            self.bodies.append(await reader.readexactly(length))
            reply = self.replies[min(len(self.bodies), len(self.replies)) - 1]
            writer.write(_stream(reply))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has gone
        finally:
            writer.close()


def _stream(reply: Reply) -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    chunks = [
        _chunk([{"index": 0, "delta": reply["delta"], "finish_reason": None}]),
        _chunk([{"index": 0, "delta": {}, "finish_reason": reply["finish"]}]),
        {**_chunk([]), "usage": usage},
    ]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}".encode()


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


@asynccontextmanager
async def chat_server(replies: Sequence[Reply]) -> AsyncGenerator[ChatServer]:
    """Serve on a free port for as long as the block runs."""
    provider = ChatServer(replies)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    async with server:
        provider.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield provider
