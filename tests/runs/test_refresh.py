"""Conversations that take up a changed configuration at the start of an exchange."""

from __future__ import annotations

import pytest

from mainspring.client import RunCancelled
from mainspring.embedded import Server
from mainspring.testing import Case, activities_of, events_named
from mainspring.tools import tool
from support.invariants import serving
from support.tools import observe
from support.waiting import until

AGENT = {"refresh": "exchange", "limits": {"model_attempts": 1}}


def instruct(case: Case, words: str) -> None:
    """Change the agent's instructions in the configuration that the worker has."""
    agent = case.plugin.config.agents["tested"].model_copy(update={"instructions": words})
    case.plugin.config.agents["tested"] = agent


async def test_refresh_arms_once_an_exchange_and_says_what_changed(server: Server) -> None:
    """A follow-up is answered with the configuration of its day; one arming activity an exchange."""
    replies = [{"text": "one"}, {"text": "two"}]
    async with serving(server.address, replies=replies, tools=[observe], agent=AGENT) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="follow_up")
        instruct(case, "Do it otherwise.")
        assert await run.ask("again") == "two"
        instructions = (await run.explain())["instructions"]
        await run.finish()
        await run.result()
        changed = events_named(await case.events(run), "ConfigurationRefreshed")
        ran = activities_of(await case.history(run))
    assert instructions == "Do it otherwise."
    assert [event["changed"] for event in changed] == [["instructions"]]
    assert ran.count(("mainspring.arm", "completed")) == 2


async def test_run_without_refresh_keeps_what_it_was_armed_with(server: Server) -> None:
    """A changed configuration never changes a run in flight that did not ask for it."""
    async with serving(server.address, replies=[{"text": "one"}, {"text": "two"}]) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="follow_up")
        instruct(case, "Do it otherwise.")
        assert await run.ask("again") == "two"
        assert (await run.explain())["instructions"] == "Do it."
        await run.finish()
        await run.result()


async def test_cancel_during_a_refresh_loses_no_message(server: Server) -> None:
    """The message that waits for the refresh is reported as unanswered."""
    replies = [{"text": "one", "delay": 0.5}]
    async with serving(server.address, replies=replies, agent=AGENT) as case:
        run = await case.start()
        await until(run, turn=1)
        await run.follow_up("and this?")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        finished = events_named(await case.events(run), "Finished")
        entries = [entry.content for entry in await run.transcript() if entry.kind == "user"]
    assert finished[0]["unanswered"] == 1 or "and this?" in entries


async def test_refresh_reads_the_pages_of_a_catalog_only_where_it_changed(server: Server) -> None:
    """A large catalog is recorded again when it is another one, and not in every exchange."""
    tools = [tool(name=f"t{n}", description=f"{n} " * 2_000)(observe.function) for n in range(120)]
    replies = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    async with serving(server.address, replies=replies, tools=tools, agent=AGENT) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="follow_up")
        assert await run.ask("again") == "two"
        recorded = [kind for kind, _ in activities_of(await case.history(run))]
        instruct(case, "Do it otherwise.")
        assert await run.ask("and again") == "three"
        await run.finish()
        await run.result()
        in_all = [kind for kind, _ in activities_of(await case.history(run))]
    pages = recorded.count("mainspring.catalog_page")
    assert pages > 0
    assert in_all.count("mainspring.catalog_page") == 2 * pages
