"""A catalog as arming records it: each definition as JSON once, and declarations in pages.

Source: shared design, loop.md "Arming"; "Intrinsics" (names that nobody else may take).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel

from mainspring.schemas.activities import CatalogPage
from mainspring.schemas.tools import ToolDeclaration, ToolDefinition
from mainspring.workflows.catalog import INTRINSICS

__all__ = ["PAGE_BYTES_MAX", "Sized", "in_pages", "sized", "without_strays"]

PAGE_BYTES_MAX = 512 * 1024
DEFINITION_BYTES_MAX = 256 * 1024


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
        content = _json(tool)
        if tool.name in INTRINSICS:
            notes.append(f"{tool.name}, left out: the name is that of a built-in tool")
        elif len(content) > DEFINITION_BYTES_MAX:
            size = f"{len(content)} bytes of at most {DEFINITION_BYTES_MAX}"
            notes.append(f"{tool.name}, left out: its definition takes {size}")
        else:
            kept.append(Sized(tool, content))
    return kept, notes


def in_pages(tools: Iterable[ToolDefinition]) -> list[CatalogPage]:
    """Declarations in pages of at most 512 KiB; the same tools make the same pages."""
    pages: list[CatalogPage] = []
    page: list[ToolDeclaration] = []
    size = 0
    for tool in tools:
        more = len(_json(tool.declaration)) + 1
        if page and size + more > PAGE_BYTES_MAX - 64:
            pages.append(CatalogPage(tools=tuple(page)))
            page, size = [], 0
        page.append(tool.declaration)
        size += more
    return [*pages, CatalogPage(tools=tuple(page))] if page else pages


def _json(model: BaseModel) -> bytes:
    """What `wire` gives, as JSON text."""
    return model.model_dump_json(exclude_defaults=True).encode()
