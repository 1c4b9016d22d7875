"""What one arming record becomes in this process: tools by every name, checks compiled, the system text.

Made once for a record and kept by its digest, so that a turn pays for none of it.

Source: shared design, loop.md "Arming" (schemas are the model activity's business).
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mainspring.activities.faults import catalog_unavailable
from mainspring.activities.validation import SchemaCheck
from mainspring.schemas.activities import Armed
from mainspring.schemas.base import unwire
from mainspring.schemas.tools import BlobRef, ToolDefinition
from mainspring.workflows.catalog import near, wire_name
from mainspring.workflows.tokens import estimate
from mainspring.workflows.values import render

__all__ = ["Catalog", "Offer", "ReadsBlobs", "Setup", "Setups"]

SETUPS_MAX = 256
OFFERS_MAX = 64
NEAR_CANDIDATES_MAX = 400

_OUTPUT = (
    "Your final answer must be one JSON value that meets this JSON Schema, with nothing before or after it:\n"
)


class ReadsBlobs(Protocol):
    """The part of the blob store that reads."""

    async def get(self, ref: BlobRef) -> bytes:
        """The content of a blob."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one request, in order, and about how many tokens they take."""

    tools: tuple[ToolDefinition, ...]
    tokens: int


class Catalog:
    """A catalog, by our names and by those that providers are told."""

    def __init__(self, definitions: Iterable[ToolDefinition]) -> None:
        self.definitions = {definition.name: definition for definition in definitions}
        self._by_wire = {wire_name(name): name for name in self.definitions}
        self._checks: dict[str, SchemaCheck] = {}
        self._offers: OrderedDict[tuple[str, ...] | Literal["all"], Offer] = OrderedDict()

    def find(self, called: str) -> ToolDefinition | None:
        """The tool that a model means: by the name that it was told, or by ours."""
        name = self._by_wire.get(called, called)
        return self.definitions.get(name)

    def check(self, definition: ToolDefinition) -> SchemaCheck:
        """The compiled check of a tool's arguments."""
        check = self._checks.get(definition.name)
        if check is None:
            check = self._checks[definition.name] = SchemaCheck(definition.input_schema)
        return check

    def offer(self, names: tuple[str, ...] | Literal["all"]) -> Offer:
        """The definitions of the names offered, in their order.

        Raises: ApplicationError(CATALOG_UNAVAILABLE), when the catalog lacks one.
        """
        offer = self._offers.get(names)
        if offer is None:
            offer = self._offers[names] = self._offer(names)
            if len(self._offers) > OFFERS_MAX:
                self._offers.popitem(last=False)
        return offer

    def _offer(self, names: tuple[str, ...] | Literal["all"]) -> Offer:
        if names == "all":
            tools = tuple(self.definitions.values())
        else:
            missing = [name for name in names if name not in self.definitions]
            if missing:
                raise catalog_unavailable(f"tools offered but not in the catalog: {', '.join(missing[:5])}")
            tools = tuple(self.definitions[name] for name in names)
        tokens = sum(
            estimate(tool.declaration.description) + estimate(render(tool.input_schema)) + estimate(tool.name)
            for tool in tools
        )
        return Offer(tools, tokens)

    def near(self, called: str, offer: Offer) -> tuple[str, ...]:
        """Names, as providers are told them, that are most like one that is no tool's; in bounded time."""
        candidates = [wire_name(tool.name) for tool in offer.tools][:NEAR_CANDIDATES_MAX]
        if len(candidates) < NEAR_CANDIDATES_MAX:
            words = [word for word in re.split(r"[^a-z0-9]+", called.lower()[:256]) if len(word) > 2]
            others = (name for name in self._by_wire if any(word in name.lower() for word in words))
            seen = set(candidates)
            candidates += [name for name in others if name not in seen]
        return near(called, candidates[:NEAR_CANDIDATES_MAX])


@dataclass(frozen=True, slots=True)
class Setup:
    """One arming record, ready for use.

    Args:
        system: The instructions, and the output schema when there is one.
        output: The check of the final answer; None without an output schema.
    """

    armed: Armed
    catalog: Catalog
    system: str
    system_tokens: int
    output: SchemaCheck | None


class Setups:
    """Setups by the digest of their arming record; least recently used out first."""

    def __init__(self, blobs: ReadsBlobs | None) -> None:
        self._blobs = blobs
        self._setups: OrderedDict[str, Setup] = OrderedDict()

    async def of(self, armed: Armed) -> Setup:
        """The setup of a record.

        Raises: ApplicationError(CATALOG_UNAVAILABLE), when the catalog's blob cannot be read.
        """
        setup = self._setups.get(armed.digest)
        if setup is None:
            setup = self._setups[armed.digest] = _setup(armed, await self._definitions(armed))
            if len(self._setups) > SETUPS_MAX:
                self._setups.popitem(last=False)
        else:
            self._setups.move_to_end(armed.digest)
        return setup

    async def _definitions(self, armed: Armed) -> Sequence[ToolDefinition]:
        if armed.tools is not None:
            return armed.tools
        if self._blobs is None or armed.catalog_blob is None:
            raise catalog_unavailable("the catalog lies in a blob store, and this worker has none")
        try:
            content = await self._blobs.get(armed.catalog_blob)
            return unwire(tuple[ToolDefinition, ...], json.loads(content))
        except Exception as error:  # every store fails in its own way
            digest = armed.catalog_blob.digest
            raise catalog_unavailable(
                f"the catalog {digest} cannot be read ({type(error).__name__})"
            ) from None


def _setup(armed: Armed, definitions: Iterable[ToolDefinition]) -> Setup:
    schema = armed.spec.output_schema
    parts = [armed.spec.instructions]
    if schema is not None:
        parts.append(_OUTPUT + json.dumps(schema, ensure_ascii=False))
    system = "\n\n".join(part for part in parts if part)
    output = None if schema is None else SchemaCheck(schema)
    return Setup(armed, Catalog(definitions), system, estimate(system), output)
