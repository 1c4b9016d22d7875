"""The input schema of a Python function, from its signature and its docstring.

Args sections are read in Google style: `name: text` or `name (type): text`, continued by deeper indentation.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

__all__ = ["Docstring", "Signature", "read_docstring", "read_signature"]

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|Source|Contract):\s*(.*)"
)
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_STARS: Mapping[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass(frozen=True, slots=True)
class Docstring:
    """What a docstring says of the function, and of each parameter."""

    description: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)


def read_docstring(function: Callable[..., Any]) -> Docstring:
    """The text before the first section, and the Args section."""
    lines = (inspect.getdoc(function) or "").splitlines()
    starts = [index for index, line in enumerate(lines) if _SECTION.fullmatch(line)]
    description = "\n".join(lines[: starts[0]] if starts else lines).strip()
    arguments: dict[str, str] = {}
    for start in starts:
        if lines[start].startswith(("Args:", "Arguments:", "Parameters:")):
            body = lines[start + 1 : next((at for at in starts if at > start), len(lines))]
            arguments |= _arguments(body)
    return Docstring(description, arguments)


def _arguments(body: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    indents = [len(line) - len(line.lstrip()) for line in body if line.strip()]
    name = None
    for line in body:
        matched = _ARGUMENT.fullmatch(line.strip())
        if matched and len(line) - len(line.lstrip()) == min(indents):
            name = matched[1]
            found[name] = matched[2]
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called with a JSON object.

    Args:
        model: Validates the object. Its field `p<n>` is the n-th parameter, under the parameter's own name.
        schema: The object's JSON Schema.
        parameters: Those in the schema, in the order of the function.
        injected: Name of the parameter that is given the context; None where there is none.
    """

    model: type[BaseModel]
    schema: dict[str, Any]
    parameters: tuple[inspect.Parameter, ...]
    injected: str | None


def read_signature(function: Callable[..., Any], docstring: Docstring, context: type) -> Signature:
    """Read a signature; a parameter of the type `context` is injected, not in the schema.

    Raises: TypeError, naming the parameter, when no schema can be made of it.
    """
    where = getattr(function, "__qualname__", repr(function))
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"{where}: a type cannot be resolved ({error}); define it at module level") from error
    injected: str | None = None
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        _check(where, parameter, hints)
        if _is_context(hints[parameter.name], context):
            injected = parameter.name
        else:
            parameters.append(parameter)
    model = _model(where, parameters, hints, docstring)
    schema = model.model_json_schema(by_alias=True, schema_generator=_Plain)
    schema.pop("title", None)
    schema.pop("description", None)
    return Signature(model, {"properties": {}, **schema}, tuple(parameters), injected)


def _check(where: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    stars = _STARS.get(parameter.kind)
    if stars:
        raise TypeError(
            f"{where}: {stars}{parameter.name} has no schema; name each parameter, or take one dict parameter"
        )
    if parameter.name not in hints:
        raise TypeError(f"{where}: parameter {parameter.name!r} has no type; the model needs one (or Any)")


def _is_context(hint: Any, context: type) -> bool:
    return hint is context or context in typing.get_args(hint)


def _model(
    where: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any], docstring: Docstring
) -> type[BaseModel]:
    # Fields get names of ours, and the parameters' as aliases: `schema`, `copy` or `_private` are free.
    fields: dict[str, Any] = {
        f"p{index}": (hints[parameter.name], _field(parameter, docstring.arguments.get(parameter.name)))
        for index, parameter in enumerate(parameters)
    }
    try:
        return create_model("Arguments", __config__=ConfigDict(extra="forbid", title="Arguments"), **fields)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation) as error:
        raise TypeError(f"{where}: no schema can be made of its parameters: {error}") from error


def _field(parameter: inspect.Parameter, description: str | None) -> FieldInfo:
    options: dict[str, Any] = {"alias": parameter.name}
    if description:
        options["description"] = description
    if isinstance(parameter.default, FieldInfo):
        return FieldInfo.merge_field_infos(parameter.default, Field(**options))
    if parameter.default is not inspect.Parameter.empty:
        options["default"] = parameter.default
    info: FieldInfo = Field(**options)
    return info


class _Plain(GenerateJsonSchema):
    """Without the titles that pydantic adds: they repeat the names, and cost tokens in every request."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        return False
