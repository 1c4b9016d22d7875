"""MCP: real servers over stdio and streamable HTTP, and servers of our own that misbehave."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from mainspring.activities.blobs import BlobStore
from mainspring.activities.secrets import resolve
from mainspring.activities.tools import Toolbox
from mainspring.activities.transcript import ProcessCache
from mainspring.embedded import free_port
from mainspring.schemas.base import unwire
from mainspring.schemas.mcp import McpServerSpec
from mainspring.schemas.tools import ToolDefinition, ToolOutcome

SERVERS = Path(__file__).parents[1] / "servers"
BIN = Path(sys.executable).parent


def plain(*options: str, **spec: Any) -> McpServerSpec:
    """The hand-written server, told to misbehave in these ways."""
    return McpServerSpec(command=(sys.executable, "-I", "-S", str(SERVERS / "plain.py"), *options), **spec)


class Calls:
    """A toolbox whose MCP tools are called as Temporal calls them: by the dynamic activity."""

    def __init__(self, toolbox: Toolbox, blobs: BlobStore) -> None:
        self.toolbox = toolbox
        self.blobs = blobs
        self._dynamic = toolbox.dynamic

    async def __call__(self, name: str, arguments: Any = None) -> ToolOutcome:
        """Call a tool by `<server>/<tool>`."""
        environment = self.environment(name)
        payload = environment.payload_converter.to_payload(arguments)
        return unwire(ToolOutcome, await environment.run(self._dynamic, raw([payload])))

    def environment(self, name: str) -> ActivityEnvironment:
        """The environment of a call of that tool."""
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info,
            activity_type=f"mcp:{name}",
            activity_id="ab12cd34-1",
            start_to_close_timeout=timedelta(seconds=60),
        )
        return environment

    async def definitions(self) -> dict[str, ToolDefinition]:
        """The catalog by name."""
        tools, notes = await self.toolbox.definitions()
        assert notes == []
        return {tool.name: tool for tool in tools}


def raw(payloads: list[Payload]) -> list[RawValue]:
    """Arguments as a dynamic activity gets them."""
    return [RawValue(payload) for payload in payloads]


@asynccontextmanager
async def using(**servers: McpServerSpec) -> AsyncIterator[Calls]:
    """Servers by name, closed at the end."""
    blobs = BlobStore("memory://test-mcp")
    toolbox = Toolbox(mcp=servers, blobs=blobs, cache=ProcessCache(), secrets=resolve)
    try:
        yield Calls(toolbox, blobs)
    finally:
        await asyncio.wait_for(toolbox.close(), 20)


@contextmanager
def http_server(port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The HTTP server, from when it listens until the end of the block."""
    process = subprocess.Popen([sys.executable, str(SERVERS / "web.py"), str(port), *options])
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def journal_of(path: Path) -> list[str]:
    """What the server wrote down."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


async def until(true: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.05)


# --- real servers ----------------------------------------------------------------------------------------


async def test_real_git_server(tmp_path: Path) -> None:
    """mcp-server-git lists its tools with their claims, and reads a repository."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = (str(BIN / "mcp-server-git"), "--repository", str(tmp_path))
    async with using(git=McpServerSpec(command=command)) as call:
        tools = await call.definitions()
        status = tools["mcp:git/git_status"].declaration
        assert (status.effects, status.observes, status.idempotent) == ("read", True, True)
        assert tools["mcp:git/git_commit"].declaration.effects == "write"
        outcome = await call("git/git_status", {"repo_path": str(tmp_path)})
        assert not outcome.is_error
        assert "No commits yet" in str(outcome.content)


async def test_real_time_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """mcp-server-time, found beside our own interpreter, answers; its refusal is an error observation."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    async with using(time=McpServerSpec(command=["mcp-server-time"])) as call:
        outcome = await call("time/get_current_time", {"timezone": "UTC"})
        assert outcome.content["timezone"] == "UTC"  # type: ignore[index, call-overload]
        assert (await call("time/get_current_time", {"timezone": "Mars"})).is_error


# --- the catalog -----------------------------------------------------------------------------------------


async def test_claims_become_declarations() -> None:
    """Annotations are read as claims; without any, a tool acts outside and may not be repeated."""
    async with using(p=plain(timeout=7, start_timeout=11)) as call:
        tools = {name: found.declaration for name, found in (await call.definitions()).items()}
    claims = {
        name: (tools[f"mcp:p/{name}"].effects, tools[f"mcp:p/{name}"].idempotent)
        for name in ("echo", "failing", "silent", "long", "contents")
    }
    assert claims == {
        "echo": ("read", True),
        "failing": ("write", True),
        "silent": ("external", False),
        "long": ("external", False),
        "contents": ("external", False),
    }
    assert tools["mcp:p/echo"].observes
    assert not tools["mcp:p/failing"].observes
    assert tools["mcp:p/echo"].timeout == 7 + 11 + 5
    assert {declaration.source for declaration in tools.values()} == {"mcp"}


async def test_configuration_overrules_claims() -> None:
    """What the configuration declares of a tool holds, whatever the server claims; the later pattern wins."""
    declare = {
        "*": {"effects": "write", "attempts": 2, "timeout": "90s"},
        "ec*": {"effects": "none", "observes": False, "approval": "always", "core": True},
    }
    async with using(p=plain(declare=declare, start_timeout=11)) as call:
        echo = (await call.definitions())["mcp:p/echo"].declaration
    assert (echo.effects, echo.observes, echo.approval, echo.attempts) == ("none", False, "always", 2)
    assert echo.core
    assert echo.timeout == 90 + 11 + 5


async def test_tools_are_filtered_by_pattern() -> None:
    """Only what the server's patterns admit is in the catalog."""
    async with using(p=plain(tools=["f*", "!forking*"])) as call:
        assert list(await call.definitions()) == ["mcp:p/failing"]


async def test_same_name_on_two_servers_is_two_tools() -> None:
    """Two servers may call their tools alike: each is reached by its own name."""
    servers = {name: plain(env={"WHO": name}) for name in ("one", "two")}
    async with using(**servers) as call:
        assert {"mcp:one/environment", "mcp:two/environment"} <= set(await call.definitions())
        for name in servers:
            told = (await call(f"{name}/environment", {"name": "WHO"})).content
            assert str(told).startswith(f"{name} in ")


async def test_odd_but_printable_name_is_reachable() -> None:
    """A server may use separators in its names."""
    async with using(p=plain()) as call:
        assert "mcp:p/deep/er:name" in await call.definitions()
        assert (await call("p/deep/er:name", {"a": 1})).content == '{"a": 1}'


async def test_schema_is_kept_whole() -> None:
    """Definitions, references and recursion reach the model as they are; a schema without type gets one."""
    async with using(p=plain()) as call:
        tools = await call.definitions()
    schema = tools["mcp:p/refusing"].input_schema
    assert schema["properties"] == {"tree": {"$ref": "#/$defs/Tree"}, "code": {"$ref": "#/$defs/Code"}}
    assert set(schema["$defs"]) == {"Tree", "Code"}  # type: ignore[arg-type]
    assert tools["mcp:p/environment"].input_schema == {"type": "object"}


async def test_bad_tool_costs_itself_only() -> None:
    """Each tool that is malformed, or whose schema is none or leads elsewhere, is dropped with a note."""
    async with using(p=plain(), bad=plain("--bad")) as call:
        tools, notes = await call.toolbox.definitions()
    names = [tool.name.partition("/")[2] for tool in tools]
    assert sorted(names[: len(names) // 2]) == sorted(names[len(names) // 2 :])
    assert len(notes) == 11
    assert all(note.startswith("bad: ") for note in notes)
    for dropped in ("no_object", "bad_type", "remote", "local", "dangling", "bell", "nnnn"):
        assert sum(dropped in note for note in notes) == 1


async def test_remote_reference_is_never_fetched() -> None:
    """A schema that points at an address causes no request."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        import mcp_types as types

        from mainspring.activities.mcp_catalog import define_tools

        address = f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        schema = {"type": "object", "properties": {"x": {"$ref": address}}}
        spec = McpServerSpec(command=["x"])
        tools, notes = define_tools("p", spec, [types.Tool(name="t", input_schema=schema)])
        assert (tools, len(notes)) == ([], 1)
        with pytest.raises(TimeoutError):
            listening.accept()


async def test_pages_are_followed() -> None:
    """Every page is read, and each tool is there once."""
    async with using(whole=plain(), paged=plain("--pages", "3")) as call:
        names = list(await call.definitions())
    whole, paged = (
        [n.split("/", 1)[1] for n in names if n.startswith(f"mcp:{s}/")] for s in ("whole", "paged")
    )
    assert sorted(whole) == sorted(paged)
    assert len(set(paged)) == len(paged)


async def test_cursor_that_does_not_advance_ends_the_listing(tmp_path: Path) -> None:
    """A server that always has one more page is not followed for ever; no tool is there twice."""
    async with using(p=plain("--pages", "stuck", "--journal", str(tmp_path / "j"))) as call:
        tools, notes = await call.toolbox.definitions()
    names = [tool.name for tool in tools]
    assert len(names) == len(set(names)) > 10
    assert ["cursor" in note for note in notes] == [True]
    assert journal_of(tmp_path / "j") == ["list"] * 2


async def test_server_that_does_not_start_is_named() -> None:
    """Each server that cannot be had is named with the reason, at the same time; the others are there."""
    started = time.monotonic()
    servers = {
        "fine": plain(),
        "none": McpServerSpec(command=["no-such-program"]),
        "dies": McpServerSpec(command=["sh", "-c", "echo cannot find the config >&2; exit 7"]),
        "mute": plain("--mute", start_timeout=1.5),
        "down": McpServerSpec(url=f"http://127.0.0.1:{free_port()}/mcp"),
        "unset": McpServerSpec(url="http://127.0.0.1:1/mcp", headers={"x": "env:NO_SUCH_VARIABLE"}),
    }
    async with using(**servers) as call:
        catalog = await call.toolbox.catalog()
    assert time.monotonic() - started < 20
    assert {tool.name.partition("/")[0] for tool in catalog.tools} == {"mcp:fine"}
    reasons = {
        "none": "No such file",
        "dies": "status 7; stderr: cannot find the config",
        "mute": "not ready within 1.5 s",
        "down": "ConnectError",
        "unset": "env:NO_SUCH_VARIABLE",
    }
    assert catalog.failures.keys() == reasons.keys()
    for name, words in reasons.items():
        assert words in catalog.failures[name]


# --- results ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("structured only", {"city": "Oslo", "degrees": 3}),
        ("no content", {"city": "Oslo", "degrees": 3}),
        ("same", {"city": "Oslo", "degrees": 3}),
        ("wrapped text", "three"),
        ("wrapped list", {"result": [1, 2]}),
        ("other", 'It is cold.\n[structured content] {"city":"Oslo","degrees":3}'),
        ("two texts", "one\ntwo"),
        ("nothing", ""),
        ("embedded text", "[resource file:///notes.md (text/markdown)]\n# Notes"),
        ("embedded blob", "[resource file:///a/plot.png] [file plot.png: image/png, 108 bytes]"),
        ("audio", "[file: audio/wav, 3 bytes]"),
        ("bad base64", "[image/png that is not valid base64, 3 characters]"),
        (
            "link",
            "[link to resource https://example.org/report.pdf: The report "
            "(application/pdf, 12,345 bytes)] Of last year.",
        ),
        ("odd block", 'before\n{"type":"hologram","depth":3}\n7'),
        ("odd structure", "x\n[1,2]"),
        ("hostile text", "nul \ufffd and half \ufffd"),
    ],
)
async def test_content_is_useful_and_there_once(shared: Calls, kind: str, content: Any) -> None:
    """Whatever kind of content a server gives, the model reads what it can use of it, once, and no base64."""
    outcome = await shared("p/contents", {"kind": kind})
    assert (outcome.content, outcome.is_error) == (content, False)


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Calls]:
    """One server for the tests that change nothing."""
    async with using(p=plain()) as call:
        yield call


async def test_binary_parts_are_in_the_blob_store(shared: Calls) -> None:
    """A picture of two megabytes is a reference of a few bytes, with type and size."""
    outcome = await shared("p/image", {"size": 2_000_000})
    assert outcome.content == "a picture:\n[file: image/png, 2,000,000 bytes]"
    assert [(ref.media_type, ref.size) for ref in outcome.files] == [("image/png", 2_000_000)]
    assert (await shared.blobs.get(outcome.files[0])).startswith(b"\x89PNG")


@pytest.mark.parametrize("size", [200_000, 5_000_000])
async def test_long_line_is_read_and_spilled(shared: Calls, size: int) -> None:
    """A line of any honest length arrives whole, and what is too long for the model is spilled."""
    outcome = await shared("p/long", {"size": size})
    assert outcome.spilled is not None
    assert outcome.spilled.size == size


async def test_failure_of_the_tool_is_an_observation(shared: Calls) -> None:
    """`isError` is an error observation, with words even where the server has none."""
    outcome = await shared("p/failing")
    assert (outcome.content, outcome.is_error) == ("the disk is full", True)
    silent = await shared("p/silent")
    assert (silent.content, silent.is_error) == ("the tool failed, and said nothing about it", True)


@pytest.mark.parametrize("code", [-32602, -32603, -32000, -32001, 7])
async def test_error_of_the_protocol_is_an_observation(shared: Calls, code: int) -> None:
    """A JSON-RPC error of the server's is for the model, whatever its code, and is not retried."""
    outcome = await shared("p/refusing", {"code": code})
    assert (outcome.content, outcome.is_error) == (f"refused by the server (MCP error {code})", True)


async def test_unknown_tool_of_a_known_server_is_an_observation(shared: Calls) -> None:
    """The server says itself that it has no such tool."""
    outcome = await shared("p/nope")
    assert outcome.is_error
    assert "Unknown tool: nope" in str(outcome.content)


@pytest.mark.parametrize(
    ("kind", "words"), [("nan", "NaN"), ("deep", "not JSON"), ("cut", "not JSON"), ("huge", "not JSON")]
)
async def test_answer_that_is_not_quite_json_is_not_waited_for(shared: Calls, kind: str, words: str) -> None:
    """An answer that no strict parser reads is mended, or is an error at once; the call never hangs."""
    outcome = await asyncio.wait_for(shared("p/unreadable", {"raw": kind}), 10)
    assert words in str(outcome.content)


async def test_noise_on_stdout_is_passed_over() -> None:
    """Banners, blank and broken lines, and text before a message cost nothing, here or elsewhere."""
    async with using(loud=plain("--noise"), quiet=plain()) as call:
        assert len(await call.definitions()) > 20
        outcomes = await asyncio.gather(
            *(call(f"{s}/echo", {"n": n}) for s in ("loud", "quiet") for n in range(9))
        )
    assert [outcome.content for outcome in outcomes] == [f'{{"n": {n}}}' for n in range(9)] * 2


async def test_calls_run_at_the_same_time(shared: Calls) -> None:
    """One session carries many calls at once."""
    started = time.monotonic()
    await asyncio.gather(*(shared("p/waiting", {"seconds": 1}) for _ in range(10)))
    assert time.monotonic() - started < 5


# --- faults ----------------------------------------------------------------------------------------------


async def test_server_that_exits_in_a_call_is_not_waited_for(tmp_path: Path) -> None:
    """A call whose server ends fails at once, retryable, with what is known; the next has a new server."""
    async with using(p=plain("--journal", str(tmp_path / "j"))) as call:
        started = time.monotonic()
        with pytest.raises(ApplicationError) as raised:
            await call("p/exiting")
        assert time.monotonic() - started < 10
        assert raised.value.type == "tool_unreachable"
        assert "may or may not have happened" in raised.value.message
        assert "status 3; stderr: fatal: out of cheese" in raised.value.message
        assert raised.value.details == ()
        assert (await call("p/echo", {"a": 1})).content == '{"a": 1}'
    assert journal_of(tmp_path / "j") == ["call exiting", "call echo"]


async def test_server_that_exits_takes_its_siblings_along() -> None:
    """Every call in flight on a session that ends is told, none hangs."""
    async with using(p=plain()) as call:
        waiting = [asyncio.create_task(call("p/waiting", {"seconds": 50})) for _ in range(3)]
        await call("p/echo")
        with pytest.raises(ApplicationError):
            await call("p/exiting")
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
    assert [type(error) for error in ended] == [ApplicationError] * 3


async def test_end_of_a_server_is_seen_though_its_pipes_stay_open(tmp_path: Path) -> None:
    """A process that holds the pipes of an ended server does not hide its end, and does not outlive it."""
    async with using(p=plain("--journal", str(tmp_path / "j"))) as call:
        started = time.monotonic()
        with pytest.raises(ApplicationError, match="status 4"):
            await call("p/forking_and_exiting")
        assert time.monotonic() - started < 10
        held = int(journal_of(tmp_path / "j")[-1])
        await until(lambda: not alive(held))


async def test_call_without_answer_ends_in_time(tmp_path: Path) -> None:
    """A call that is not answered fails after its time, retryable, and the server is told to stop."""
    spec = plain("--journal", str(tmp_path / "j"), declare={"waiting": {"timeout": 1}})
    async with using(p=spec) as call:
        started = time.monotonic()
        with pytest.raises(ApplicationError, match="did not answer within 1 s") as raised:
            await call("p/waiting", {"seconds": 50})
        assert time.monotonic() - started < 8
        assert raised.value.type == "tool_unreachable"
        await until(lambda: "stopped waiting" in journal_of(tmp_path / "j"))
        assert (await call("p/echo")).content == "{}"


async def test_cancellation_reaches_the_server(tmp_path: Path) -> None:
    """A cancelled call is cancelled at the server; the session and the other calls stay."""
    async with using(p=plain("--journal", str(tmp_path / "j"))) as call:
        other = asyncio.create_task(call("p/waiting", {"seconds": 2}))
        environment = call.environment("p/waiting")
        payload = environment.payload_converter.to_payload({"seconds": 50})
        task = asyncio.ensure_future(environment.run(call.toolbox.dynamic, raw([payload])))
        await until(lambda: journal_of(tmp_path / "j").count("call waiting") == 2)
        environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: "stopped waiting" in journal_of(tmp_path / "j"))
        assert (await other).content == "waited"


async def test_closing_ends_the_whole_group() -> None:
    """What a server started ends with it, also when the server itself ends nicely."""
    async with using(p=plain()) as call:
        grandchild = int(str((await call("p/forking")).content))
        assert alive(grandchild)
    await until(lambda: not alive(grandchild))


async def test_closing_a_server_that_will_not_end_is_bounded() -> None:
    """A server that ignores the end of its input is ended all the same."""
    async with using(p=plain("--deaf")) as call:
        await call("p/echo")
        started = time.monotonic()
    assert time.monotonic() - started < 8


async def test_closing_while_a_server_starts_is_bounded() -> None:
    """Closing does not wait for a server that is still being asked."""
    async with using(p=plain("--mute", start_timeout=60)) as call:
        listing = asyncio.create_task(call.toolbox.definitions())
        await asyncio.sleep(0.5)
        started = time.monotonic()
    assert time.monotonic() - started < 8
    await asyncio.wait({listing}, timeout=5)
    assert listing.done()


async def test_sessions_are_closed_in_any_order_from_any_task() -> None:
    """Sessions opened by one task may be closed by another, one after the other or at once."""
    async with using(a=plain(), b=plain()) as call:
        await asyncio.create_task(call("b/echo"))
        await asyncio.create_task(call("a/echo"))
        await asyncio.create_task(call.toolbox.close())
        assert (await call("a/echo")).content == "{}"


async def test_secret_reaches_the_server_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is resolved for the server and is in no failure; the worker's environment is not handed on."""
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    script = "echo token $TOKEN >&2; exit 1"
    servers = {
        "p": plain(env={"TOKEN": "env:MY_TOKEN"}),
        "dies": McpServerSpec(command=["sh", "-c", script], env={"TOKEN": "env:MY_TOKEN"}),
    }
    async with using(**servers) as call:
        told = str((await call("p/environment", {"name": "TOKEN"})).content)
        assert told.startswith("hunter2-hunter2 ")
        assert str((await call("p/environment", {"name": "MY_TOKEN"})).content).startswith("None ")
        why = (await call.toolbox.catalog()).failures["dies"]
        assert "token [secret]" in why
        assert "hunter2" not in why


async def test_server_runs_in_its_folder(tmp_path: Path) -> None:
    """A command runs where the configuration says."""
    async with using(p=plain(cwd=str(tmp_path))) as call:
        assert str((await call("p/environment", {"name": "X"})).content).endswith(f" in {tmp_path}")


# --- streamable HTTP -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_http_server_is_listed_and_called(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server behind an address gets its headers, secrets among them, and answers as one over stdio."""
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    port = free_port()
    with http_server(port, *options):
        spec = McpServerSpec(url=f"http://127.0.0.1:{port}/mcp", headers={"x-token": "Bearer env:MY_TOKEN"})
        async with using(web=spec) as call:
            assert "mcp:web/count" in await call.definitions()
            assert (await call("web/header")).content == "Bearer hunter2-hunter2"
            image = await call("web/image", {"size": 3_000_000})
            assert image.files[0].size == 3_000_000


async def test_http_server_that_restarted_is_greeted_again(tmp_path: Path) -> None:
    """After a restart the session is opened once more, and the call is executed exactly once."""
    port = free_port()
    journal = tmp_path / "j"
    options = ("--journal", str(journal))
    async with using(web=McpServerSpec(url=f"http://127.0.0.1:{port}/mcp")) as call:
        with http_server(port, *options):
            assert (await call("web/count")).content == "count"
        with http_server(port, *options):
            several = await asyncio.gather(*(call("web/count") for _ in range(4)))
            assert [outcome.content for outcome in several] == ["count"] * 4
    assert journal_of(journal).count("call count") == 5


@pytest.mark.parametrize("greeted", [False, True])
async def test_http_server_that_is_down_surely_executed_nothing(greeted: bool) -> None:
    """A server that cannot be reached fails the call, retryable, and says that nothing can have happened."""
    port = free_port()
    async with using(web=McpServerSpec(url=f"http://127.0.0.1:{port}/mcp")) as call:
        if greeted:
            with http_server(port):
                assert (await call("web/count")).content == "count"
        with pytest.raises(ApplicationError, match="ConnectError") as raised:
            await call("web/count")
    assert raised.value.type == "tool_unreachable"
    assert raised.value.details == ({"not_applied": True},)


async def test_http_server_that_comes_back_in_time_is_reached(tmp_path: Path) -> None:
    """A short absence of the server is waited out within the call, since nothing was sent."""
    port = free_port()
    go, journal = tmp_path / "go", tmp_path / "j"
    command = [
        sys.executable,
        str(SERVERS / "web.py"),
        str(port),
        "--after",
        str(go),
        "--journal",
        str(journal),
    ]
    async with using(web=McpServerSpec(url=f"http://127.0.0.1:{port}/mcp")) as call:
        process = subprocess.Popen(command)
        try:
            await until(lambda: "ready" in journal_of(journal), 60)
            calling = asyncio.create_task(call("web/count"))
            await asyncio.sleep(0.1)
            go.touch()
            assert (await calling).content == "count"
        finally:
            process.kill()
            process.wait()
    assert journal_of(journal).count("call count") == 1


async def test_http_server_that_exits_in_a_call_is_not_waited_for(tmp_path: Path) -> None:
    """A call whose server ends fails at once, retryable, and is not repeated by us."""
    port = free_port()
    journal = tmp_path / "j"
    async with using(web=McpServerSpec(url=f"http://127.0.0.1:{port}/mcp")) as call:
        with http_server(port, "--journal", str(journal)):
            await call("web/count")
            started = time.monotonic()
            with pytest.raises(ApplicationError, match="may or may not have happened") as raised:
                await call("web/exiting")
            assert time.monotonic() - started < 10
            assert raised.value.details == ()
    assert journal_of(journal) == ["ready", "call count", "call exiting"]


async def test_failing_http_call_leaves_the_others_alone(tmp_path: Path) -> None:
    """One call that times out ends neither the session nor its siblings, and is cancelled at the server."""
    port = free_port()
    journal = tmp_path / "j"
    spec = McpServerSpec(url=f"http://127.0.0.1:{port}/mcp", timeout=2)
    with http_server(port, "--journal", str(journal)):
        async with using(web=spec) as call:
            await call("web/count")
            long = asyncio.create_task(call("web/waiting", {"seconds": 30}))
            await until(lambda: "call waiting" in journal_of(journal))
            short = await call("web/waiting", {"seconds": 1})
            assert short.content == "waited"
            with pytest.raises(ApplicationError, match="did not answer within 2 s"):
                await long
            await until(lambda: "cancelled" in journal_of(journal))
            assert (await call("web/count")).content == "count"


@pytest.mark.parametrize(("status", "words"), [(401, "HTTP 401"), (500, "HTTP 500"), (404, "HTTP 404")])
async def test_http_refusal_is_named_by_its_status(status: int, words: str) -> None:
    """A server that refuses to talk is named with the status, not with its page."""
    port = free_port()
    with http_server(port, "--status", str(status)):
        async with using(web=McpServerSpec(url=f"http://127.0.0.1:{port}/mcp")) as call:
            why = (await call.toolbox.catalog()).failures["web"]
    assert words in why
    assert "go away" not in why


# --- the specification -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either a command or a url"),
        ({"command": ["x"], "url": "http://x"}, "either a command or a url"),
        ({"url": "x"}, "http://"),
        ({"url": "http://x", "env": {"A": "b"}}, "belong to a command"),
        ({"command": ["x"], "headers": {"a": "b"}}, "belong to a url"),
        ({"command": ["x"], "timeout": 0}, "timeout"),
        ({"command": ["x"], "declare": {"*": {"effect": "read"}}}, "effect"),
    ],
)
def test_specification_is_checked(given: dict[str, Any], words: str) -> None:
    """A server that cannot be reached as configured is refused when the configuration is read."""
    with pytest.raises(ValidationError, match=words):
        McpServerSpec.model_validate(given)


def test_command_may_be_one_word() -> None:
    """A command without arguments may be written as text; durations as words."""
    spec = McpServerSpec.model_validate({"command": "server", "args": ["-x"], "timeout": "2m"})
    assert (spec.command, spec.args, spec.timeout) == (("server",), ("-x",), 120.0)


async def test_plain_activity_serves_the_same_tools() -> None:
    """Where the worker's dynamic activity is the user's, one plain activity calls tools by name."""
    async with using(p=plain()) as call:
        environment = call.environment("p/echo")
        result = await environment.run(call.toolbox.call_tool, "mcp:p/echo", {"a": 1})
        assert result == {"content": '{"a": 1}'}
