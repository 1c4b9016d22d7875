"""The compose file for telemetry and what it mounts; Docker itself is not needed, and not asked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mainspring.telemetry.meters import Meters
from support.telemetry import Noting

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.telemetry.yml"
DASHBOARD = ROOT / "deploy" / "telemetry" / "grafana" / "dashboards" / "mainspring.json"
PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+")


@pytest.fixture(scope="module")
def instruments() -> Noting:
    """Every instrument that there is."""
    provider = Noting()
    Meters(provider)
    return provider


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """The services of the file, the worker's additions apart."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return {name: service for name, service in found.items() if name != "worker"}


def test_compose_file_meets_the_specification() -> None:
    """The file is valid under the Compose specification's own schema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, str(COMPOSE)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_services_are_pinned_bounded_and_for_this_machine_only(services: dict[str, dict[str, Any]]) -> None:
    """Each image has a whole version, each container its limits, and no port is open to other machines."""
    assert list(services) == ["jaeger", "prometheus", "grafana"]
    for service in services.values():
        assert PINNED.fullmatch(service["image"])
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists(), source


def test_file_stands_beside_the_other_one(services: dict[str, dict[str, Any]]) -> None:
    """It adds to the worker of docker-compose.temporal.yml, and shares no other name and no port with it."""
    other = yaml.safe_load((ROOT / "docker-compose.temporal.yml").read_text())
    mine = yaml.safe_load(COMPOSE.read_text())
    assert set(mine["services"]) & set(other["services"]) == {"worker"}
    assert set(mine["services"]["worker"]) == {"environment"}
    assert not set(mine["volumes"]) & set(other["volumes"])
    ports = [
        port.split(":")[-2]
        for s in (*services.values(), *other["services"].values())
        for port in s.get("ports", ())
    ]
    assert len(set(ports)) == len(ports)


def test_worker_s_variables_lead_to_the_services(services: dict[str, dict[str, Any]]) -> None:
    """Every endpoint that the worker is given is one of the services."""
    given = yaml.safe_load(COMPOSE.read_text())["services"]["worker"]["environment"]
    hosts = {re.split(r"[/:]+", url)[1] for name, url in given.items() if name.endswith("ENDPOINT")}
    assert hosts == {"jaeger", "prometheus"}
    assert "--web.enable-otlp-receiver" in services["prometheus"]["command"]


def expressions() -> Iterator[str]:
    """Every query of the dashboard."""
    board = json.loads(DASHBOARD.read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in board["templating"]["list"]:
        yield variable["query"]["query"]


def asked_for(expression: str) -> set[str]:
    """The metrics that a query names."""
    return set(re.findall(r"\b(?:mainspring|gen_ai)_[a-z_]+(?=\{|\[|,)", expression)) - LABELS


LABELS = {
    "gen_ai_agent_name",
    "gen_ai_request_model",
    "gen_ai_tool_name",
    "gen_ai_token_type",
    "mainspring_outcome",
}


def test_dashboard_asks_only_for_metrics_that_there_are(instruments: Noting) -> None:
    """Every metric in a query of the dashboard is one that a worker records; and all of ours are on it."""
    asked = set().union(*(asked_for(expression) for expression in expressions()))
    assert asked - instruments.names == set()
    shown = {name for name in instruments.plain if any(name.replace(".", "_") in one for one in asked)}
    assert instruments.plain - shown == set()


def test_every_panel_has_a_place_of_its_own() -> None:
    """Panels have their own ids and do not lie on each other, and each asks Prometheus."""
    board = json.loads(DASHBOARD.read_text())
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not own & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= own
        assert panel["datasource"]["uid"] == "prometheus"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_grafana_knows_both_sources() -> None:
    """The data sources are provisioned under the ids that the dashboard names."""
    sources = yaml.safe_load((DASHBOARD.parents[1] / "datasources" / "mainspring.yaml").read_text())
    assert {source["uid"]: source["url"] for source in sources["datasources"]} == {
        "prometheus": "http://prometheus:9090",
        "jaeger": "http://jaeger:16686",
    }
