"""The state folder: where the embedded server's database, logs and blobs of this machine lie."""

from __future__ import annotations

from pathlib import Path

__all__ = ["state_folder"]


def state_folder(path: str | Path) -> Path:
    """That folder, made where there is none; one that we make keeps itself out of git.

    Raises: OSError.
    """
    folder = Path(path)
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
    return folder
