"""Arming, as Temporal runs it: what is recorded, and what is refused before anything is paid for."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from mainspring.activities.arm import CATALOG_BYTES_MAX, ArmActivity
from mainspring.activities.arm_catalog import PAGE_BYTES_MAX
from mainspring.activities.attributes import ATTRIBUTES, probed
from mainspring.activities.blobs import BlobStore
from mainspring.activities.tools import Catalog, Toolbox
from mainspring.activities.transcript import ProcessCache
from mainspring.embedded import SEARCH_ATTRIBUTES, Server, binary, free_port
from mainspring.schemas.activities import Armed, ArmRequest, CatalogPage
from mainspring.schemas.base import unwire
from mainspring.schemas.config import Config
from mainspring.schemas.errors import CATALOG_UNAVAILABLE, INVALID_INPUT
from mainspring.schemas.tools import BlobRef, ToolDeclaration, ToolDefinition
from mainspring.tools import tool
from mainspring.workflows.intrinsics import SERVED

SCRIPT = "replies: [{text: hi}]\nprice: {input: 1.0, output: 2.0}\n"
UNPRICED = "replies: [{text: hi}]\n"


@tool(effects="read")
def lookup(city: str) -> str:
    """Current weather of a city."""
    return city


@tool(name="billing/refund", effects="write")
def refund(cents: int) -> str:
    """Give money back."""
    return str(cents)


@dataclass(frozen=True)
class Fixed:
    """A source of tools that says what it is told to say."""

    said: Catalog

    async def catalog(self) -> Catalog:
        """What it was told."""
        return self.said


class Bench:
    """One worker's arming, without a worker."""

    def __init__(self, folder: Path, config: dict[str, Any], said: Catalog | None = None) -> None:
        (folder / "priced.yaml").write_text(SCRIPT)
        (folder / "plain.yaml").write_text(UNPRICED)
        models = {
            "default": {"script": str(folder / "priced.yaml")},
            "plain": {"script": str(folder / "plain.yaml")},
            **config.pop("models", {}),
        }
        agents = {"guide": {"tools": ["lookup", "billing/*", "nika:done"]}, **config.pop("agents", {})}
        self.config = Config.model_validate({"models": models, "agents": agents, **config})
        self.cache = ProcessCache()
        self.blobs = BlobStore(str(folder / "blobs"))
        box = Toolbox([lookup, refund], blobs=self.blobs, cache=self.cache, files_root=folder)
        self.arming = ArmActivity(self.config, Fixed(said) if said else box, self.cache, self.blobs)

    async def arm(self, client: Client | None = None, **run: Any) -> Armed:
        """The record of a run."""
        request = unwire(ArmRequest, {"input": {"agent": "guide", "prompt": "go", **run}})
        result = await ActivityEnvironment(client=client).run(self.arming.arm, request)
        json.dumps(result, allow_nan=False).encode()
        return unwire(Armed, result)

    async def refused(self, **run: Any) -> ApplicationError:
        """The refusal of a run."""
        with pytest.raises(ApplicationError) as raised:
            await self.arm(**run)
        return raised.value


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Two Python tools, a priced and an unpriced scripted model."""
    return Bench(tmp_path, {})


def catalog(*names: str, **more: Any) -> Catalog:
    """A catalog of tools of these names."""
    tools = tuple(ToolDefinition(declaration=ToolDeclaration(name=name)) for name in names)
    return Catalog(tools=tools, **more)


# --- what is recorded ---


async def test_agent_is_recorded_with_its_overrides(bench: Bench) -> None:
    """The record holds the agent as the run changed it, under the agent's name."""
    armed = await bench.arm(overrides={"budgets": {"turns": 7}, "instructions": "Be brief."})
    assert (armed.agent, armed.spec.budgets.turns, armed.spec.instructions) == ("guide", 7, "Be brief.")


async def test_inline_agent_is_recorded_as_inline(bench: Bench) -> None:
    """An agent that is written into the run needs no configuration."""
    armed = await bench.arm(agent={"instructions": "x", "tools": ["lookup"]})
    assert (armed.agent, [tool.name for tool in armed.tools or ()]) == ("inline", ["lookup"])


async def test_catalog_holds_what_is_admitted_by_name(bench: Bench) -> None:
    """Admitted tools and the intrinsics that are granted, sorted by name, and nothing else."""
    armed = await bench.arm()
    assert [tool.name for tool in armed.tools or ()] == ["billing/refund", "lookup", "nika:done"]
    assert (await bench.arm(overrides={"tools": []})).tools == ()


async def test_output_schema_is_that_of_done(bench: Bench) -> None:
    """The result of `nika:done` must meet the agent's output schema."""
    armed = await bench.arm(overrides={"output_schema": {"type": "integer"}})
    done = next(tool for tool in armed.tools or () if tool.name == "nika:done")
    assert done.input_schema["properties"] == {"result": {"type": "integer"}}


async def test_same_input_has_the_same_digest(bench: Bench, tmp_path: Path) -> None:
    """The digest depends on spec, models and catalog: on all of them, and on nothing else."""
    first = await bench.arm()
    assert first.digest == (await bench.arm(prompt="other")).digest
    assert len(first.digest) == 16
    others = [
        await bench.arm(overrides={"budgets": {"turns": 7}}),
        await bench.arm(overrides={"model": "plain"}),
        await bench.arm(overrides={"tools": ["lookup"]}),
    ]
    (tmp_path / "priced.yaml").write_text(SCRIPT + "then: repeat_last\n")
    others.append(await bench.arm())
    assert len({first.digest, *(armed.digest for armed in others)}) == 5


async def test_digest_survives_the_wire(bench: Bench) -> None:
    """A record that was read back from history, armed by another worker, has the digest of the first."""
    armed = await bench.arm()
    again = await bench.arm(agent=armed.spec.model_dump(mode="json"))
    assert again.digest == armed.digest


async def test_record_is_put_into_the_cache(bench: Bench) -> None:
    """The first model call of this process asks the run for nothing."""

    class Nobody:
        async def transcript(self, start: int, limit: int) -> list[dict[str, Any]]:
            raise AssertionError

        async def armed(self) -> dict[str, Any]:
            raise AssertionError

    armed = await bench.arm()
    assert await bench.cache.armed(armed.digest, Nobody()) == armed


async def test_script_is_read_anew_for_each_run(bench: Bench, tmp_path: Path) -> None:
    """A script that changes is picked up by the next run; the record holds its content."""
    assert (await bench.arm()).models[0].script == {
        "replies": [{"text": "hi"}],
        "price": {"input": 1.0, "output": 2.0},
    }
    (tmp_path / "priced.yaml").write_text("replies: [{text: new}]")
    assert (await bench.arm()).models[0].script == {"replies": [{"text": "new"}]}


async def test_fallbacks_follow_in_order_once_each(tmp_path: Path) -> None:
    """The model, its fallbacks, and theirs; a model that is reached twice is used once."""
    models = {
        "a": {"model": "openai:gpt-5-mini", "fallback": ["b", "c"]},
        "b": {"model": "x:y", "fallback": "c"},
        "c": "x:z",
    }
    bench = Bench(tmp_path, {"models": models})
    armed = await bench.arm(overrides={"model": "a"})
    assert [(model.name, model.priced) for model in armed.models] == [("a", True), ("b", False), ("c", False)]


# --- what is refused ---

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"agent": "giude"}, "agent: 'giude': no such agent in the worker's configuration; did you mean guide?"),
    ({"overrides": {"model": "defualt"}}, "model: 'defualt': no such model is configured; did you mean"),
    ({"agent": {"model": "gpt"}}, "model: 'gpt': no such model is configured; known: default, plain"),
    ({"overrides": {"limits": {"dept": 4}}}, "overrides.limits: 'dept': there is no such limit"),
    ({"overrides": {"tools": ["lookpu"]}}, "tools: 'lookpu': there is no tool of that name; did you mean"),
    ({"overrides": {"tools": ["biling/*"]}}, "there is no group of tools 'biling'; did you mean billing?"),
    ({"overrides": {"tools": ["mcp:git/*"]}}, "there is no MCP server 'git'; there are none"),
    (
        {"overrides": {"model": "plain", "budgets": {"dollars": 0.5}}},
        "budgets.dollars: 0.5: the price of the model 'plain' (script) is not known",
    ),
    ({"overrides": {"output_schema": {"$ref": "http://127.0.0.1:9/x"}}}, "$ref 'http://127.0.0.1:9/x'"),
    ({"attachments": [{"data": "no base64!"}]}, "attachments[0].data: it is not base64"),
    ({"attachments": [{"name": "a.png"}]}, "attachments[0]: 'a.png': give either `data`"),
    ({"attachments": [{"data": "QUJD" * 30_000}] * 5}, "600000 bytes are inline; at most 524288"),
    ({"criteria": [1]}, "criteria: [1]: this version cannot do that yet"),
]  # fmt: skip


@pytest.mark.parametrize(("run", "words"), REFUSALS)
async def test_refusal_names_field_value_and_what_is_allowed(
    bench: Bench, run: dict[str, Any], words: str
) -> None:
    """A run that cannot be is refused at once: typed, not to be retried, in words for its caller."""
    error = await bench.refused(**run)
    assert words in error.message
    assert (error.type, error.non_retryable) == (INVALID_INPUT, True)


async def test_several_faults_are_told_at_once(bench: Bench) -> None:
    """One refusal lists everything that can be known without the tools."""
    error = await bench.refused(criteria=[1], overrides={"model": "x", "tools": ["a:b"]})
    assert len(error.message.splitlines()) == 3


async def test_refusal_is_bounded(bench: Bench) -> None:
    """A thousand faults are no message of a megabyte."""
    error = await bench.refused(overrides={"tools": [f"agent{n}:x" for n in range(1_000)]})
    assert len(error.message) <= 4_000


async def test_missing_secret_is_named_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose secret this worker lacks is refused by the secret's name; one that it has is no news."""
    monkeypatch.delenv("MAINSPRING_TEST_KEY", raising=False)
    models = {"m": {"model": "openai:gpt-5-mini", "api_key": "env:MAINSPRING_TEST_KEY"}}
    bench = Bench(tmp_path, {"models": models})
    error = await bench.refused(overrides={"model": "m"})
    assert "models.m.api_key: the secret env:MAINSPRING_TEST_KEY is not set" in error.message
    monkeypatch.setenv("MAINSPRING_TEST_KEY", "TOPSECRET")
    armed = await bench.arm(overrides={"model": "m"})
    assert "TOPSECRET" not in armed.model_dump_json()
    assert armed.models[0].api_key == "env:MAINSPRING_TEST_KEY"


async def test_dollars_need_a_price_for_every_fallback(tmp_path: Path) -> None:
    """A fallback that cannot be counted is refused as the model itself would be."""
    models = {"m": {"script": str(tmp_path / "priced.yaml"), "fallback": "plain"}}
    bench = Bench(tmp_path, {"models": models})
    error = await bench.refused(overrides={"model": "m", "budgets": {"dollars": 1}})
    assert "the price of the model 'plain'" in error.message
    assert (await bench.arm(overrides={"budgets": {"dollars": 1}})).models[0].priced


async def test_fallbacks_without_end_are_refused(tmp_path: Path) -> None:
    """A chain of fallbacks is bounded, also where many paths lead through it and every script is broken."""
    (tmp_path / "broken.yaml").write_text("nothing: 1")
    names = [f"m{n:02}" for n in range(40)]
    script = str(tmp_path / "broken.yaml")
    models = {n: {"script": script, "fallback": names[i + 1 : i + 17]} for i, n in enumerate(names)}
    error = await Bench(tmp_path, {"models": models}).refused(overrides={"model": "m00"})
    assert "more than 15 fallbacks in all" in error.message


async def test_fallbacks_in_a_circle_are_refused(tmp_path: Path) -> None:
    """A configuration made in Python gets the check that a file gets."""
    models = {"a": {"model": "x:y", "fallback": "b"}, "b": {"model": "x:y", "fallback": "a"}}
    error = await Bench(tmp_path, {"models": models}).refused(overrides={"model": "a"})
    assert "falls back in a circle: a → b → a" in error.message


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("replies: [{txt: hi}]", "priced.yaml:1:12: replies[0].txt: unknown key 'txt'; did you mean 'text'?"),
        ("replies: [{text: hi, text: ho}]", "priced.yaml:1:22: the key 'text' appears twice"),
        ("", "priced.yaml:1:1: the file is empty"),
        ("replies: []", "a script has at least one reply"),
        (f"replies: [{{text: {'x' * 300_000}}}]", "at most 262144"),
    ],
)
async def test_faulty_script_is_refused_with_its_place(
    bench: Bench, tmp_path: Path, script: str, words: str
) -> None:
    """A script that cannot be used fails the run before it starts, with file, line and column."""
    (tmp_path / "priced.yaml").write_text(script)
    assert words in (await bench.refused()).message


async def test_script_that_is_gone_is_refused(bench: Bench, tmp_path: Path) -> None:
    """A file that was there when the worker started may be gone when a run starts."""
    (tmp_path / "priced.yaml").unlink()
    assert "cannot be read" in (await bench.refused()).message


async def test_attachment_must_be_in_the_blob_store(bench: Bench) -> None:
    """A blob that nobody can show to a model is refused; one that is there passes."""
    blob = await bench.blobs.put(b"picture", "image/png")
    assert await bench.arm(attachments=[{"media_type": "image/png", "blob": blob.model_dump()}])
    data = base64.b64encode(b"x").decode()
    assert await bench.arm(attachments=[{"media_type": "image/png", "data": data}])
    missing = {"digest": "blake2b:" + "0" * 64, "size": 3}
    error = await bench.refused(attachments=[{"blob": missing}])
    assert "attachments[0].blob: 'blake2b:000" in error.message
    assert "BlobMissing" in error.message


async def test_half_a_character_is_refused(bench: Bench) -> None:
    """Text that no payload can carry is the caller's, not a crash."""
    assert "half of a character" in (await bench.refused(overrides={"instructions": "a\ud800"})).message


# --- sources of tools ---


@pytest.mark.parametrize(
    ("patterns", "required", "refused"),
    [
        (["mcp:git/*"], (), True),
        (["mcp:*/*"], (), False),
        (["mcp:*/*"], ("git",), True),
        (["lookup"], ("git",), False),
        (["lookup"], (), False),
    ],
)
async def test_server_that_cannot_be_read(
    tmp_path: Path, patterns: list[str], required: Sequence[str], refused: bool
) -> None:
    """It fails a run that names it or must have it; otherwise it is a note, if it concerns the run."""
    said = catalog("lookup", failures={"git": "no such program"}, required=tuple(required))
    bench = Bench(tmp_path, {"mcp": {"git": {"command": ["none"]}}}, said)
    if refused:
        error = await bench.refused(overrides={"tools": patterns})
        assert (error.type, error.non_retryable) == (CATALOG_UNAVAILABLE, False)
        assert "MCP server git: no such program" in error.message
    else:
        armed = await bench.arm(overrides={"tools": patterns})
        noted = [note for note in armed.notes if "no such program" in note]
        assert len(noted) == (patterns != ["lookup"])


async def test_names_of_intrinsics_cannot_be_taken(tmp_path: Path) -> None:
    """A tool that calls itself as one of ours is dropped with a note, and ours stands."""
    bench = Bench(tmp_path, {}, catalog("nika:done", "nika:recall", "lookup"))
    armed = await bench.arm(overrides={"tools": ["**"]})
    assert [(t.name, t.declaration.source) for t in armed.tools or ()] == [
        ("lookup", "python"),
        *((name, "intrinsic") for name in sorted(SERVED)),
    ]
    assert sum("the name is that of a built-in tool" in note for note in armed.notes) == 2


async def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of them was meant is unknown."""
    error = await Bench(tmp_path, {}, catalog("lookup", "lookup")).refused(overrides={"tools": ["lookup"]})
    assert "tools: 'lookup': two tools have that name" in error.message


async def test_tool_that_needs_approval_is_refused_when_admitted(tmp_path: Path) -> None:
    """Approvals are not served yet: such a tool fails the runs that could call it, and no others."""
    gated = ToolDefinition(declaration=ToolDeclaration(name="pay", approval="always"))
    said = Catalog(tools=(*catalog("lookup").tools, gated))
    bench = Bench(tmp_path, {}, said)
    assert "the tool pay asks for approval" in (await bench.refused(overrides={"tools": ["*"]})).message
    assert await bench.arm(overrides={"tools": ["lookup"]})


async def test_pattern_without_a_match_today_is_a_note(bench: Bench) -> None:
    """It may match tomorrow."""
    armed = await bench.arm(overrides={"tools": ["lookup", "zz*"]})
    assert armed.notes[0] == "the pattern 'zz*' matches no tool today"


async def test_enormous_definition_is_left_out(tmp_path: Path) -> None:
    """One tool whose schema is a book does not stop the others."""
    book = ToolDefinition(declaration=ToolDeclaration(name="book", description="x" * 300_000))
    bench = Bench(tmp_path, {}, Catalog(tools=(*catalog("lookup").tools, book)))
    armed = await bench.arm(overrides={"tools": ["*"]})
    assert [tool.name for tool in armed.tools or ()] == ["lookup"]
    assert armed.notes[0].startswith("book, left out: its definition takes 300")


# --- a large catalog ---


def large(count: int, characters: int) -> Catalog:
    """Tools with long descriptions."""
    return Catalog(
        tools=tuple(
            ToolDefinition(
                declaration=ToolDeclaration(name=f"t{n:05}", description=f"{n}" + "é" * characters)
            )
            for n in reversed(range(count))
        )
    )


async def test_large_catalog_lies_in_the_blob_store(tmp_path: Path) -> None:
    """Beyond 512 KiB the record names a blob and its pages; the pages hold every declaration, in order."""
    bench = Bench(tmp_path, {}, large(3_000, 200))
    armed = await bench.arm(overrides={"tools": ["*"]})
    assert (armed.tools, armed.catalog_pages) == (None, 3)
    assert armed.catalog_blob is not None
    stored = unwire(tuple[ToolDefinition, ...], json.loads(await bench.blobs.get(armed.catalog_blob)))
    pages = [await page_of(bench, armed.catalog_blob, page) for page in range(armed.catalog_pages)]
    assert [tool for page in pages for tool in page.tools] == [tool.declaration for tool in stored]
    assert [tool.name for tool in stored] == [f"t{n:05}" for n in range(3_000)]
    for page in pages:
        assert len(page.model_dump_json(exclude_defaults=True).encode()) <= PAGE_BYTES_MAX


async def test_pages_hold_the_beginnings_of_long_descriptions(tmp_path: Path) -> None:
    """Whatever descriptions weigh, pages take a few MB of history; the blob has them whole, in characters."""
    bench = Bench(tmp_path, {}, large(300, 100_000))
    armed = await bench.arm(overrides={"tools": ["*"]})
    pages = [await page_of(bench, armed.catalog_blob, page) for page in range(armed.catalog_pages)]
    declared = [tool for page in pages for tool in page.tools]
    assert armed.catalog_blob is not None
    stored = unwire(tuple[ToolDefinition, ...], json.loads(await bench.blobs.get(armed.catalog_blob)))
    assert sum(len(page.model_dump_json().encode()) for page in pages) < 9_000_000
    assert [tool.name for tool in declared] == [tool.name for tool in stored]
    for whole, begun in zip(stored, declared, strict=True):
        assert len(whole.declaration.description) > 100_000
        assert len(begun.description) > 5_000
        assert whole.declaration.description.startswith(begun.description)


async def test_tool_with_half_of_a_character_is_left_out(tmp_path: Path) -> None:
    """One such description does not keep the other tools from a run, and is named."""
    said = catalog("lookup")
    odd = ToolDefinition(declaration=ToolDeclaration(name="odd", description="half \ud800 of it"))
    bench = Bench(tmp_path, {}, Catalog(tools=(*said.tools, odd)))
    armed = await bench.arm(overrides={"tools": ["*"]})
    assert [tool.name for tool in armed.tools or ()] == ["lookup"]
    assert "odd, left out: it holds half of a character" in armed.notes


async def page_of(bench: Bench, blob: BlobRef | None, page: int) -> CatalogPage:
    """One page, as the workflow asks for it."""
    return unwire(CatalogPage, await ActivityEnvironment().run(bench.arming.catalog_page, blob, page))


async def test_catalog_up_to_the_bound_is_in_the_record(tmp_path: Path) -> None:
    """A catalog just below 512 KiB is recorded whole."""
    bench = Bench(tmp_path, {}, large(CATALOG_BYTES_MAX // 1_100, 500))
    armed = await bench.arm(overrides={"tools": ["*"]})
    assert armed.tools is not None
    assert armed.catalog_blob is None


async def test_large_catalog_has_the_digest_of_its_content(tmp_path: Path) -> None:
    """Where the catalog lies does not matter to the digest, and another catalog has another one."""
    first = await Bench(tmp_path, {}, large(3_000, 200)).arm(overrides={"tools": ["*"]})
    again = await Bench(tmp_path, {}, large(3_000, 200)).arm(overrides={"tools": ["*"]})
    other = await Bench(tmp_path, {}, large(3_001, 200)).arm(overrides={"tools": ["*"]})
    assert first.digest == again.digest != other.digest


@pytest.mark.parametrize(
    ("blob", "page"),
    [(None, 0), (BlobRef(digest="blake2b:" + "0" * 64, size=3), 0), (BlobRef(digest="../x", size=3), 0)],
)
async def test_page_that_cannot_be_had_is_catalog_unavailable(
    bench: Bench, blob: BlobRef | None, page: int
) -> None:
    """A catalog that cannot be found again is a typed error that Temporal may retry."""
    with pytest.raises(ApplicationError) as raised:
        await page_of(bench, blob, page)
    assert (raised.value.type, raised.value.non_retryable) == (CATALOG_UNAVAILABLE, False)


async def test_record_that_history_cannot_hold_is_refused(tmp_path: Path) -> None:
    """Spec and scripts beyond what one payload carries are refused in words."""
    text = f"replies: [{{text: {'x' * 250_000}}}]"
    models = {}
    for n in range(7):
        (tmp_path / f"s{n}.yaml").write_text(text)
        models[f"m{n}"] = {"script": str(tmp_path / f"s{n}.yaml"), "fallback": [f"m{n + 1}"] if n < 6 else []}
    error = await Bench(tmp_path, {"models": models}).refused(overrides={"model": "m0"})
    assert "at most 1500000 are recorded" in error.message


# --- search attributes ---


async def test_registered_search_attributes_are_recorded(bench: Bench, server: Server) -> None:
    """A server that has all of ours with their types is told so; the embedded server is such a one."""
    assert ATTRIBUTES.keys() == SEARCH_ATTRIBUTES.keys()
    client = await Client.connect(server.address)
    assert (await bench.arm(client)).search_attributes == tuple(ATTRIBUTES)
    assert await probed(client) == tuple(ATTRIBUTES)


async def test_no_server_means_no_search_attributes(bench: Bench, server: Server) -> None:
    """Where it cannot be found out, none is used: upserting an unknown one would wedge the run."""
    assert (await bench.arm()).search_attributes == ()
    elsewhere = await Client.connect(server.address, namespace="nowhere")
    assert (await bench.arm(elsewhere)).search_attributes == ()


@pytest_asyncio.fixture
async def other_server(tmp_path: Path) -> AsyncIterator[Client]:
    """A server on which one of ours is missing and one has another type."""
    port = free_port()
    given = [("MainspringAgent", "Keyword"), ("MainspringTurns", "Keyword"), ("MainspringTokens", "Int")]
    command = [
        str(binary()),
        "server",
        "start-dev",
        "--headless",
        "--port",
        str(port),
        "--log-level",
        "error",
    ]
    for name, kind in given:
        command += ["--search-attribute", f"{name}={kind}"]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # ends with the test
    try:
        yield await _connected(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(20)


async def _connected(address: str) -> Client:
    for _ in range(150):
        try:
            client = await Client.connect(address)
            await client.count_workflows("MainspringAgent = 'x'")
        except Exception:
            await asyncio.sleep(0.2)
            continue
        return client
    raise AssertionError("the server did not start")


async def test_only_attributes_of_the_right_type_count(bench: Bench, other_server: Client) -> None:
    """A name with another type, or that is not registered, is left out."""
    assert (await bench.arm(other_server)).search_attributes == ("MainspringAgent", "MainspringTokens")
    assert "MainspringStatus" not in await probed(other_server)
