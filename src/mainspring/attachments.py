"""Files and bytes that go with a message."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
from pathlib import Path
from typing import Protocol

from mainspring.errors import MainspringError
from mainspring.run_errors import TooLarge
from mainspring.schemas.ledger import Attachment
from mainspring.schemas.tools import BlobRef

__all__ = ["Blobs", "attachment"]

INLINE_BYTES_MAX = 96 * 1024


class Blobs(Protocol):
    """The part of a blob store that attachments need."""

    async def put(
        self, data: bytes, media_type: str = "application/octet-stream", name: str | None = None
    ) -> BlobRef:
        """Store content; its reference."""
        ...


async def attachment(
    source: Path | bytes,
    *,
    media_type: str | None = None,
    name: str | None = None,
    blobs: Blobs | None = None,
) -> Attachment:
    """A file or bytes to go with a message: inline up to 96 KiB, beyond that through a blob store.

    Args:
        source: A file to read, or the content itself.
        media_type: Guessed from the name without one.
        name: What the model is told; a file's own name without one.
        blobs: A store that the run's workers read too.

    Raises: TooLarge (it needs a blob store and there is none), MainspringError (it cannot be read).
    """
    if isinstance(source, Path):
        content = await asyncio.to_thread(_read, source)
        name = name or source.name
    else:
        content = source
    guessed = mimetypes.guess_type(name)[0] if name else None
    kind = media_type or guessed or "application/octet-stream"
    if len(content) <= INLINE_BYTES_MAX:
        return Attachment(media_type=kind, name=name, data=base64.b64encode(content).decode())
    if blobs is None:
        raise TooLarge(
            f"{name or 'attachment'}: {len(content)} bytes; beyond {INLINE_BYTES_MAX} it needs a blob store "
            "(argument `blobs`)"
        )
    return Attachment(media_type=kind, name=name, blob=await blobs.put(content, kind, name))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MainspringError(f"{path}: {error.strerror or error}") from error
