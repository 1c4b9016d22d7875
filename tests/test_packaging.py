"""The wheel: what users install is one package, whole, and it runs away from the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]

NOT_CODE = {"build", "dist", "docs", "deploy", "tests", "bench", "examples"}
"""Folders at the root that the wheel does not hold."""


def test_every_package_is_mapped_to_its_folder() -> None:
    """pyproject.toml lists a package exactly when it says where its folder is."""
    assert sorted(PACKAGES) == sorted(FOLDERS)
    assert [folder for folder in FOLDERS.values() if not (ROOT / folder / "__init__.py").is_file()] == []


def python_folders(root: Path, package: str) -> dict[str, str]:
    """Packages below a folder, by name, with their paths from the root; links are not followed."""
    found = {package: str(root.relative_to(ROOT))} if list(root.glob("*.py")) else {}
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and not folder.is_symlink() and folder.name != "__pycache__":
            found |= python_folders(folder, f"{package}.{folder.name}")
    return found


def test_every_python_folder_is_a_listed_package() -> None:
    """A folder with Python in it, under any of the roots, is in the wheel."""
    expected = python_folders(ROOT / "src" / "mainspring", "mainspring")
    for folder in ROOT.iterdir():
        if folder.is_dir() and folder.name not in NOT_CODE and list(folder.glob("*.py")):
            expected |= python_folders(folder, f"mainspring.{folder.name}")
    assert expected == FOLDERS


def test_editors_see_the_same_folders() -> None:
    """src/mainspring links to every source folder at the root, relatively, and to nothing else."""
    links = {p.name: os.readlink(p) for p in (ROOT / "src" / "mainspring").iterdir() if p.is_symlink()}
    roots = {folder for folder in FOLDERS.values() if "/" not in folder}
    assert links == {folder: f"../../{folder}" for folder in roots}


# --- the wheel, built once -------------------------------------------------------------------------------


def copy_sources(target: Path) -> None:
    """Copy what a build needs, and nothing that an earlier build left behind."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    for folder in sorted({folder.split("/")[0] for folder in FOLDERS.values()}):
        shutil.copytree(
            ROOT / folder, target / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources, with the tools that are installed here."""
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    copy_sources(sources)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(sources)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """Paths of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path, names: set[str]) -> Message:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.packaging
def test_wheel_holds_one_package(names: set[str]) -> None:
    """Beside its own records the wheel installs `mainspring` and no other top-level name."""
    version = PROJECT["project"]["version"]
    assert {name.split("/")[0] for name in names} == {"mainspring", f"mainspring-{version}.dist-info"}


@pytest.mark.packaging
def test_wheel_holds_every_source_file(names: set[str]) -> None:
    """Every module and every data file of the packages is in the wheel, and nothing else is."""
    expected = {
        f"{package.replace('.', '/')}/{path.name}"
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).iterdir()
        if path.suffix in {".py", ".json", ".yaml"} or path.name == "py.typed"
    }
    assert {name for name in names if not name.startswith("mainspring-")} == expected
    assert "mainspring/py.typed" in expected


@pytest.mark.packaging
def test_wheel_is_pure_python(wheel: Path) -> None:
    """One wheel serves every platform."""
    assert wheel.name == f"mainspring-{PROJECT['project']['version']}-py3-none-any.whl"


@pytest.mark.packaging
def test_wheel_carries_its_licence(names: set[str], metadata: Message) -> None:
    """The licence's name and its whole text are in the wheel."""
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert (ROOT / "LICENSE").read_text().count("\n") > 150


@pytest.mark.packaging
def test_wheel_requires_what_the_project_declares(metadata: Message) -> None:
    """Dependencies and extras in METADATA are those of pyproject.toml; those of development are not in it."""
    required = {str(Requirement(text)) for text in metadata.get_all("Requires-Dist", [])}
    plain = {str(Requirement(text)) for text in PROJECT["project"]["dependencies"]}
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    optional = {
        str(Requirement(f'{text}; extra == "{extra}"')) for extra, texts in extras.items() for text in texts
    }
    assert required == plain | optional
    assert set(metadata.get_all("Provides-Extra", [])) == set(extras)
    assert metadata["Requires-Python"] == PROJECT["project"]["requires-python"]


# --- installed, away from the checkout -------------------------------------------------------------------


class Installed:
    """An environment that holds the wheel, and borrows only the dependencies of this one."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "environment"
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        venv.create(self.folder, with_pip=False, symlinks=True)
        self.bin = self.folder / ("Scripts" if os.name == "nt" else "bin")
        install = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
        # A path line adds a folder without running the .pth files in it: the editable install that this
        # environment has of the checkout stays invisible.
        site = Path(
            self.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        )
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the environment in an empty folder and return what it printed."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "MAINSPRING", "TEMPORAL"))
        }
        ran = subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=self.elsewhere,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installed:
    """The wheel in an otherwise empty environment."""
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


@pytest.mark.packaging
def test_installed_package_is_not_the_checkout(installed: Installed) -> None:
    """Away from the checkout, every package is imported from the environment."""
    code = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))"
    for path in installed.run("python", "-c", code, *PACKAGES).split():
        assert Path(path).is_relative_to(installed.folder), path


@pytest.mark.packaging
def test_installed_package_owns_no_common_name(installed: Installed) -> None:
    """`workflows`, `activities` and `schemas` stay free for the packages that own them."""
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    roots = [folder for folder in FOLDERS.values() if "/" not in folder]
    assert roots
    assert installed.run("python", "-c", code, *roots) == "[]\n"


@pytest.mark.packaging
def test_installed_plugin_imports(installed: Installed) -> None:
    """`mainspring.plugin` imports without a configuration, a server or a key."""
    assert (
        installed.run("python", "-c", "import mainspring.plugin as p; print(p.__name__)")
        == "mainspring.plugin\n"
    )


@pytest.mark.packaging
def test_installed_command_explains_itself(installed: Installed) -> None:
    """The console script `mainspring` runs and lists its commands."""
    assert list(PROJECT["project"]["scripts"]) == ["mainspring"]
    words = installed.run("mainspring", "--help")
    assert "worker" in words
    assert "run" in words


# A whole run of the installed wheel on the embedded server belongs here: `installed.run("mainspring", "run")`
# with a scripted model, and its configuration written into `installed.elsewhere`.
