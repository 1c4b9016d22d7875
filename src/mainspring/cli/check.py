"""`config` and `doctor`: is everything as it should be?"""

from __future__ import annotations

import typer

from mainspring import config as configuration
from mainspring import doctor as examination
from mainspring.cli.app import AS_JSON, EXIT_NO_ANSWER, Group, app, chosen_config, command, loaded
from mainspring.cli.output import out, print_json
from mainspring.render import styled

__all__: list[str] = []

config_app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    help="The configuration: its schema, and what is in effect.",
    no_args_is_help=True,
)
app.add_typer(config_app, name="config", rich_help_panel=None)


@config_app.command(epilog="Example: mainspring config schema > mainspring.schema.json")
@command
async def schema() -> None:
    """Print the JSON Schema of mainspring.yaml, for editors."""
    print_json(configuration.json_schema())


@config_app.command(epilog="Example: mainspring config show")
@command
async def show() -> None:
    """Print the configuration in effect as JSON; secrets are not shown."""
    print_json(configuration.show(loaded()))


@app.command(epilog="Example: mainspring doctor")
@command
async def doctor(as_json: AS_JSON = False) -> int:
    """Check the installation, the configuration and the server, and say what to do."""
    checks = await examination.examine(chosen_config())
    failed = [check for check in checks if check.ok is False]
    if as_json:
        print_json([check.as_json() for check in checks])
    else:
        for check in checks:
            mark = {True: "✓", False: "✗", None: "–"}[check.ok]
            out.print(styled(f"{mark} {check.name}: {check.told}"))
            if check.advice:
                out.print(f"    {check.advice}", markup=False)
    return EXIT_NO_ANSWER if failed else 0
