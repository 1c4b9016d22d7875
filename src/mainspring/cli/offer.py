"""`agents` and `tools`: what the configuration has on offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from mainspring.cli.app import AS_JSON, app, command, config_file, loaded
from mainspring.cli.output import note, print_json, print_table
from mainspring.narration import why_offered
from mainspring.render import count, one_line, shown
from mainspring.run_errors import Refused
from mainspring.schemas.agent import AgentSpec, RoutingSpec
from mainspring.schemas.base import wire
from mainspring.schemas.tools import ToolDefinition
from mainspring.validate import did_you_mean
from mainspring.worker import catalog_of, plugin_of
from mainspring.workflows import intrinsics
from mainspring.workflows.catalog import admits
from mainspring.workflows.router import query, route, universe

__all__: list[str] = []


@app.command(epilog="Example: mainspring agents --json")
@command
async def agents(as_json: AS_JSON = False) -> None:
    """List the configured agents."""
    config = loaded()
    specs = {name: config.agent_spec(name) for name in config.agents}
    rows: list[dict[str, Any]] = [
        {
            "agent": name,
            "model": spec.model,
            "tools": list(spec.tools),
            "budgets": wire(spec.budgets),
            "instructions": spec.instructions,
        }
        for name, spec in specs.items()
        if spec is not None
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("agent", "model", "tools", "budgets", "instructions"),
        [
            (
                row["agent"],
                row["model"],
                " ".join(row["tools"]),
                " ".join(f"{name}={shown(value)}" for name, value in row["budgets"].items()),
                one_line(row["instructions"], 60),
            )
            for row in rows
        ],
        drop=("instructions", "budgets", "tools"),
    )


@app.command(epilog="Example: mainspring tools --agent guide --rank 'find where retries are configured'")
@command
async def tools(
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", metavar="AGENT", help="Only those this agent may use.")
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option(
            "--rank", metavar="WORDS", help="Ranked as the router does for a message of these words."
        ),
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """List the tools, with their effects; MCP servers are started to be asked for theirs."""
    plugin = plugin_of(config_file())
    spec = AgentSpec(tools=("**",)) if agent is None else plugin.config.agent_spec(agent)
    if spec is None:
        raise Refused(f"no agent {agent!r} is configured{did_you_mean(agent or '', plugin.config.agents)}")
    if rank is not None and not rank.strip():
        raise Refused("--rank: the words are blank")
    catalog = await catalog_of(plugin)
    granted = [tool for tool in catalog.tools if admits(spec.tools, tool.name)]
    granted += intrinsics.definitions(spec.tools, spec.output_schema)
    granted.sort(key=lambda tool: tool.name)
    if rank is None:
        _list(granted, as_json)
    else:
        _rank(granted, spec.routing, rank, as_json)
    for name, why in catalog.failures.items():
        note(f"! MCP server {name}: {one_line(why, 300)}")
    for told in catalog.notes:
        note(f"! {told}")


def _list(found: Sequence[ToolDefinition], as_json: bool) -> None:
    if as_json:
        print_json([wire(tool) for tool in found])
        return
    headings = ("tool", "effects", "from", "description")
    print_table(headings, [_row(tool) for tool in found], drop=("description", "from", "effects"))


def _row(tool: ToolDefinition) -> tuple[str, str, str, str]:
    declared = tool.declaration
    return tool.name, declared.effects, declared.source, one_line(declared.description, 80)


def _rank(found: Sequence[ToolDefinition], routing: RoutingSpec, words: str, as_json: bool) -> None:
    """The tools in the order of their scores, and which of them the first turn of a run would offer."""
    every, asked = universe([tool.declaration for tool in found]), query(words, "", ())
    offer = route(every, routing, asked)
    all_of_them = routing.model_copy(update={"threshold": 0, "top": max(1, len(found))})
    scores = {item.name: item.score for item in route(every, all_of_them, asked).ranked}
    offered = {tool.name for tool in found} if offer.names == "all" else set(offer.names)
    pinned = {found[place].name for place in every.pinned(routing.pin)}
    ordered = sorted(found, key=lambda tool: (-scores.get(tool.name, 0.0), tool.name))
    rows: list[dict[str, Any]] = [
        {
            "tool": tool.name,
            "score": round(scores.get(tool.name, 0.0), 6),
            "offered": tool.name in offered,
            "pinned": tool.name in pinned,
            "description": tool.declaration.description,
        }
        for tool in ordered
    ]
    if as_json:
        print_json({"offered": offer.offered, "universe": offer.universe, "why": offer.why, "tools": rows})
        return
    print_table(
        ("tool", "score", "offered", "description"),
        [
            (row["tool"], f"{row['score']:.3f}", _standing(row), one_line(row["description"], 80))
            for row in rows
        ],
        drop=("description",),
    )
    note(f"offered: {offer.offered:,} of {count(offer.universe, 'tool')}; {why_offered(offer.why)}")


def _standing(row: Mapping[str, Any]) -> str:
    if not row["offered"]:
        return "no"
    return "pinned" if row["pinned"] else "yes"
