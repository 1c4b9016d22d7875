"""An environment for each peer: their dependencies clash with ours or with each other's."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

INSTALL_SECONDS = 600.0
# The same SDK for all, so that only what stands on top of it differs.
SDK = version("temporalio")
REQUIREMENTS = {
    "openai-agents": (f"temporalio[openai-agents]=={SDK}",),
    "pydantic-ai": ("pydantic-ai-slim[temporal]", f"temporalio=={SDK}"),
}
NAMED = {"openai-agents": "temporalio-openai-agents", "pydantic-ai": "pydantic-ai-slim"}
"""Peer → the distribution whose version the report names."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that can be run with `python`."""

    python: Path
    version: str


@dataclass(frozen=True, slots=True)
class NotInstalled:
    """A peer that cannot be run here, and why."""

    reason: str


def ensure(peer: str) -> Installed | NotInstalled:
    """Install `peer` into its environment in the cache folder, unless it is there already."""
    home = _cache() / f"{peer}-sdk{SDK}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = home / "installed"
    try:
        if not done.exists():
            _install(home, python, REQUIREMENTS[peer])
            done.touch()
        return Installed(python, _version(python, NAMED[peer]))
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or str(error)).strip().splitlines()
        return NotInstalled(lines[-1] if lines else f"exit status {error.returncode}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return NotInstalled(str(error))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mainspring-bench"


def _install(home: Path, python: Path, requirements: tuple[str, ...]) -> None:
    shutil.rmtree(home, ignore_errors=True)
    uv = _uv()
    venv.create(home, with_pip=uv is None)
    installer = [uv, "pip", "install", "--python"] if uv else []
    pip = [str(python), "-m", "pip", "install"]
    _run([*installer, str(python), *requirements] if installer else [*pip, *requirements])


def _uv() -> str | None:
    beside = Path(sysconfig.get_path("scripts")) / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def _version(python: Path, distribution: str) -> str:
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    return _run([str(python), "-c", code]).strip()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    return done.stdout
