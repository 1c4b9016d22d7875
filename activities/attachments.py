"""What is attached to messages and results, as far as a model can take it: images, documents, sound, text.

What cannot be shown becomes a line that says what it was; nothing here makes a call fail.

Source: shared design, context.md "Runs without end" (a missing blob is a typed stub); field-faults.md J12.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Sequence

from pydantic_ai.messages import BinaryContent

from mainspring.activities.setup import ReadsBlobs
from mainspring.schemas.ledger import Attachment
from mainspring.schemas.tools import BlobRef
from mainspring.workflows.values import clip, preview, safe_text

__all__ = ["Attachments", "label"]

KEPT_BYTES = 64 * 1024 * 1024
TEXT_SHOWN = 256 * 1024
IMAGE_BYTES = 5 * 1024 * 1024
_SHOWN = ("image/", "audio/", "application/pdf")
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")

Content = str | BinaryContent


def label(ref: BlobRef, note: str = "") -> str:
    """A line that stands for a blob: `[image/png, 12345 bytes, blob blake2b:…]`."""
    name = f"{clip(safe_text(ref.name), 100)}, " if ref.name else ""
    return f"[{name}{ref.media_type}, {ref.size} bytes, blob {ref.digest}{note}]"


class Attachments:
    """Reads attachments; keeps what it read, since each turn sends it again."""

    def __init__(self, blobs: ReadsBlobs | None) -> None:
        self._blobs = blobs
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    async def contents(self, attachments: Sequence[Attachment]) -> list[Content]:
        """Each attachment as the model is shown it."""
        return [await self._content(attachment) for attachment in attachments]

    async def image(self, ref: BlobRef) -> BinaryContent | None:
        """An image in the blob store; None when it is none, too large, or gone."""
        if not ref.media_type.startswith("image/") or ref.size > IMAGE_BYTES:
            return None
        data = await self._blob(ref)
        return None if data is None else BinaryContent(data, media_type=ref.media_type)

    async def _content(self, attachment: Attachment) -> Content:
        kind = attachment.media_type.split(";")[0].strip().lower()
        name = clip(safe_text(attachment.name), 100) if attachment.name else "file"
        data = await self._data(attachment)
        if data is None:
            missing = attachment.blob
            return label(missing, ", missing") if missing else f"[{name}, {kind}: unreadable]"
        if kind.startswith(_TEXTS):
            text = safe_text(data.decode("utf-8", "replace"))
            return f"File {name} ({kind}):\n{preview(text, limit=TEXT_SHOWN)}"
        if kind.startswith(_SHOWN):
            return BinaryContent(data, media_type=kind)
        return f"[{name}, {kind}, {len(data)} bytes: of a kind that is not shown]"

    async def _data(self, attachment: Attachment) -> bytes | None:
        if attachment.data is not None:
            try:
                return base64.b64decode(attachment.data, validate=True)
            except (binascii.Error, ValueError):
                return None
        return None if attachment.blob is None else await self._blob(attachment.blob)

    async def _blob(self, ref: BlobRef) -> bytes | None:
        kept = self._kept.get(ref.digest)
        if kept is not None:
            self._kept.move_to_end(ref.digest)
            return kept
        if self._blobs is None:
            return None
        try:
            data = await self._blobs.get(ref)
        except Exception:  # gone, altered, or a store that fails in its own way: the run goes on without it
            return None
        self._keep(ref.digest, data)
        return data

    def _keep(self, digest: str, data: bytes) -> None:
        if digest not in self._kept:
            self._size += len(data)
        self._kept[digest] = data
        while self._size > KEPT_BYTES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped)
