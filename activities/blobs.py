"""The blob store: content by its digest, in a folder or in any store that fsspec knows.

Several writers of one content are fine: they write the same bytes under the same name. What is read is
compared with its digest, so a half-written or altered blob is an error and never content.

Source: shared design, context.md "Runs without end" (blob store).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]

from mainspring.schemas.tools import BlobRef
from mainspring.workflows.values import clip, safe_text

__all__ = ["BlobCorrupt", "BlobError", "BlobMissing", "BlobStore", "digest_of"]

_DIGEST = re.compile(r"blake2b:([0-9a-f]{2})([0-9a-f]{62})")
_USERINFO = re.compile(r"(?<=://)[^/@]*@")
NAME_MAX = 200


class BlobError(Exception):
    """Content cannot be had from the store."""


class BlobMissing(BlobError):
    """The store holds nothing under that digest: pruned, erased, or written to another store."""


class BlobCorrupt(BlobError):
    """What the store holds under that digest is something else."""


def digest_of(data: bytes) -> str:
    """`blake2b:<64 hex digits>` of the content."""
    return f"blake2b:{blake2b(data, digest_size=32).hexdigest()}"


class BlobStore:
    """Content-addressed store at an fsspec address; a bare path is a folder.

    Args:
        url: `file:///var/blobs`, `memory://runs`, `s3://bucket/prefix` …
    Raises: ValueError, when the address is of a kind that is not installed or does not exist.
    """

    def __init__(self, url: str) -> None:
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ValueError(f"blob store {_shown(url)}: {error}") from error
        self.url = _shown(url)
        protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        self._local = "file" in protocols
        self.shared = not self._local and "memory" not in protocols
        """Whether workers on several hosts see one store."""

    def describe(self) -> dict[str, Any]:
        """What `doctor` shows; no secret that the address may hold."""
        return {"url": self.url, "shared": self.shared, "writable": self._writable()}

    async def put(
        self, data: bytes, media_type: str = "application/octet-stream", name: str | None = None
    ) -> BlobRef:
        """Store content and return its reference; storing it twice is storing it once.

        Raises: OSError, or what the store's library raises, when it cannot be written.
        """
        digest = digest_of(data)
        await asyncio.to_thread(self._write, self._path(digest), data)
        shown = clip(safe_text(name), NAME_MAX) if name else None
        return BlobRef(digest=digest, size=len(data), media_type=clip(media_type, 100), name=shown)

    async def get(self, ref: BlobRef) -> bytes:
        """The content.

        Raises: BlobMissing, BlobCorrupt.
        """
        path = self._path(ref.digest)
        try:
            data: bytes = await asyncio.to_thread(self._fs.cat_file, path)
        except FileNotFoundError:
            raise BlobMissing(f"{ref.digest} ({ref.size} bytes) is not in {self.url}") from None
        if digest_of(data) != ref.digest:
            raise BlobCorrupt(f"{ref.digest} in {self.url} holds {len(data)} bytes of another digest")
        return data

    async def erase(self, digests: Iterable[str]) -> int:
        """Remove these contents; returns how many there were."""
        paths = [self._path(digest) for digest in digests]
        return await asyncio.to_thread(lambda: sum(self._remove(path) for path in paths))

    async def prune(self, age_seconds: float) -> int:
        """Remove what was last written longer ago than this; returns how many there were."""
        return await asyncio.to_thread(self._prune, time.time() - age_seconds)

    def _path(self, digest: str) -> str:
        """Where a digest lies.

        Raises: BlobMissing, when it is not a digest: no text from a run becomes a path.
        """
        matched = _DIGEST.fullmatch(digest)
        if matched is None:
            raise BlobMissing(f"{clip(digest, 80)!r} is not a digest")
        return f"{self._root.rstrip('/')}/{matched[1]}/{matched[2]}"

    def _write(self, path: str, data: bytes) -> None:
        if self._local:
            _write_file(Path(path), data)
        else:
            # One request makes an object in an object store, so it is there whole or not at all.
            self._fs.pipe_file(path, data)

    def _remove(self, path: str) -> int:
        try:
            self._fs.rm_file(path)
        except FileNotFoundError:
            return 0
        return 1

    def _prune(self, before: float) -> int:
        removed = 0
        for path in self._fs.find(self._root) if self._fs.exists(self._root) else ():
            with suppress(FileNotFoundError):
                if self._fs.modified(path).timestamp() < before:
                    removed += self._remove(path)
        return removed

    def _writable(self) -> bool:
        if not self._local:
            return True
        folder = Path(self._root)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return os.access(folder, os.W_OK)


def _write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. One that is there, intact, is only made young again for `prune`."""
    with suppress(FileNotFoundError):
        if path.read_bytes() == data:
            os.utime(path)
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{uuid.uuid4().hex}")
    try:
        half.write_bytes(data)
        os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)


def _shown(url: str) -> str:
    return _USERINFO.sub("", url)
