"""Reading `mainspring.yaml`.

Paths in it are relative to its own folder: `state_dir`, `blobs` (a bare path), scripts, `files.root`, and the
working directory of MCP servers. Secrets are named in it (`env:NAME`, `file:PATH`), never written, and are
not read here.

Source: shared design, interfaces.md "Configuration"; field-faults.md K.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from mainspring.document import BYTES_MAX
from mainspring.errors import ConfigError
from mainspring.schemas.base import seconds
from mainspring.schemas.config import Config, ModelEntry
from mainspring.validate import Problem, decode, did_you_mean, read, refuse
from mainspring.workflows.arming import pattern_faults
from mainspring.workflows.json_schema import schema_fault

__all__ = ["FILE_NAME", "find", "json_schema", "load", "read_bytes", "show"]

FILE_NAME = "mainspring.yaml"
VARIABLE = "MAINSPRING_CONFIG"


def find(start: Path | None = None) -> Path:
    """The configuration to use: what `MAINSPRING_CONFIG` names, else the nearest `mainspring.yaml` upwards.

    Raises: ConfigError, when there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    folder = (start or Path.cwd()).resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    raise ConfigError(f"no {FILE_NAME} in {folder} or above it; write one, or name one in {VARIABLE}")


def load(path: str | Path) -> Config:
    """The configuration in a file.

    Raises: ConfigError, and nothing else; it lists every problem with its line and column.
    """
    file = Path(path)
    name = file.name
    document = read(read_bytes(file), name)
    config = decode(document, Config, name)
    problems = [*_unknown_names(config), *_circles(config), *_patterns(config), *_schemas(config)]
    problems += _twice(config)
    config = _anchored(config, file.resolve().parent)
    problems += _missing_files(config)
    if problems:
        raise refuse(document, name, problems)
    return config


def read_bytes(file: Path) -> bytes:
    """The bytes of a file, never more than one beyond what is accepted.

    Raises: ConfigError, when it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return opened.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{file}: cannot be read: {reason}", where=str(file)) from error


def _unknown_names(config: Config) -> Iterator[Problem]:
    for name, agent in config.agents.items():
        if agent.model not in config.models:
            near = did_you_mean(agent.model, config.models)
            yield Problem(("agents", name, "model"), f"unknown model {agent.model!r}{near}")
    for name in config.models:
        for other in _entry(config, name).fallbacks:
            if other not in config.models:
                near = did_you_mean(other, config.models)
                yield Problem(("models", name, "fallback"), f"unknown model {other!r}{near}")


def _entry(config: Config, name: str) -> ModelEntry:
    entry = config.model_entry(name)
    assert entry is not None, name
    return entry


def _circles(config: Config) -> Iterator[Problem]:
    """Models that fall back to themselves in the end, each circle once.

    What falls back to nothing is taken away until nothing more can be; what is left goes round.
    """
    left = {name: [o for o in _entry(config, name).fallbacks if o in config.models] for name in config.models}
    while ends := [name for name, others in left.items() if not any(other in left for other in others)]:
        for name in ends:
            del left[name]
    seen: set[str] = set()
    for name in left:
        trail: list[str] = []
        while name not in seen:
            seen.add(name)
            trail.append(name)
            name = next(other for other in left[name] if other in left)
        if name in trail:
            circle = [*trail[trail.index(name) :], name]
            yield Problem(("models", name, "fallback"), f"falls back in a circle: {' → '.join(circle)}")


def _patterns(config: Config) -> Iterator[Problem]:
    """Patterns that name a server or an intrinsic that is not there; other names are known at arming."""
    for name, agent in config.agents.items():
        for index, fault in pattern_faults(agent.tools, servers=config.mcp):
            yield Problem(("agents", name, "tools", index), fault)
        for index, fault in pattern_faults(agent.routing.pin, servers=config.mcp):
            yield Problem(("agents", name, "routing", "pin", index), fault)


def _schemas(config: Config) -> Iterator[Problem]:
    for name, agent in config.agents.items():
        if agent.output_schema is not None and (fault := schema_fault(agent.output_schema)):
            yield Problem(("agents", name, "output_schema"), fault)
    for index, tool in enumerate(config.tools.activities):
        if fault := schema_fault(tool.input_schema):
            yield Problem(("tools", "activities", index, "input_schema"), fault)


def _twice(config: Config) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, tool in enumerate(config.tools.activities):
        if tool.name in seen:
            yield Problem(("tools", "activities", index, "name"), f"{tool.name!r} is declared twice")
        seen.add(tool.name)


def _anchored(config: Config, folder: Path) -> Config:
    """The configuration with its relative paths made absolute."""
    changed: dict[str, Any] = {"state_dir": _from(folder, config.state_dir)}
    if config.blobs != "file" and "://" not in config.blobs:
        changed["blobs"] = _from(folder, config.blobs)
    if config.files is not None:
        changed["files"] = config.files.model_copy(update={"root": _from(folder, config.files.root)})
    changed["models"] = {
        name: entry.model_copy(update={"script": _from(folder, entry.script)})
        if isinstance(entry, ModelEntry) and entry.script is not None
        else entry
        for name, entry in config.models.items()
    }
    changed["mcp"] = {
        name: server.model_copy(update={"cwd": _from(folder, server.cwd or ".")})
        if server.command
        else server
        for name, server in config.mcp.items()
    }
    return config.model_copy(update=changed)


def _from(folder: Path, path: str) -> str:
    return os.path.normpath(folder / path)


def _missing_files(config: Config) -> Iterator[Problem]:
    for name in config.models:
        script = _entry(config, name).script
        if script is not None and not Path(script).is_file():
            yield Problem(("models", name, "script"), f"no such file: {script}")
    if config.files is not None and not Path(config.files.root).is_dir():
        yield Problem(("files", "root"), f"no such folder: {config.files.root}")
    for name, server in config.mcp.items():
        if server.cwd is not None and not Path(server.cwd).is_dir():
            yield Problem(("mcp", name, "cwd"), f"no such folder: {server.cwd}")


_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}


class _Schema(GenerateJsonSchema):
    """Durations and switches as they may be written, not as they are kept."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        kept = super().function_before_schema(schema)
        function = schema["function"]["function"]
        if function is seconds:
            return {"anyOf": [kept, {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)?\s*$"}]}
        if getattr(function, "__name__", "") == "_switch":
            return {"anyOf": [kept, {"enum": ["on", "off"]}]}
        return kept


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `mainspring.yaml`, for editors."""
    schema = _tidy(Config.model_json_schema(schema_generator=_Schema))
    command = schema["$defs"]["McpServerSpec"]["properties"]["command"]
    schema["$defs"]["McpServerSpec"]["properties"]["command"] = {"anyOf": [command, {"type": "string"}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FILE_NAME, **schema}


def _tidy(node: Any) -> Any:
    """Without made-up titles and defaults that are objects; of a docstring its first paragraph."""
    if isinstance(node, list):
        return [_tidy(item) for item in cast("Sequence[Any]", node)]
    if not isinstance(node, dict):
        return node
    parts = cast("dict[str, Any]", node)
    tidy = {_BOUNDS.get(key, key): _tidy(item) for key, item in parts.items() if not _noise(key, item)}
    if "patternProperties" in tidy:
        tidy.setdefault("additionalProperties", False)
    if isinstance(tidy.get("description"), str):
        tidy["description"] = " ".join(tidy["description"].split("\n\n")[0].split())
    return tidy


def _noise(key: str, item: object) -> bool:
    return (key == "title" and isinstance(item, str)) or (
        key == "default" and isinstance(item, dict) and "type" not in item and "anyOf" not in item
    )


_HIDDEN = "(not shown)"
_USERINFO = re.compile(r"(?<=://)[^/@\s]*@")


def show(config: Config) -> dict[str, Any]:
    """The configuration in effect, as plain JSON: defaults left out, nothing secret in it."""
    plain: dict[str, Any] = json.loads(config.model_dump_json(exclude_defaults=True))
    return {key: _redacted(value, ()) for key, value in plain.items()}


def _redacted(value: Any, above: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item, (*above, key)) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_redacted(item, above) for item in cast("Sequence[Any]", value)]
    if isinstance(value, str):
        secret = {"headers", "env", "api_key"} & set(above) and not value.startswith(("env:", "file:"))
        return _HIDDEN if secret else _USERINFO.sub("", value)
    return value
