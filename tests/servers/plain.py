"""An MCP server over stdio, written by hand: an independent peer that can also misbehave.

    python plain.py [--noise] [--bad] [--pages 3|stuck] [--mute] [--deaf] [--journal FILE]

It answers on one line each; every call runs in a thread, so that a cancellation is seen while it does.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 100).decode()
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}

Result = dict[str, Any]


class RpcError(Exception):
    """An error that is answered as one of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """The server's state: what it was told to do wrong, and which calls were cancelled."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.cancelled: dict[Any, threading.Event] = {}

    def write(self, text: str) -> None:
        """Put text on stdout, whole."""
        with self.lock:
            sys.stdout.write(text)
            sys.stdout.flush()

    def journal(self, line: str) -> None:
        """Leave a line for the test."""
        if self.options.journal:
            with open(self.options.journal, "a") as opened:
                opened.write(f"{line}\n")

    def serve(self) -> None:
        """Answer until stdin ends; a deaf server stays."""
        if self.options.noise:
            self.write("Welcome to the \x1b[31mplain\x1b[0m server!\n\n{not json\nstarting … ")
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method") == "notifications/cancelled":
                event = self.cancelled.get(message["params"]["requestId"])
                self.journal("cancelled")
                if event is not None:
                    event.set()
            elif "id" in message and not self.options.mute:
                self.cancelled[message["id"]] = threading.Event()
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
        while self.options.deaf:
            time.sleep(1)

    def answer(self, message: dict[str, Any]) -> None:
        """Answer one request."""
        body: dict[str, Any]
        try:
            body = {"result": self.result(message["method"], message.get("params") or {}, message["id"])}
        except RpcError as error:
            body = {"error": {"code": error.code, "message": str(error)}}
        if self.options.noise:
            self.write("\n[log] half a line: ")
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **body})
        self.write(line.replace('"RAW"', RAW.get(str(params_of(message).get("raw")), '""')) + "\n")

    def result(self, method: str, params: dict[str, Any], number: Any) -> Result:
        """The result of a request."""
        if method == "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "plain", "version": "1"},
            }
        if method == "tools/list":
            self.journal("list")
            return self.page(params.get("cursor"))
        if method == "tools/call":
            found = TOOLS.get(params["name"])
            if found is None:
                raise RpcError(-32602, f"Unknown tool: {params['name']}")
            self.journal(f"call {params['name']}")
            return found(self, number, **(params.get("arguments") or {}))
        raise RpcError(-32601, "Method not found")

    def page(self, cursor: str | None) -> Result:
        """A page of the tools."""
        tools = [described(name) for name in TOOLS]
        if self.options.bad:
            return {"tools": [*BAD, *tools]}
        if self.options.pages is None:
            return {"tools": tools}
        if self.options.pages == "stuck":
            return {"tools": tools, "nextCursor": "again"}
        count = int(self.options.pages)
        at = int(cursor or 0)
        following = {"nextCursor": str(at + 1)} if at + 1 < count else {}
        return {"tools": tools[at::count], **following}


def params_of(message: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call."""
    found: dict[str, Any] = (message.get("params") or {}).get("arguments") or {}
    return found


def described(name: str) -> dict[str, Any]:
    """A tool as it is listed."""
    return {"name": name, "description": TOOLS[name].__doc__, "inputSchema": EMPTY, **ABOUT.get(name, {})}


def text(value: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": value}


def echo(server: Server, number: Any, **arguments: Any) -> Result:
    """Give back what was given."""
    return {"content": [text(json.dumps(arguments, ensure_ascii=False))]}


def environment(server: Server, number: Any, name: str) -> Result:
    """A variable of the server's environment, and its folder."""
    return {"content": [text(f"{os.environ.get(name)} in {os.getcwd()}")]}


def unreadable(server: Server, number: Any, raw: str) -> Result:
    """An answer that is not quite JSON."""
    return {"content": [text("here it comes")], "structuredContent": {"it": "RAW"}}


def failing(server: Server, number: Any) -> Result:
    """Fail, as a tool does."""
    return {"content": [text("the disk is full")], "isError": True}


def silent(server: Server, number: Any) -> Result:
    """Fail without a word."""
    return {"content": [], "isError": True}


def refusing(server: Server, number: Any, code: int) -> Result:
    """Fail, as the protocol does."""
    raise RpcError(code, "refused by the server")


def contents(server: Server, number: Any, kind: str) -> Result:
    """One kind of content."""
    return CONTENTS[kind]


def long(server: Server, number: Any, size: int) -> Result:
    """One very long line."""
    return {"content": [text("x" * size)]}


def image(server: Server, number: Any, size: int) -> Result:
    """A picture of that many bytes."""
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * (size - 8)).decode()
    return {"content": [text("a picture:"), {"type": "image", "data": data, "mimeType": "image/png"}]}


def waiting(server: Server, number: Any, seconds: float) -> Result:
    """Wait, or be cancelled."""
    if server.cancelled[number].wait(seconds):
        server.journal("stopped waiting")
    return {"content": [text("waited")]}


def exiting(server: Server, number: Any) -> Result:
    """End the server in the middle of the call."""
    sys.stderr.write("fatal: out of cheese\n")
    sys.stderr.flush()
    os._exit(3)


def forking(server: Server, number: Any) -> Result:
    """Start a process that outlives everybody, holding the server's pipes; its number."""
    child = subprocess.Popen(["sleep", "600"])
    return {"content": [text(str(child.pid))]}


def forking_and_exiting(server: Server, number: Any) -> Result:
    """End, while a process of ours holds the pipes."""
    child = subprocess.Popen(["sleep", "600"])
    server.journal(str(child.pid))
    os._exit(4)


TOOLS: dict[str, Callable[..., Result]] = {
    "echo": echo,
    "environment": environment,
    "unreadable": unreadable,
    "failing": failing,
    "silent": silent,
    "refusing": refusing,
    "contents": contents,
    "long": long,
    "image": image,
    "waiting": waiting,
    "exiting": exiting,
    "forking": forking,
    "forking_and_exiting": forking_and_exiting,
    "deep/er:name": echo,
}

ABOUT: dict[str, dict[str, Any]] = {
    "echo": {"annotations": {"readOnlyHint": True, "title": "Echo"}},
    "failing": {"annotations": {"readOnlyHint": False, "openWorldHint": False, "idempotentHint": True}},
    "silent": {"annotations": {"destructiveHint": True}},
    "refusing": {
        "inputSchema": {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/Tree"}, "code": {"$ref": "#/$defs/Code"}},
            "$defs": {
                "Tree": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Tree"}}},
                "Code": {"type": "integer"},
            },
        }
    },
    "environment": {"inputSchema": {}},
    "contents": {"annotations": {"readOnlyHint": "perhaps"}},
}

RAW = {
    "nan": "[NaN, Infinity]",
    "deep": "[" * 20_000 + "]" * 20_000,
    "cut": '"no end',
    "huge": "9" * 6_000,
}
"""What stands in place of "RAW" in an answer."""

SAME = {"city": "Oslo", "degrees": 3}
CONTENTS: dict[str, Result] = {
    "structured only": {"content": [], "structuredContent": SAME},
    "no content": {"structuredContent": SAME},
    "same": {"content": [text(json.dumps(SAME, indent=2))], "structuredContent": SAME},
    "wrapped text": {"content": [text("three")], "structuredContent": {"result": "three"}},
    "wrapped list": {"content": [text("1"), text("2")], "structuredContent": {"result": [1, 2]}},
    "other": {"content": [text("It is cold.")], "structuredContent": SAME},
    "two texts": {"content": [text("one"), text("two")]},
    "nothing": {"content": []},
    "embedded text": {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "file:///notes.md", "mimeType": "text/markdown", "text": "# Notes"},
            }
        ]
    },
    "embedded blob": {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "file:///a/plot.png", "mimeType": "image/png", "blob": PNG},
            }
        ]
    },
    "audio": {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
    "bad base64": {"content": [{"type": "image", "data": "???", "mimeType": "image/png"}]},
    "link": {
        "content": [
            {
                "type": "resource_link",
                "uri": "https://example.org/report.pdf",
                "name": "report",
                "title": "The report",
                "description": "Of last year.",
                "mimeType": "application/pdf",
                "size": 12345,
            }
        ]
    },
    "odd block": {"content": [text("before"), {"type": "hologram", "depth": 3}, 7]},
    "odd structure": {"content": [text("x")], "structuredContent": [1, 2]},
    "hostile text": {"content": [text("nul \u0000 and half \ud83d")]},
}

BAD: list[Any] = [
    {"name": "no_object", "inputSchema": {"type": "string"}},
    {"name": "bad_type", "inputSchema": {"type": "object", "properties": {"x": {"type": "nonsense"}}}},
    {
        "name": "remote",
        "inputSchema": {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/x"}}},
    },
    {
        "name": "local",
        "inputSchema": {"type": "object", "properties": {"x": {"$ref": "file:///etc/hostname"}}},
    },
    {"name": "dangling", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/Gone"}}}},
    {"name": "bell\u0007", "inputSchema": EMPTY},
    {"name": "n" * 129, "inputSchema": EMPTY},
    {"name": "", "inputSchema": EMPTY},
    {"inputSchema": EMPTY},
    {"name": 5, "inputSchema": EMPTY},
    "not even an object",
]


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    for flag in ("noise", "bad", "mute", "deaf"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--pages")
    parser.add_argument("--journal")
    Server(parser.parse_args()).serve()


if __name__ == "__main__":
    main()
