"""docs/telemetry.md tells of everything that there is, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from mainspring.telemetry import conventions
from mainspring.telemetry.meters import Meters
from mainspring.workflows import events
from support.telemetry import Noting

DOCS = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """The table under a heading: the names in its first column, each with the rest of its row."""
    section = DOCS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`([a-z_.]+)`", cells[0]) if line.startswith("| `") else ():
            found[name] = cells[1]
    return found


def test_every_metric_is_documented() -> None:
    """The table of metrics holds the instruments that a worker makes, and no other."""
    provider = Noting()
    Meters(provider)
    assert set(rows("Metrics")) == provider.plain


@pytest.mark.parametrize(
    "event", [kind.__name__ for kind in get_args(events.Event) if conventions.logged(kind.__name__)]
)
def test_every_decision_is_documented(event: str) -> None:
    """The table of decisions names each event, with the fields that are shown of it."""
    table = rows("Decisions")
    shown = conventions.decision({"seq": 0, "turn": 0, "event": event, **dict.fromkeys(FIELDS, 1)})
    told = table[conventions.event_name(event)]
    assert set(filter(None, told.split(", "))) == {name.removeprefix("mainspring.") for name in shown}


FIELDS = {name for kind in get_args(events.Event) for name in kind.__dataclass_fields__}
