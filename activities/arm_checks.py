"""Checks at arming that look outside: secrets that models name, attachments and the blobs that they refer to.

Source: shared design, tools.md "Secrets"; loop.md "Talking to a run" (attachments).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Protocol

from temporalio.exceptions import ApplicationError

from mainspring.activities.secrets import resolve
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.ledger import Attachment
from mainspring.schemas.tools import BlobRef
from mainspring.workflows.arming import Refused

__all__ = ["attachment_faults", "secret_faults"]

INLINE_BYTES_MAX = 512 * 1024


class _Reads(Protocol):
    async def get(self, ref: BlobRef) -> bytes: ...


def secret_faults(models: Iterable[ModelSpec]) -> list[Refused]:
    """Secrets that a model names and this worker does not have. No value is ever part of what is said."""
    refused: list[Refused] = []
    for model in models:
        named = {f"models.{model.name}.headers.{key}": value for key, value in model.headers.items()}
        if model.api_key is not None:
            named[f"models.{model.name}.api_key"] = model.api_key
        for field, reference in named.items():
            try:
                resolve(reference)
            except ApplicationError as error:
                refused.append(Refused(field, None, error.message))
    return refused


async def attachment_faults(attachments: Sequence[Attachment], blobs: _Reads) -> list[Refused]:
    """Attachments that cannot be shown to a model."""
    refused: list[Refused] = []
    inline = 0
    for index, attachment in enumerate(attachments):
        field = f"attachments[{index}]"
        if (attachment.data is None) == (attachment.blob is None):
            refused.append(Refused(field, attachment.name, "give either `data` (base64) or `blob`"))
        elif attachment.data is not None:
            inline += len(attachment.data)
            if not _is_base64(attachment.data):
                refused.append(Refused(f"{field}.data", None, "it is not base64"))
        elif attachment.blob is not None and (why := await _unreadable(attachment.blob, blobs)):
            refused.append(Refused(f"{field}.blob", attachment.blob.digest, why))
    if inline > INLINE_BYTES_MAX:
        told = f"{inline} bytes are inline; at most {INLINE_BYTES_MAX} in all, and larger ones by `blob`"
        refused.append(Refused("attachments", None, told))
    return refused


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


async def _unreadable(blob: BlobRef, blobs: _Reads) -> str | None:
    try:
        content = await blobs.get(blob)
    except Exception as error:  # every store fails in its own way
        return f"it cannot be read from the blob store ({type(error).__name__})"
    return None if len(content) == blob.size else f"it has {len(content)} bytes and not {blob.size}"
