"""Names of models, resolved: the model to use and its fallbacks, scripts read and checked.

Source: shared design, interfaces.md "Configuration" (models), "The scripted model".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import JsonValue

from mainspring.activities.prices import priced
from mainspring.config import read_bytes
from mainspring.errors import ConfigError
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.config import Config, ModelEntry
from mainspring.schemas.script import Script
from mainspring.validate import decode, read
from mainspring.workflows.arming import Refused
from mainspring.workflows.catalog import near
from mainspring.workflows.values import clip

__all__ = ["resolve_models"]

SCRIPT_BYTES_MAX = 256 * 1024
MODELS_MAX = 16


def resolve_models(config: Config, name: str) -> tuple[tuple[ModelSpec, ...], list[Refused]]:
    """The model called `name`, then its fallbacks and theirs, each once, and what is wrong with any.

    It reads the files of scripted models, so that a script that changes is picked up by the next run.
    """
    order: list[str] = []
    refused: list[Refused] = []
    _follow(config, name, (), order, refused)
    made = [_resolved(found, entry) for found in order if (entry := config.model_entry(found)) is not None]
    refused += [item for item in made if isinstance(item, Refused)]
    return tuple(item for item in made if isinstance(item, ModelSpec)), refused


def _follow(
    config: Config, name: str, trail: tuple[str, ...], order: list[str], refused: list[Refused]
) -> None:
    """Append the model and, depth first, its fallbacks, each once; `trail` leads to it."""
    field = f"models.{trail[-1]}.fallback" if trail else "model"
    if name in trail:
        refused.append(Refused(field, name, f"falls back in a circle: {' → '.join((*trail, name))}"))
        return
    if name in order:
        return
    entry = config.model_entry(name)
    if entry is None:
        refused.append(Refused(field, name, _unknown(name, config.models)))
        return
    if len(order) == MODELS_MAX:
        refused.append(Refused(field, name, f"more than {MODELS_MAX - 1} fallbacks in all"))
        return
    order.append(name)
    for other in entry.fallbacks:
        _follow(config, other, (*trail, name), order, refused)


def _resolved(name: str, entry: ModelEntry) -> ModelSpec | Refused:
    script: dict[str, JsonValue] | None = None
    if entry.script is not None:
        read_script = _script(name, Path(entry.script))
        if isinstance(read_script, Refused):
            return read_script
        script = read_script
    spec = ModelSpec(
        name=name,
        model=entry.model,
        base_url=entry.base_url,
        api_key=entry.api_key,
        headers=entry.headers,
        window=entry.window,
        settings=entry.settings,
        script=script,
    )
    return spec.model_copy(update={"priced": priced(spec)})


def _script(name: str, file: Path) -> dict[str, JsonValue] | Refused:
    field = f"models.{name}.script"
    try:
        document = read(read_bytes(file), file.name)
        decode(document, Script, file.name, strict=False)
    except ConfigError as error:
        return Refused(field, None, str(error))
    size = len(json.dumps(document.value, ensure_ascii=False).encode("utf-8"))
    if size > SCRIPT_BYTES_MAX:
        return Refused(field, file.name, f"it takes {size} bytes as JSON; at most {SCRIPT_BYTES_MAX}")
    assert isinstance(document.value, dict)
    return document.value


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = near(name, names)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"no such model is configured{hint}; known: {clip(', '.join(names), 400) or 'none'}"
