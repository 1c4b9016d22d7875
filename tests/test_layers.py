"""Who may import whom: the layers of docs/architecture.md, read from the sources.

The rules hold for every module of the package; a new module is judged by the folder it lies in. Each rule is
also shown a planted violation, so that a checker that sees nothing cannot pass.
"""

import ast
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SHELL = ("agent_run", "shell", "retrieval_run")
"""Modules of workflows/ that hold workflows and talk to Temporal. Everything else in workflows/ is pure."""

PURE_LIBRARIES = {
    "annotated_types",
    "jsonschema",
    "numpy",
    "pydantic",
    "pydantic_core",
    "rank_bm25",
    "referencing",
}
"""What a pure module may import beside the standard library and us. None of it does I/O when it is used."""

PURE_FORBIDDEN = frozenset(
    {
        "asyncio",
        "concurrent",
        "ctypes",
        "fileinput",
        "ftplib",
        "getpass",
        "glob",
        "http",
        "importlib",
        "inspect",
    }
    | {"io", "locale", "logging", "multiprocessing", "os", "pathlib", "pickle", "platform", "queue", "random"}
    | {"sched", "secrets", "select", "selectors", "shelve", "shutil", "signal", "smtplib", "socket", "ssl"}
    | {"socketserver", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib.request", "uuid"}
    | {"webbrowser", "zoneinfo"}
)
"""Standard modules with a clock, chance, an environment, files, the network or threads behind them."""

PURE_EXCEPTED = {
    ("mainspring.workflows.universe", "concurrent.futures.Future"),
    ("mainspring.workflows.universe", "concurrent.futures.ThreadPoolExecutor"),
}
"""An index is made in a thread of its own: it is the same whichever workflow task waits for it."""

SHELL_FORBIDDEN = PURE_FORBIDDEN - {"asyncio"}
"""The shell lives in Temporal's own event loop; everything else is forbidden to it for the same reason."""

FORBIDDEN_CALLS = {"eval", "exec", "hash", "input", "open", "print", "__import__"}
"""Built-in functions whose result or effect a replay would not repeat (`hash` is salted)."""

FORBIDDEN_NAMES = {
    f"{owner}.{name}"
    for owner, names in {
        "datetime.datetime": ("now", "today", "utcnow"),
        "datetime.date": ("today",),
        "asyncio": ("TaskGroup", "as_completed", "wait", "to_thread", "run"),
    }.items()
    for name in names
}
"""Clocks that a permitted import brings, and what of asyncio is not deterministic inside a workflow."""


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module imports, absolute: `pathlib.Path`, `mainspring.schemas.run`."""

    module: str
    target: str
    line: int

    def is_of(self, *packages: str) -> bool:
        """Whether it is one of these packages or modules, or lies in one."""
        return any(self.target == package or self.target.startswith(f"{package}.") for package in packages)

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


class Sources:
    """Modules by name, parsed: what the rules are asked about."""

    def __init__(self, texts: dict[str, str], packages: set[str]) -> None:
        self.trees = {name: ast.parse(text) for name, text in sorted(texts.items())}
        self.packages = packages

    def modules(self, *packages: str) -> list[str]:
        """These modules and packages, and what lies in them."""
        inside = tuple(f"{package}." for package in packages)
        return [name for name in self.trees if name in packages or name.startswith(inside)]

    def imports(self, module: str) -> Iterator[Import]:
        """Everything that the module imports, wherever in its text, in the order of the text."""
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                yield from (Import(module, alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(module, node)
                yield from (Import(module, f"{base}.{alias.name}", node.lineno) for alias in node.names)

    def _base(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = module if module in self.packages else module.rpartition(".")[0]
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        return ".".join([*parents, *([node.module] if node.module else [])])

    def ours(self, module: str) -> Iterator[Import]:
        """Imports of modules of ours, each as the module that it names or takes something from."""
        for found in self.imports(module):
            if found.is_of("mainspring"):
                yield Import(module, self._module_of(found.target), found.line)

    def _module_of(self, target: str) -> str:
        while target not in self.trees and "." in target:
            target = target.rpartition(".")[0]
        return target

    def names(self, module: str) -> Iterator[tuple[str, int]]:
        """Every dotted name that the module uses, spelt from the import that it comes from."""
        aliases: dict[str, str] = {}
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                aliases |= {a.asname or a.name.partition(".")[0]: a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Attribute | ast.Name):
                first, *rest = ast.unparse(node).split(".")
                yield ".".join([aliases.get(first, first), *rest]), node.lineno

    def set_orders(self, module: str) -> Iterator[int]:
        """Lines where the order of a set that is made right there decides something."""
        for node in ast.walk(self.trees[module]):
            match node:
                case ast.For(iter=source) | ast.ListComp(generators=[ast.comprehension(iter=source), *_]):
                    pass
                case ast.Call(func=ast.Name("list" | "tuple" | "enumerate"), args=[source, *_]):
                    pass
                case ast.Call(func=ast.Attribute(attr="join"), args=[source]):
                    pass
                case _:
                    continue
            match source:
                case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name("set" | "frozenset")):
                    yield node.lineno

    def calls(self, module: str) -> Iterator[tuple[str, int]]:
        """Built-in functions that the module calls by their bare name."""
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id, node.lineno


def read() -> Sources:
    """Every module of the package, found through the folders that pyproject.toml maps."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts: dict[str, str] = {}
    packages: set[str] = set()
    for package, folder in project["tool"]["setuptools"]["package-dir"].items():
        for path in (ROOT / folder).glob("*.py"):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            packages |= {package}
            texts[name] = path.read_text()
    return Sources(texts, packages)


def shells(sources: Sources) -> list[str]:
    """The modules that talk to Temporal."""
    return sources.modules(*(f"mainspring.workflows.{name}" for name in SHELL))


def pure(sources: Sources) -> list[str]:
    """The decisions: what else lies in workflows/."""
    return [m for m in sources.modules("mainspring.workflows") if m not in shells(sources)]


def foreign(found: Import) -> bool:
    """Whether it is neither ours nor of the standard library."""
    return not found.is_of("mainspring") and found.target.partition(".")[0] not in sys.stdlib_module_names


# --- the rules -------------------------------------------------------------------------------------------


def init_imports_nothing(sources: Sources) -> list[str]:
    """`mainspring/__init__.py` runs inside every workflow sandbox, so it imports nothing."""
    return [str(found) for found in sources.imports("mainspring")] if "mainspring" in sources.trees else []


def schemas_know_nobody(sources: Sources) -> list[str]:
    """Schemas import nothing of ours but each other."""
    return [
        str(found)
        for module in sources.modules("mainspring.schemas")
        for found in sources.ours(module)
        if not found.is_of("mainspring.schemas")
    ]


def pure_modules_know_schemas(sources: Sources) -> list[str]:
    """Decisions import schemas and other decisions, and nothing else of ours."""
    return [
        str(found)
        for module in pure(sources)
        for found in sources.ours(module)
        if found.target in shells(sources) or not found.is_of("mainspring.schemas", "mainspring.workflows")
    ]


def pure_modules_do_no_io(sources: Sources) -> list[str]:
    """Decisions and schemas import neither Temporal nor anything with the outside world behind it."""
    modules = [*pure(sources), *sources.modules("mainspring.schemas")]
    return [
        str(found)
        for module in modules
        for found in sources.imports(module)
        if (found.is_of(*PURE_FORBIDDEN) and (found.module, found.target) not in PURE_EXCEPTED)
        or (foreign(found) and found.target.partition(".")[0] not in PURE_LIBRARIES)
    ]


def workflow_code_repeats(sources: Sources) -> list[str]:
    """No workflow code calls a clock, chance, a file or `hash`, nor leaves an order to asyncio or a set."""
    found: list[str] = []
    for module in [*sources.modules("mainspring.workflows"), *sources.modules("mainspring.schemas")]:
        called = [(at, f"calls {name}") for name, at in sources.calls(module) if name in FORBIDDEN_CALLS]
        named = [(at, f"uses {name}") for name, at in sources.names(module) if name in FORBIDDEN_NAMES]
        ordered = [(at, "takes the order of a set") for at in sources.set_orders(module)]
        found += [f"{module}:{at} {what}" for at, what in sorted(called + named + ordered)]
    return found


def shell_knows_pure_modules(sources: Sources) -> list[str]:
    """The shell imports schemas, workflow code and errors of ours; neither activities nor facades."""
    allowed = ("mainspring.schemas", "mainspring.workflows", "mainspring.errors")
    return [str(i) for m in shells(sources) for i in sources.ours(m) if not i.is_of(*allowed)]


def shell_imports_no_clock(sources: Sources) -> list[str]:
    """The shell takes time, chance and identity from Temporal only."""
    return [str(i) for m in shells(sources) for i in sources.imports(m) if i.is_of(*SHELL_FORBIDDEN)]


def activities_know_no_shell(sources: Sources) -> list[str]:
    """Activities import neither workflows nor what assembles the product."""
    assembled = ("mainspring.plugin", "mainspring.cli", "mainspring.worker")
    return [
        str(found)
        for module in sources.modules("mainspring.activities")
        for found in sources.ours(module)
        if found.target in shells(sources) or found.is_of(*assembled)
    ]


def providers_live_in_activities(sources: Sources) -> list[str]:
    """pydantic_ai, which breaks in the sandbox, is imported in activities only."""
    inside = sources.modules("mainspring.activities")
    return [
        str(i) for m in sources.trees if m not in inside for i in sources.imports(m) if i.is_of("pydantic_ai")
    ]


def no_cycles(sources: Sources) -> list[str]:
    """Imports among our modules make no circle, also not through a function or for types only."""
    edges = {m: sorted({i.target for i in sources.ours(m)} & set(sources.trees) - {m}) for m in sources.trees}
    done: set[str] = set()

    def circle(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        found = next((c for target in edges[module] if (c := circle(target, [*path, module]))), [])
        done.add(module)
        return found

    return [" → ".join(found) for module in edges if (found := circle(module, []))][:1]


Rule = Callable[[Sources], list[str]]
RULES: tuple[Rule, ...] = (
    init_imports_nothing,
    schemas_know_nobody,
    pure_modules_know_schemas,
    pure_modules_do_no_io,
    workflow_code_repeats,
    shell_knows_pure_modules,
    shell_imports_no_clock,
    activities_know_no_shell,
    providers_live_in_activities,
    no_cycles,
)


# --- our sources keep them -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_layers_hold(rule: Rule) -> None:
    """Every module of ours keeps every rule of the layers."""
    assert rule(read()) == []


def test_layers_are_read_whole() -> None:
    """The rules see every Python file that src/mainspring holds or links to, and know shell from decision."""
    sources = read()
    walked = os.walk(ROOT / "src" / "mainspring", followlinks=True)
    files = [name for _, _, names in walked for name in names if name.endswith(".py")]
    assert len(sources.trees) == len(files)
    assert "mainspring.workflows.agent_run" in shells(sources)
    assert "mainspring.workflows.gates" in pure(sources)


# --- the rules can fail ----------------------------------------------------------------------------------

PLANTED = [
    (init_imports_nothing, "", "from mainspring.client import start_run", "mainspring.client.start_run"),
    (init_imports_nothing, "", "from __future__ import annotations", "__future__"),
    (schemas_know_nobody, "schemas.run", "from mainspring.workflows import guard", "workflows.guard"),
    (schemas_know_nobody, "schemas.run", "from mainspring import errors", "mainspring.errors"),
    (pure_modules_know_schemas, "workflows.guard", "import mainspring.errors", "mainspring.errors"),
    (pure_modules_know_schemas, "workflows.guard", "from . import agent_run", "workflows.agent_run"),
    (
        pure_modules_know_schemas,
        "workflows.gates.drift",
        "def f(): from ...activities import model",
        ".model",
    ),
    (pure_modules_do_no_io, "workflows.guard", "from temporalio import workflow", "temporalio.workflow"),
    (pure_modules_do_no_io, "workflows.guard", "from pathlib import Path", "pathlib.Path"),
    (pure_modules_do_no_io, "workflows.gates", "import os.path as p", "os.path"),
    (pure_modules_do_no_io, "workflows.guard", "from urllib import request", "urllib.request"),
    (pure_modules_do_no_io, "workflows.guard", "if True: import asyncio", "asyncio"),
    (pure_modules_do_no_io, "workflows.guard", "import httpx", "httpx"),
    (pure_modules_do_no_io, "schemas.run", "import time", "time"),
    (workflow_code_repeats, "workflows.agent_run", "x = open('f').read()", "calls open"),
    (workflow_code_repeats, "workflows.guard", "x = hash('f') % 8", "calls hash"),
    (workflow_code_repeats, "workflows.guard", "for x in {1, 2}: pass", "order of a set"),
    (workflow_code_repeats, "workflows.guard", "x = ', '.join(set('ab'))", "order of a set"),
    (workflow_code_repeats, "workflows.guard", "x = [y for y in frozenset('ab')]", "order of a set"),
    (
        workflow_code_repeats,
        "workflows.agent_run",
        "from datetime import datetime as d; d.now()",
        "datetime.now",
    ),
    (workflow_code_repeats, "workflows.guard", "import datetime; f = datetime.date.today", "date.today"),
    (workflow_code_repeats, "workflows.agent_run", "import asyncio; asyncio.wait([])", "asyncio.wait"),
    (
        workflow_code_repeats,
        "workflows.agent_run",
        "from asyncio import TaskGroup as T; T()",
        "asyncio.TaskGroup",
    ),
    (
        shell_knows_pure_modules,
        "workflows.agent_run",
        "from mainspring.activities import model",
        "activities.model",
    ),
    (shell_knows_pure_modules, "workflows.shell.inbox", "from mainspring import plugin", "mainspring.plugin"),
    (shell_imports_no_clock, "workflows.agent_run", "from time import monotonic", "time.monotonic"),
    (shell_imports_no_clock, "workflows.shell.inbox", "from os import environ", "os.environ"),
    (shell_imports_no_clock, "workflows.retrieval_run", "import random", "random"),
    (
        activities_know_no_shell,
        "activities.model",
        "from mainspring.workflows.agent_run import R",
        "agent_run",
    ),
    (activities_know_no_shell, "activities.model", "from mainspring import cli", "mainspring.cli"),
    (providers_live_in_activities, "client", "from pydantic_ai import direct", "pydantic_ai.direct"),
    (no_cycles, "schemas.run", "from mainspring import cli", "schemas.run → mainspring.cli → "),
]

WELL_FORMED = {
    "": '"""Nothing."""',
    "cli": "from mainspring import plugin\nfrom mainspring.schemas import run",
    "client": "from mainspring.schemas.run import RunInput\nimport os",
    "errors": "from mainspring.schemas import run",
    "plugin": "from mainspring.activities import model\nfrom mainspring.workflows import agent_run",
    "activities": "",
    "activities.model": "import asyncio, time\nfrom pydantic_ai import direct\n"
    "from mainspring.workflows import guard\nfrom mainspring import errors",
    "schemas": "",
    "schemas.run": "from datetime import datetime\nimport pydantic\nclass RunInput: at: datetime",
    "workflows": "",
    "workflows.agent_run": "import asyncio\nfrom temporalio import workflow\n"
    "from mainspring.errors import MainspringError\nfrom mainspring.workflows import guard\n"
    "async def f():\n    await asyncio.gather()\n    return workflow.now(), workflow.random()",
    "workflows.gates": "from mainspring.workflows.gates import drift",
    "workflows.gates.drift": "from mainspring.workflows import guard",
    "workflows.guard": "from hashlib import blake2b\nfrom ..schemas.run import RunInput\n"
    "x = blake2b(), sorted({1, 2}), {y for y in {1}}, any(y for y in {1})",
    "workflows.retrieval_run": "from temporalio import workflow",
    "workflows.shell": "",
    "workflows.shell.inbox": "from temporalio import workflow",
}
"""A small package that keeps every rule, by module below `mainspring`."""


def planted(module: str = "", text: str = "") -> Sources:
    """The well-formed package with one text put at the head of one module."""
    texts = WELL_FORMED | {module: f"{text}\n{WELL_FORMED[module]}"}
    named = {f"mainspring.{name}".rstrip("."): body for name, body in texts.items()}
    return Sources(named, {name.rpartition(".")[0] for name in named} - {""})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_well_formed_package_passes(rule: Rule) -> None:
    """No rule objects to a package that keeps it."""
    assert rule(planted()) == []


@pytest.mark.parametrize(
    ("rule", "module", "text", "words"), PLANTED, ids=lambda value: getattr(value, "__name__", None)
)
def test_planted_violation_is_detected(rule: Rule, module: str, text: str, words: str) -> None:
    """A violation put into a well-formed package is found, once, and named with its module."""
    found = rule(planted(module, text))
    assert len(found) == 1
    assert f"mainspring.{module}".rstrip(".") in found[0]
    assert words in found[0]


def test_every_rule_has_a_planted_violation() -> None:
    """No rule goes without a proof that it can fail."""
    assert {rule for rule, *_ in PLANTED} == set(RULES)
