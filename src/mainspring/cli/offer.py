"""`agents` and `tools`: what the configuration has on offer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mainspring.cli.app import AS_JSON, app, command, config_file, loaded
from mainspring.cli.output import note, print_json, print_table
from mainspring.render import one_line, shown
from mainspring.run_errors import Refused
from mainspring.schemas.base import wire
from mainspring.schemas.tools import ToolDefinition
from mainspring.validate import did_you_mean
from mainspring.worker import catalog_of, plugin_of
from mainspring.workflows.catalog import admits

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


@app.command(epilog="Example: mainspring tools --agent guide")
@command
async def tools(
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", metavar="AGENT", help="Only those this agent may use.")
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """List the tools, with their effects; MCP servers are started to be asked for theirs."""
    plugin = plugin_of(config_file())
    patterns: tuple[str, ...] = ("**",)
    if agent is not None:
        spec = plugin.config.agent_spec(agent)
        if spec is None:
            raise Refused(f"no agent {agent!r} is configured{did_you_mean(agent, plugin.config.agents)}")
        patterns = spec.tools
    catalog = await catalog_of(plugin)
    found = sorted(
        (tool for tool in catalog.tools if admits(patterns, tool.name)), key=lambda tool: tool.name
    )
    if as_json:
        print_json([wire(tool) for tool in found])
    else:
        headings = ("tool", "effects", "from", "description")
        print_table(headings, [_row(tool) for tool in found], drop=("description", "from", "effects"))
    for name, why in catalog.failures.items():
        note(f"! MCP server {name}: {one_line(why, 300)}")
    for told in catalog.notes:
        note(f"! {told}")


def _row(tool: ToolDefinition) -> tuple[str, str, str, str]:
    declared = tool.declaration
    return tool.name, declared.effects, declared.source, one_line(declared.description, 80)
