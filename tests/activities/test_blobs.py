"""The blob store: content by digest, whole or not at all, in a folder or in memory."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from pathlib import Path

import pytest

from mainspring.activities.blobs import BlobCorrupt, BlobMissing, BlobStore, digest_of
from mainspring.schemas.tools import BlobRef


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """A store of each kind, empty."""
    return BlobStore(
        f"file://{tmp_path}/blobs" if request.param == "file" else f"memory://{uuid.uuid4().hex}"
    )


def path_of(root: Path, ref: BlobRef) -> Path:
    """Where a store in that folder keeps it."""
    digits = ref.digest.removeprefix("blake2b:")
    return root / digits[:2] / digits[2:]


async def test_blob_comes_back_as_it_was_put(store: BlobStore) -> None:
    """What is put is what is got, whatever its bytes, the empty content among them."""
    for data in (b"", b"\x00\xff" * 1_000, "日本".encode()):
        ref = await store.put(data, "text/plain", "a.txt")
        assert ref == BlobRef(digest=digest_of(data), size=len(data), media_type="text/plain", name="a.txt")
        assert await store.get(ref) == data


def test_digest_is_of_the_content() -> None:
    """A digest is blake2b of 32 bytes, in hex."""
    empty = "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
    assert digest_of(b"") == f"blake2b:{empty}"


async def test_blob_put_by_many_at_once_is_one(store: BlobStore) -> None:
    """Writers of the same content do not disturb each other."""
    refs = await asyncio.gather(*(store.put(b"same" * 5_000) for _ in range(20)))
    assert len({ref.digest for ref in refs}) == 1
    assert await store.get(refs[0]) == b"same" * 5_000


async def test_blob_that_is_not_there_is_missing(store: BlobStore) -> None:
    """Unknown content is a typed error that names the digest."""
    with pytest.raises(BlobMissing, match="blake2b:"):
        await store.get(BlobRef(digest=digest_of(b"other"), size=5))


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "blake2b:zz", "blake2b:" + "0" * 63 + "/"])
async def test_text_that_is_no_digest_is_no_path(store: BlobStore, digest: str) -> None:
    """What is not a digest never reaches the file system."""
    with pytest.raises(BlobMissing, match="not a digest"):
        await store.get(BlobRef(digest=digest, size=1))


async def test_altered_blob_is_corrupt_and_heals(tmp_path: Path) -> None:
    """Content that does not meet its digest is an error, until it is put again."""
    store = BlobStore(str(tmp_path))
    ref = await store.put(b"right")
    path_of(tmp_path, ref).write_bytes(b"wrong")
    with pytest.raises(BlobCorrupt, match=ref.digest):
        await store.get(ref)
    await store.put(b"right")
    assert await store.get(ref) == b"right"


async def test_put_leaves_no_half_file(tmp_path: Path) -> None:
    """After a put only the content itself lies in the folder."""
    store = BlobStore(str(tmp_path))
    ref = await store.put(b"x" * 10_000)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path_of(tmp_path, ref)]


async def test_erase_removes_what_is_named(store: BlobStore) -> None:
    """Erasing removes the named contents and says how many there were."""
    kept, gone = await store.put(b"kept"), await store.put(b"gone")
    assert await store.erase([gone.digest, digest_of(b"never there")]) == 1
    assert await store.get(kept) == b"kept"
    with pytest.raises(BlobMissing):
        await store.get(gone)


async def test_prune_removes_the_old_only(tmp_path: Path) -> None:
    """Pruning goes by when content was last put; putting it again makes it young."""
    store = BlobStore(str(tmp_path))
    old, again, young = [await store.put(data) for data in (b"old", b"again", b"young")]
    for ref in (old, again):
        os.utime(path_of(tmp_path, ref), (time.time() - 1_000,) * 2)
    await store.put(b"again")
    assert await store.prune(500) == 1
    assert await store.get(again) == b"again"
    assert await store.get(young) == b"young"
    with pytest.raises(BlobMissing):
        await store.get(old)


async def test_prune_of_an_empty_store_removes_nothing(store: BlobStore) -> None:
    """A store that was never written can be pruned."""
    assert await store.prune(0) == 0


async def test_name_is_made_safe(store: BlobStore) -> None:
    """A name from anywhere is bounded, on one line, and can be written to history."""
    ref = await store.put(b"x", name="a\ud800\n" + "b" * 500)
    assert ref.name is not None
    assert ref.name.startswith("a\ufffd ")
    assert len(ref.name) == 200


def test_describe_shows_no_secret(tmp_path: Path) -> None:
    """What is shown of a store holds no credentials of its address."""
    assert BlobStore(str(tmp_path)).describe() == {"url": str(tmp_path), "shared": False, "writable": True}
    assert not BlobStore("memory://x").shared


def test_unknown_kind_of_store_is_refused() -> None:
    """An address of no known kind is refused at once, by its address."""
    with pytest.raises(ValueError, match=r"blob store nonesuch://host"):
        BlobStore("nonesuch://user:secret@host/x")
