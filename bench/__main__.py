"""`python -m bench`: measure, print one table, and with `--check` fail when a bar is missed."""

import argparse
import asyncio
import contextlib
import json
import platform
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from bench import report, router
from bench.contestant import ENGINE, FLOOR
from bench.peers import install
from bench.remote import ContestantFailed, Remote, started
from bench.server import ServerFailed, embedded
from bench.suite import QUICK, Samples, Sizes, Suite

GROUPS = ("history", "time", "replay", "workers")
ALONE = "router"
"""Measured only when asked for, and by itself: it needs no server, and the network for its corpus."""


def main() -> int:
    """Run the benchmark; 0 done, 1 a bar was missed (with `--check`), 2 wrong use, 3 no server."""
    options = _options().parse_args()
    groups = options.only or list(GROUPS)
    if groups == [ALONE]:
        return _failed(options.check, router.main(quick=options.quick, as_json=options.json, note=_note))
    sizes = QUICK if options.quick else Sizes()
    # Without this, a termination would leave the server running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pythons, absent = _peers() if options.peers else ({}, {})
    try:
        samples, names = asyncio.run(_measure(sizes, groups, pythons))
    except ServerFailed as failure:
        _note(str(failure))
        return 3
    table = report.rows(sizes, groups, peers=bool(pythons))
    if options.json:
        print(_document(sizes, samples, table, names, absent))
    else:
        print(report.as_text(samples, table, names))
        for name, reason in absent.items():
            print(f"{name}: not installed: {reason}")
    for warning in report.unsteady(samples, table):
        _note(f"warning: {warning}")
    return _failed(options.check, report.missed(samples, table))


def _failed(check: bool, missed: Sequence[str]) -> int:
    if check and missed:
        _note(f"missed: {'; '.join(label.strip() for label in missed)}")
        return 1
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition: a smoke test")
    parser.add_argument(
        "--peers", action="store_true", help="also measure peers, installed into a cache folder"
    )
    parser.add_argument(
        "--only", type=_groups, metavar="GROUP,…", help=f"some of {','.join(GROUPS)}; or {ALONE}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a bar is missed")
    return parser  # fmt: skip


def _groups(text: str) -> list[str]:
    asked = text.split(",")
    if asked == [ALONE]:
        return asked
    unknown = [group for group in asked if group not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r}: must be one of {', '.join(GROUPS)}, or {ALONE} alone"
        )
    return [group for group in GROUPS if group in asked]


def _peers() -> tuple[dict[str, Path], dict[str, str]]:
    """Peer → interpreter, for those that install; peer → reason, for the others."""
    pythons: dict[str, Path] = {}
    absent: dict[str, str] = {}
    for name in install.REQUIREMENTS:
        match install.ensure(name):
            case install.Installed(python, found):
                _note(f"{name}: {install.NAMED[name]} {found}")
                pythons[name] = python
            case install.NotInstalled(reason):
                absent[name] = reason
    return pythons, absent


async def _measure(
    sizes: Sizes, groups: Sequence[str], pythons: dict[str, Path]
) -> tuple[Samples, list[str]]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(embedded())

        def another(name: str) -> contextlib.AbstractAsyncContextManager[Remote]:
            return started(name, server.address, python=pythons.get(name))

        remotes: dict[str, Remote] = {}
        for name in (FLOOR, ENGINE, *pythons):
            try:
                remotes[name] = await stack.enter_async_context(another(name))
            except ContestantFailed as failure:
                _note(f"{name}: cannot be measured: {failure}")
        suite = Suite(server, remotes, another, sizes, _note)
        if "history" in groups or "replay" in groups:
            await suite.history()
        if "time" in groups:
            await suite.time()
        if "replay" in groups:
            await suite.replay()
        if "workers" in groups:
            await suite.workers()
        return suite.samples, list(remotes)


def _document(
    sizes: Sizes,
    samples: Samples,
    table: Sequence[report.Row],
    names: Sequence[str],
    absent: dict[str, str],
) -> str:
    document = {
        "python": platform.python_version(),
        "temporalio": version("temporalio"),
        "sizes": asdict(sizes),
        "not_installed": absent,
        "rows": report.as_json(samples, table, names),
    }
    return json.dumps(document, indent=2)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
