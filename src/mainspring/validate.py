"""Typed values from documents; each problem with its place, what was given and what is allowed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from mainspring.document import Document, Fault, Mark, Path, parse
from mainspring.errors import ConfigError

__all__ = ["Problem", "decode", "did_you_mean", "dotted", "read", "refuse"]

M = TypeVar("M", bound=BaseModel)

PROBLEMS_MAX = 20
GIVEN_MAX = 60
_SECRET_KEYS = frozenset({"api_key", "headers", "env"})


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the path of its key, and what to say of it."""

    path: Path
    message: str
    at_key: bool = False


def read(raw: bytes, name: str) -> Document:
    """The document in a file called `name`.

    Raises: ConfigError.
    """
    try:
        document = parse(raw)
    except Fault as fault:
        raise _error(name, [(fault.mark, fault.message)]) from fault
    if document.value is None:
        raise _error(name, [(Mark(1, 1), "the file is empty")])
    return document


def decode(document: Document, kind: type[M], name: str, *, strict: bool = True) -> M:
    """The document as a `kind`; strictly typed, so that a number in quotes is text, unless told otherwise.

    Raises: ConfigError, listing every problem (at most 20), in the order of the lines.
    """
    try:
        return kind.model_validate_json(json.dumps(document.value), strict=strict)
    except ValidationError as error:
        found = _problems(error, document, _schema_of(kind))
        raise refuse(document, name, found) from error


@lru_cache(maxsize=16)
def _schema_of(kind: type[BaseModel]) -> Mapping[str, Any]:
    return kind.model_json_schema()


def refuse(document: Document, name: str, problems: Iterable[Problem]) -> ConfigError:
    """The error that lists these problems of a document."""
    placed = [
        (document.mark(p.path, key=p.at_key), f"{dotted(p.path)}: {p.message}" if p.path else p.message)
        for p in problems
    ]
    placed.sort(key=lambda item: (item[0].line, item[0].column))
    return _error(name, placed)


def _error(name: str, placed: list[tuple[Mark, str]]) -> ConfigError:
    lines = [f"{name}:{mark.line}:{mark.column}: {message}" for mark, message in placed[:PROBLEMS_MAX]]
    if len(placed) > PROBLEMS_MAX:
        lines.append(f"and {len(placed) - PROBLEMS_MAX} more")
    first = placed[0][0]
    return ConfigError("\n".join(lines), where=f"{name}:{first.line}:{first.column}")


def dotted(path: Path) -> str:
    """`agents.guide.tools[2]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{_clip(step)}" if text else _clip(step)
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'budgets'?`, or what is known when nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name[:100].lower(), [n.lower() for n in names], n=1, cutoff=0.6)
    if near:
        return f"; did you mean {next(n for n in names if n.lower() == near[0])!r}?"
    shown = ", ".join(names[:15]) + (", …" if len(names) > 15 else "")
    return f"; known: {shown}" if names else "; there are none"


def _problems(error: ValidationError, document: Document, schema: Mapping[str, Any]) -> list[Problem]:
    """One problem a place: the branches of a union that all failed are one."""
    messages: dict[Path, list[str]] = {}
    keys: set[Path] = set()
    for item in _telling(error.errors(include_url=False)):
        kind = item["type"]
        path = document.path(item["loc"], missing=kind == "missing")
        if kind == "extra_forbidden":
            keys.add(path)
        messages.setdefault(path, []).append(_message(item, path, schema))
    parents = {path[:n] for path in messages for n in range(len(path))}
    return [
        Problem(path, _alternatives(said), path in keys)
        for path, said in messages.items()
        if path not in parents or path in keys
    ]


def _telling(errors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without branches of a union that were not meant: beside a rule of ours, another type tells nothing."""
    ours = {item["loc"][:-1] for item in errors if item["type"] == "value_error"}
    return [i for i in errors if not (i["type"].endswith("_type") and i["loc"][:-1] in ours)]


def _message(item: Mapping[str, Any], path: Path, schema: Mapping[str, Any]) -> str:
    if item["type"] == "extra_forbidden":
        return f"unknown key {_clip(str(path[-1]))!r}{did_you_mean(str(path[-1]), _known(schema, path[:-1]))}"
    if item["type"] == "missing":
        return "it is missing"
    text: str = (
        item["msg"]
        .removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .replace("String should", "must")
    )
    return f"{text}{_given(item.get('input'), path)}"


def _given(value: object, path: Path) -> str:
    if _SECRET_KEYS & set(path):
        return " (the value is not shown)"
    if value is None:
        return "; nothing is given"
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return f" (given {shown if len(shown) <= GIVEN_MAX else shown[: GIVEN_MAX - 1] + '…'})"


def _alternatives(said: list[str]) -> str:
    """`must be a string (given 3)` and `must be an object (given 3)` as one sentence."""
    distinct = list(dict.fromkeys(said))
    head, cut, given = distinct[-1].rpartition(" (given ")
    if not cut or not all(one.endswith(cut + given) for one in distinct):
        return "; or ".join(distinct)
    firsts = [one.removesuffix(cut + given) for one in distinct[:-1]]
    return " or ".join([*firsts, head.removeprefix("must be ") if firsts else head]) + cut + given


def _known(schema: Mapping[str, Any], path: Path) -> set[str]:
    """The keys that a JSON Schema of pydantic's knows at `path`."""
    reached = _branches(schema, schema)
    for step in path:
        below: list[Mapping[str, Any]] = []
        for branch in reached:
            inner: Any = branch.get("items") if isinstance(step, int) else _below(branch, step)
            if isinstance(inner, dict):
                below += _branches(cast("Mapping[str, Any]", inner), schema)
        reached = below
    return {key for branch in reached for key in branch.get("properties", {})}


def _below(branch: Mapping[str, Any], step: str) -> object:
    """The schema of a key: its own, or that of the values of a mapping."""
    if step in branch.get("properties", {}):
        return branch["properties"][step]
    patterns: Mapping[str, Any] = branch.get("patternProperties", {})
    return next(iter(patterns.values()), branch.get("additionalProperties"))


def _branches(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in schema:
        return _branches(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return [found for branch in schema["anyOf"] for found in _branches(branch, root)]
    return [schema]


def _clip(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
