"""A catalog as arming records it: each definition as JSON once, and declarations in pages.

Source: shared design, loop.md "Arming"; "Intrinsics" (names that nobody else may take).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from mainspring.schemas.activities import CatalogPage
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition
from mainspring.workflows.catalog import INTRINSICS
from mainspring.workflows.values import clip

__all__ = ["PAGE_BYTES_MAX", "Sized", "in_pages", "sized", "without_strays"]

PAGE_BYTES_MAX = 512 * 1024
DEFINITION_BYTES_MAX = 256 * 1024
DESCRIPTIONS_BYTES = 8 * 1024 * 1024
DESCRIPTION_BYTES = (512, 12 * 1024)
"""Of all descriptions in pages, and least and most of one: pages are history, and the server takes 50 MB.
A run ranks by these beginnings; models are told the whole."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A definition and its JSON, made once: catalogs have thousands."""

    tool: ToolDefinition
    content: bytes


def sized(tool: ToolDefinition) -> Sized:
    """A definition with its JSON."""
    return Sized(tool, _json(tool))


def without_strays(tools: Iterable[ToolDefinition]) -> tuple[list[Sized], list[str]]:
    """Without what would stand for a tool of ours, or is too large to be told to a model."""
    kept: list[Sized] = []
    notes: list[str] = []
    for tool in tools:
        try:
            content = _json(tool)
        except ValueError:
            notes.append(f"{clip(tool.name, 128)}, left out: it holds half of a character")
            continue
        if tool.name in INTRINSICS:
            notes.append(f"{tool.name}, left out: the name is that of a built-in tool")
        elif len(content) > DEFINITION_BYTES_MAX:
            size = f"{len(content)} bytes of at most {DEFINITION_BYTES_MAX}"
            notes.append(f"{tool.name}, left out: its definition takes {size}")
        else:
            kept.append(Sized(tool, content))
    return kept, notes


def in_pages(tools: Sequence[ToolDefinition]) -> list[CatalogPage]:
    """Declarations in pages of at most 512 KiB; the same tools make the same pages."""
    least, most = DESCRIPTION_BYTES
    bound = max(least, min(most, DESCRIPTIONS_BYTES // max(1, len(tools))))
    pages: list[CatalogPage] = []
    page: list[ToolDeclaration] = []
    size = 0
    for tool in tools:
        declaration = _begun(tool.declaration, bound)
        more = len(_json(declaration)) + 1
        if page and size + more > PAGE_BYTES_MAX - 64:
            pages.append(CatalogPage(tools=tuple(page)))
            page, size = [], 0
        page.append(declaration)
        size += more
    return [*pages, CatalogPage(tools=tuple(page))] if page else pages


def _begun(declaration: ToolDeclaration, bound: int) -> ToolDeclaration:
    """The declaration with at most the first `bound` bytes of its description."""
    raw = declaration.description.encode()
    if len(raw) <= bound:
        return declaration
    return declaration.model_copy(update={"description": raw[:bound].decode("utf-8", "ignore")})


def _json(model: BaseModel) -> bytes:
    """What `wire` gives, as JSON text."""
    return model.model_dump_json(exclude_defaults=True).encode()
