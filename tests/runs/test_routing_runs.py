"""The router in real runs: what is sent is what was decided, and what was decided is told.

Source: shared design, loop.md "Router"; field-faults.md, group I.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import Case, events_named
from mainspring.tools import tool
from support.chat_server import ChatServer, calling, chat_server, saying
from support.invariants import serving, transcript_of

TOOLS_SERVER = Path(__file__).parent.parent / "servers" / "tools.py"
WORDS = """
invoice order customer parcel contract meeting salary warehouse vehicle recipe garden library painting
telescope volcano orchestra bicycle passport glacier lantern compass harbour saddle anvil violin mirror candle
feather ribbon marble
"""
THINGS = WORDS.split()


def made(name: str, description: str, **declared: Any) -> Any:
    """A tool that only says its name."""

    async def answer() -> str:
        return f"{name} answered"

    return tool(name=name, description=description, **declared)(answer)


MANY = [made(f"{thing}_lookup", f"Look up the {thing}.", effects="read") for thing in THINGS]


@asynccontextmanager
async def over_http(
    server: Server, *replies: Any, functions: Any = MANY, config: Any = None, **agent: Any
) -> AsyncIterator[tuple[ChatServer, Case]]:
    """A provider, and an agent whose model it is."""
    async with chat_server(replies) as provider:
        models = {"http": {"model": "openai-chat:m", "base_url": provider.base_url}}
        options: dict[str, Any] = {
            "agent": {"model": "http", **agent},
            "config": {"models": models, **(config or {})},
        }
        async with serving(server.address, tools=functions, **options) as case:
            yield provider, case


def sent(provider: ChatServer) -> list[list[str]]:
    """The names of the tools in each request."""
    requests = [json.loads(body) for body in provider.bodies]
    return [[item["function"]["name"] for item in request.get("tools", [])] for request in requests]


async def selected(case: Any) -> list[tuple[int, int]]:
    """Offered and universe of each turn of the only run."""
    events = await case.events(case.again(case.started[0]))
    return [(event["offered"], event["universe"]) for event in events_named(events, "ToolsSelected")]


async def test_routing_narrows_what_is_sent_and_telemetry_equals_it(server: Server) -> None:
    """With thirty tools the request lists those that the words are about, and the event says how many."""
    replies = [calling(("invoice_lookup", "{}")), saying("ok")]
    async with over_http(server, *replies) as (provider, case):
        run = await case.start("Find the invoice of the customer")
        assert (await run.result()).answer == "ok"
        told = await selected(case)
        why = [(await run.explain(turn))["offered"] for turn in (1, 2)]
    assert [len(names) for names in sent(provider)] == [offered for offered, _ in told]
    assert {universe for _, universe in told} == {30}
    assert "invoice_lookup" in sent(provider)[0]
    assert all(len(names) <= 12 + 1 for names in sent(provider))
    assert [item["why"] for item in why] == ["ranked", "ranked"]
    assert why[0]["ranked"][0]["name"] in ("invoice_lookup", "customer_lookup")
    assert [names for names in sent(provider)] == [item["names"] for item in why]


async def test_nothing_in_common_offers_everything(server: Server) -> None:
    """Zero overlap fails open: a crowded model is better than a blind one."""
    async with over_http(server, saying("ok")) as (provider, case):
        await (await case.start("Привет, как дела?")).result()
        assert await selected(case) == [(30, 30)]
    assert len(sent(provider)[0]) == 30


async def test_small_catalog_is_sent_whole_and_byte_identical(server: Server) -> None:
    """Below the threshold nothing is ranked, and the tools of every request are the same bytes."""
    replies = [calling(("garden_lookup", "{}")), calling(("saddle_lookup", "{}")), saying("ok")]
    few = [tool for tool in MANY if tool.name.startswith(("garden", "saddle", "invoice"))]
    async with over_http(server, *replies, functions=few) as (provider, case):
        await (await case.start("Find the invoice")).result()
        assert await selected(case) == [(3, 3)] * 3
    heads = [json.dumps(json.loads(body)["tools"]) for body in provider.bodies]
    assert len(set(heads)) == 1


async def test_prefix_is_byte_identical_while_the_offer_does_not_change(server: Server) -> None:
    """Two turns with the same offer send the same tools and instructions, byte for byte."""
    same = calling(("invoice_lookup", "{}"), text="The invoice.")
    async with over_http(server, same, same, saying("ok")) as (provider, case):
        run = await case.start("Find the invoice")
        await run.result()
        offers = [(await run.explain(turn))["offered"]["names"] for turn in (2, 3)]
    assert offers[0] == offers[1]
    second, third = (json.loads(body) for body in provider.bodies[1:])
    assert json.dumps(second["tools"]) == json.dumps(third["tools"])
    assert second["messages"] == third["messages"][: len(second["messages"])]


async def test_tool_outside_the_offer_runs_and_is_offered_for_two_turns(server: Server) -> None:
    """I10: a model may call what it was offered before, or never; it counts as used."""
    replies = [
        calling(("volcano_lookup", "{}")),
        calling(("invoice_lookup", "{}")),
        calling(("invoice_lookup", "{}")),
        calling(("invoice_lookup", "{}")),
        saying("ok"),
    ]
    guard = {"nudge_after": 90, "stall_after": 90}
    async with over_http(server, *replies, guard=guard) as (provider, case):
        run = await case.start("Find the invoice")
        await run.result()
        seen = [e for e in await transcript_of(case, run) if e["kind"] == "observation"]
    assert seen[0]["content"] == "volcano_lookup answered"
    assert ["volcano_lookup" in names for names in sent(provider)][:4] == [False, True, True, False]


async def test_pins_and_intrinsics_come_on_top_of_the_twelve(server: Server) -> None:
    """A pinned tool, a core tool and the loop's own are in every offer."""
    core = made("heartbeat", "Beats.", effects="read", core=True)
    words = "look up the " + " ".join(THINGS[:20])
    agent: dict[str, Any] = {"tools": ["*", "nika:ask"], "routing": {"pin": ["marble_*"]}}
    async with over_http(server, saying("ok"), functions=[*MANY, core], **agent) as (provider, case):
        run = await case.start(words)
        await run.result()
        offered = (await run.explain(1))["offered"]
    assert {"marble_lookup", "heartbeat", "nika:ask"} <= set(offered["names"])
    assert (offered["count"], len(offered["ranked"])) == (15, 12)
    assert sent(provider)[0] == [name.replace("nika:ask", "nika__ask") for name in offered["names"]]


async def test_sticky_offer_only_grows_within_an_exchange(server: Server) -> None:
    """With `sticky` the tools of the first turn stay; a call outside of them and a search add to them."""
    replies = [
        calling(("volcano_lookup", "{}")),
        calling(("nika__find_tools", '{"query": "glacier"}')),
        saying("ok"),
    ]
    agent: dict[str, Any] = {"tools": ["*", "nika:find_tools"], "routing": {"sticky": True}}
    async with over_http(server, *replies, **agent) as (provider, case):
        run = await case.start("Find the invoice")
        await run.result()
    first, second, third = (set(names) for names in sent(provider))
    assert second - first == {"volcano_lookup"}
    assert third - second == {"glacier_lookup"}
    assert first < second < third


async def test_reply_that_is_sent_back_widens_a_sticky_offer(server: Server) -> None:
    """A gate's redo lets it grow by what ranks best now, for the words that the model has just said."""
    replies = [{"text": "I would need the telescope."}, {"text": "3"}]
    agent = {"routing": {"sticky": True}, "output_schema": {"type": "integer"}}
    async with serving(server.address, replies=replies, tools=MANY, agent=agent) as case:
        run = await case.start("Find the invoice")
        await run.result()
        first, second = [(await run.explain(turn))["offered"]["names"] for turn in (1, 2)]
    assert first == ["invoice_lookup"]
    assert sorted(second) == ["invoice_lookup", "telescope_lookup"]


async def test_each_exchange_has_its_own_offer_and_searches(server: Server) -> None:
    """What was sticky for one message is not kept for the next, and its searches are not held against it."""
    hunt = {"calls": [{"tool": "nika:find_tools", "arguments": {"query": "glacier"}}]}
    replies = [hunt, {"text": "ok"}, hunt, {"text": "again"}]
    agent = {"tools": ["*", "nika:find_tools"], "routing": {"sticky": True, "searches": 1}}
    async with serving(server.address, replies=replies, tools=MANY, agent=agent) as case:
        run = await case.start("Find the invoice", lifetime="conversation")
        assert await run.ask("Now the telescope") == "again"
        await run.finish()
        await run.result()
        offers = [(await run.explain(turn))["offered"]["names"] for turn in (1, 3)]
        seen = [e for e in await transcript_of(case, run) if e["kind"] == "observation"]
    assert ["invoice_lookup" in names for names in offers] == [True, False]
    assert ["telescope_lookup" in names for names in offers] == [False, True]
    assert [entry.get("is_error", False) for entry in seen] == [False, False]


async def test_search_offers_what_it_finds(server: Server) -> None:
    """What `nika:find_tools` finds is named as the model must call it, and offered from the next turn on."""
    replies = [
        calling(("nika__find_tools", '{"query": "look up a glacier"}')),
        calling(("glacier_lookup", "{}")),
        saying("ok"),
    ]
    async with over_http(server, *replies, tools=["*", "nika:find_tools"]) as (provider, case):
        run = await case.start("Find the invoice")
        await run.result()
        seen = [e for e in await transcript_of(case, run) if e["kind"] == "observation"]
    assert seen[0]["content"]["tools"][0]["name"] == "glacier_lookup"
    assert ["glacier_lookup" in names for names in sent(provider)] == [False, True, True]


async def test_search_for_what_is_not_there_says_so_and_is_bounded(server: Server) -> None:
    """I1: no plausible names for a tool that does not exist, and no hunting without end."""
    hunts = [
        {"calls": [{"tool": "nika:find_tools", "arguments": {"query": f"run shell command python {n}"}}]}
        for n in range(4)
    ]
    agent = {
        "tools": ["*", "nika:find_tools"],
        "routing": {"searches": 3},
        "guard": {"nudge_after": 90, "stall_after": 90},
    }
    async with serving(server.address, replies=[*hunts, {"text": "ok"}], tools=MANY, agent=agent) as case:
        run = await case.start("x")
        await run.result()
        seen = [e for e in await transcript_of(case, run) if e["kind"] == "observation"]
    assert seen[0]["content"]["tools"] == []
    assert "No tool does this" in seen[0]["content"]["note"]
    assert [entry["content"]["searches_left"] for entry in seen[:3]] == [2, 1, 0]
    assert seen[3]["is_error"]
    assert "No more searches" in seen[3]["content"]


async def test_searches_that_repeat_are_a_loop(server: Server) -> None:
    """I1: the same search again finds the same, however many searches are left: told once, then ended."""
    hunt = {"calls": [{"tool": "nika:find_tools", "arguments": {"query": "glacier"}}], "repeat": 5}
    agent = {"tools": ["*", "nika:find_tools"]}
    async with serving(server.address, replies=[hunt], tools=MANY, agent=agent) as case:
        run = await case.start()
        with pytest.raises(RunFailed, match="NIKA-467"):
            await run.result()
        told = events_named(await case.events(run), "Nudged", "Stalled")
    assert [(event["event"], event["turn"]) for event in told] == [("Nudged", 3), ("Stalled", 5)]


async def test_same_named_tools_of_two_servers_are_all_reachable(server: Server) -> None:
    """I9: two MCP servers and a Python tool, all `search`, are three tools in any order."""

    def server_of(text: str) -> dict[str, Any]:
        return {"command": [sys.executable, str(TOOLS_SERVER), f"search={text}"]}

    async def names(order: list[str]) -> tuple[list[str], list[Any]]:
        mcp = {name: server_of(f"Search {name}.") for name in order}
        replies = [
            calling(("search", "{}"), ("mcp__one__search", "{}"), ("mcp__two__search", "{}")),
            saying("ok"),
        ]
        own = [made("search", "Search here.", effects="read")]
        patterns = ["search", "mcp:*/*"]
        async with over_http(server, *replies, functions=own, config={"mcp": mcp}, tools=patterns) as (
            provider,
            case,
        ):
            run = await case.start("search")
            await run.result()
            seen = [e for e in await transcript_of(case, run) if e["kind"] == "observation"]
        return sent(provider)[0], [entry["content"] for entry in seen]

    listed, answers = await names(["one", "two"])
    again, _ = await names(["two", "one"])
    assert listed == again
    assert sorted(listed) == ["mcp__one__search", "mcp__two__search", "search"]
    assert answers == ["search answered", "server: search", "server: search"]


async def test_words_of_steering_choose_the_next_offer(server: Server) -> None:
    """The newest message of a person is the directive that tools are picked for."""
    replies = [{"calls": [{"tool": "invoice_lookup"}]}, {"text": "ok"}]
    slowly = [{**replies[0], "delay": 0.4, "text": "Looking at it now."}, replies[1]]
    async with serving(server.address, replies=slowly, tools=MANY) as case:
        run = await case.start("Find the invoice")
        await run.steer("No: the telescope!")
        await run.result()
        offers = [(await run.explain(turn))["offered"]["names"] for turn in (1, 2)]
    assert "telescope_lookup" in offers[1]


async def test_large_chinese_catalog_does_not_hold_up_a_workflow_task(server: Server) -> None:
    """Four hundred tools of four thousand characters each are indexed within the time of a workflow task."""
    characters = [[chr(0x4E00 + (i * 4_099 + k * k) % 20_000) for k in range(4_000)] for i in range(400)]
    tools = [made(f"tool{i}", "".join(said), effects="read") for i, said in enumerate(characters)]
    async with serving(server.address, replies=[{"text": "ok"}], tools=tools) as case:
        run = await case.start("".join(characters[7][:20]))
        assert (await asyncio.wait_for(run.result(), 60)).answer == "ok"
        offered = (await run.explain(1))["offered"]
    assert (offered["why"], offered["universe"]) == ("ranked", 400)
    assert "tool7" in offered["names"]


async def test_limit_of_a_search_may_be_written_as_a_float(server: Server) -> None:
    """What the schema takes for an integer is one: the model is given as many tools as it asked for."""
    hunt = {"tool": "nika:find_tools", "arguments": {"query": "look up", "limit": 8.0}}
    agent = {"tools": ["*", "nika:find_tools"]}
    async with serving(
        server.address, replies=[{"calls": [hunt]}, {"text": "ok"}], tools=MANY, agent=agent
    ) as case:
        run = await case.start()
        await run.result()
        (seen,) = [entry for entry in await transcript_of(case, run) if entry["kind"] == "observation"]
    assert len(seen["content"]["tools"]) == 8
