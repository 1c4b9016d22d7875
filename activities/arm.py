"""Arming: everything that a run needs is resolved, checked and recorded, before anything is paid for.

A refusal is `invalid_input`, not retryable, and lists all that is wrong; a source of tools that cannot be
read is `catalog_unavailable`, retried within its bound. What is recorded never changes for the run: a changed
configuration changes later runs only.

Source: shared design, loop.md "Arming", "Budgets"; temporal-facts.md 6.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from mainspring.activities.arm_catalog import Sized, in_pages, sized, without_strays
from mainspring.activities.arm_checks import attachment_faults, secret_faults
from mainspring.activities.arm_models import resolve_models
from mainspring.activities.attributes import ATTRIBUTES, registered
from mainspring.activities.tools import Catalog
from mainspring.activities.transcript import ProcessCache
from mainspring.schemas.activities import DECISIONS, Armed, ArmRequest, CatalogPage
from mainspring.schemas.agent import AgentSpec, ModelSpec
from mainspring.schemas.base import unwire, wire
from mainspring.schemas.config import Config
from mainspring.schemas.errors import CATALOG_UNAVAILABLE, INVALID_INPUT
from mainspring.schemas.run import RunInput
from mainspring.schemas.tools import BlobRef, ToolDefinition
from mainspring.workflows import intrinsics
from mainspring.workflows.arming import (
    Refused,
    apply,
    check,
    check_tools,
    concerns,
    idle_patterns,
    named_servers,
)
from mainspring.workflows.catalog import admits, near
from mainspring.workflows.values import clip

__all__ = ["ArmActivity", "Blobs", "Tools", "invalid_input", "unavailable"]

CATALOG_BYTES_MAX = 512 * 1024
RECORD_BYTES_MAX = 1_500_000
MESSAGE_MAX = 4_000
NOTES_MAX = 50
NOTE_MAX = 300
PAGED_MAX = 4
INLINE = "inline"


class Tools(Protocol):
    """Where the catalog comes from."""

    async def catalog(self) -> Catalog:
        """Every tool of this worker, and the servers that could not be read."""
        ...


class Blobs(Protocol):
    """The part of the blob store that arming needs."""

    async def put(self, data: bytes, media_type: str = ..., name: str | None = ...) -> BlobRef:
        """Store content."""
        ...

    async def get(self, ref: BlobRef) -> bytes:
        """The content of a blob."""
        ...


def invalid_input(refused: Iterable[Refused]) -> ApplicationError:
    """The refusal of a run: not retryable; each line names the field, the value and what is allowed."""
    lines = list(dict.fromkeys(item.message for item in refused))
    text = "\n".join(lines)
    shown = text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"
    return ApplicationError(shown, type=INVALID_INPUT, non_retryable=True)


def unavailable(message: str) -> ApplicationError:
    """Tools cannot be read now: retryable, since a server may be starting and a store be back in a moment."""
    return ApplicationError(message, type=CATALOG_UNAVAILABLE)


class ArmActivity:
    """`mainspring.arm` and `mainspring.catalog_page`.

    Args:
        config: The worker's configuration.
        toolbox: Its tools.
        cache: Of this process; it is given the record, so that the first model call need not ask for it.
        blobs: For a catalog that is too large for the record.
    """

    def __init__(self, config: Config, toolbox: Tools, cache: ProcessCache, blobs: Blobs) -> None:
        self._config = config
        self._toolbox = toolbox
        self._cache = cache
        self._blobs = blobs
        self._paged: OrderedDict[str, list[CatalogPage]] = OrderedDict()

    @activity.defn(name="mainspring.arm")
    async def arm(self, request: ArmRequest) -> dict[str, Any]:
        """The arming record of a run: `Armed`.

        Raises: ApplicationError(INVALID_INPUT), not retryable; ApplicationError(CATALOG_UNAVAILABLE). Both
            carry `{"search_attributes": […]}`, so that also a run that is refused can be found.
        """
        attributes = await registered()
        try:
            armed = await self._armed(request.input, attributes)
        except ApplicationError as refusal:
            known = {"search_attributes": list(attributes)}
            raise ApplicationError(
                refusal.message, known, type=refusal.type, non_retryable=refusal.non_retryable
            ) from refusal
        self._cache.put_armed(armed)
        return wire(armed)

    async def _armed(self, run: RunInput, attributes: tuple[str, ...]) -> Armed:
        name, spec = self._agent(run)
        models = await self._checked(run, spec)
        tools, notes = await self._catalog(spec)
        missing = [attribute for attribute in ATTRIBUTES if attribute not in attributes]
        if missing:
            notes.append(f"the server has no search attribute {', '.join(missing)}: no run is found by it")
        armed = await self._record(name, spec, models, tools, notes)
        return armed.model_copy(update={"search_attributes": attributes})

    @activity.defn(name="mainspring.catalog_page")
    async def catalog_page(self, blob: BlobRef | None, page: int) -> dict[str, Any]:
        """One page of the declarations of a large catalog: `CatalogPage`.

        Raises: ApplicationError(CATALOG_UNAVAILABLE), retryable.
        """
        if blob is None:
            raise unavailable("the arming record names no catalog")
        pages = self._paged.get(blob.digest)
        if pages is None:
            pages = in_pages(await self._stored(blob))
            self._remember(blob, pages)
        if not 0 <= page < len(pages):
            raise unavailable(f"the catalog {blob.digest} has {len(pages)} pages, and no page {page}")
        return wire(pages[page])

    def _agent(self, run: RunInput) -> tuple[str, AgentSpec]:
        """The agent's name and its specification with the run's overrides."""
        if isinstance(run.agent, AgentSpec):
            name, spec = INLINE, run.agent
        else:
            found = self._config.agent_spec(run.agent)
            if found is None:
                raise invalid_input([Refused("agent", run.agent, _unknown(run.agent, self._config.agents))])
            name, spec = run.agent, found
        applied = apply(spec, run.overrides)
        if isinstance(applied, Refused):
            raise invalid_input([applied])
        return name, applied

    async def _checked(self, run: RunInput, spec: AgentSpec) -> tuple[ModelSpec, ...]:
        """The models to use, once nothing is wrong that is known without the tools."""
        refused = list(check(run, spec, servers=self._config.mcp, governor=self._config.governor))
        models, faults = await asyncio.to_thread(resolve_models, self._config, spec.model)
        refused += faults
        if spec.budgets.dollars is not None:
            refused += [_unpriced(spec, model) for model in models if not model.priced]
        refused += await asyncio.to_thread(secret_faults, models)
        refused += await attachment_faults(run.attachments, self._blobs)
        if refused:
            raise invalid_input(refused)
        return models

    async def _catalog(self, spec: AgentSpec) -> tuple[list[Sized], list[str]]:
        """The tools that the agent's patterns admit, by name, and what was left out."""
        catalog = await self._toolbox.catalog()
        failed = {name: why for name, why in catalog.failures.items() if concerns(spec.tools, name)}
        needed = {*catalog.required, *named_servers(spec.tools, self._config.mcp)}
        missing = [f"MCP server {name}: {why}" for name, why in sorted(failed.items()) if name in needed]
        if missing:
            raise unavailable(clip("; ".join(missing), 2_000))
        admitted = [tool for tool in catalog.tools if admits(spec.tools, tool.name)]
        kept, notes = without_strays(admitted)
        self._check_tools(spec, [tool.name for tool in catalog.tools], [item.tool for item in kept])
        kept += [sized(tool) for tool in intrinsics.definitions(spec.tools, spec.output_schema)]
        kept.sort(key=lambda item: item.tool.name)
        notes += [f"MCP server {name}, left out: {why}" for name, why in sorted(failed.items())]
        notes += list(catalog.notes)
        idle = idle_patterns(spec.tools, [item.tool.name for item in kept])
        notes += [f"the pattern {pattern!r} matches no tool today" for pattern in idle]
        return kept, notes

    def _check_tools(self, spec: AgentSpec, names: Sequence[str], admitted: Sequence[ToolDefinition]) -> None:
        refused = list(
            check_tools(
                spec,
                [tool.declaration for tool in admitted],
                servers=self._config.mcp,
                names=[name for name in names if not name.startswith("mcp:")],
            )
        )
        counted = Counter(tool.name for tool in admitted)
        twice = [name for name, count in counted.items() if count > 1]
        refused += [Refused("tools", name, "two tools have that name") for name in twice]
        if refused:
            raise invalid_input(refused)

    async def _record(
        self,
        name: str,
        spec: AgentSpec,
        models: tuple[ModelSpec, ...],
        tools: list[Sized],
        notes: Sequence[str],
    ) -> Armed:
        head = _canonical([wire(spec), [wire(model) for model in models]])
        catalog = b"[" + b",".join(item.content for item in tools) + b"]"
        if len(head) > RECORD_BYTES_MAX:
            allowed = f"with its models it takes {len(head)} bytes; at most {RECORD_BYTES_MAX} are recorded"
            raise invalid_input([Refused("agent", name, allowed)])
        armed = Armed(
            agent=name,
            spec=spec,
            models=models,
            digest=blake2b(b"%d:%b%b" % (len(head), head, catalog), digest_size=8).hexdigest(),
            notes=tuple(clip(note, NOTE_MAX) for note in notes[:NOTES_MAX]),
            decisions=DECISIONS,
        )
        if len(catalog) <= CATALOG_BYTES_MAX and len(head) + len(catalog) <= RECORD_BYTES_MAX:
            return armed.model_copy(update={"tools": tuple(item.tool for item in tools)})
        return await self._by_reference(armed, [item.tool for item in tools], catalog)

    async def _by_reference(self, armed: Armed, tools: list[ToolDefinition], content: bytes) -> Armed:
        """The record with its catalog in the blob store."""
        try:
            blob = await self._blobs.put(content, "application/json", "catalog.json")
        except Exception as error:  # every store fails in its own way
            raise unavailable(f"the catalog cannot be stored ({type(error).__name__})") from error
        pages = in_pages(tools)
        self._remember(blob, pages)
        return armed.model_copy(update={"tools": None, "catalog_blob": blob, "catalog_pages": len(pages)})

    def _remember(self, blob: BlobRef, pages: list[CatalogPage]) -> None:
        self._paged[blob.digest] = pages
        self._paged.move_to_end(blob.digest)
        if len(self._paged) > PAGED_MAX:
            self._paged.popitem(last=False)

    async def _stored(self, blob: BlobRef) -> tuple[ToolDefinition, ...]:
        try:
            return unwire(tuple[ToolDefinition, ...], json.loads(await self._blobs.get(blob)))
        except Exception as error:  # every store fails in its own way
            told = f"the catalog {blob.digest} cannot be read ({type(error).__name__})"
            raise unavailable(told) from error


def _canonical(value: object) -> bytes:
    """The value as JSON, one way only."""
    try:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8")
    except ValueError as error:
        told = "it holds text or a number that JSON cannot carry (half of a character, NaN)"
        raise invalid_input([Refused("agent", None, told)]) from error


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = near(name, names)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    known = clip(", ".join(names), 400) or "none"
    return f"no such agent in the worker's configuration{hint}; known: {known} (restart it after a change)"


def _unpriced(spec: AgentSpec, model: ModelSpec) -> Refused:
    what = "script" if model.model is None else model.model
    return Refused(
        "budgets.dollars",
        spec.budgets.dollars,
        f"the price of the model {model.name!r} ({what}) is not known, so dollars cannot be counted; "
        "use tokens, or a model with a known price",
    )
