"""The router, measured: does it offer the right tool, and how long does it take.

    python -m bench --only router

**Quality**: recall@12 on the functions and questions of the Berkeley Function Calling Leaderboard (the wheel
`bfcl-eval`, read as data, kept in the cache folder and nowhere else). The universe is every distinct
function, name and description; a question's gold functions are those of its possible answers; a question
counts the share of them that is among the first twelve. Against plain `rank_bm25` (lower case, split at
spaces) and `bm25s` (its own tokens and stop words) on the same text, the name once.

What counts as a word was chosen on half of the questions, every second one; the other half is reported
apart, as "held out".

**Time** (CPU): one `route` of a query of 400 tokens, against one query of `rank_bm25` for the same words, on
universes made of invented words with the frequencies of language. `first use` is the making of the index,
once a process; the universe is made once a run, when it is armed or replayed. A replayed turn pays one
`route` again, and nothing else of the router's.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import statistics
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rank_bm25 import BM25Okapi

from bench.downloads import CannotDownload, importable, wheel
from mainspring.schemas.agent import RoutingSpec
from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.router import query, route, search, universe

TOP = 12
QUERY_TOKENS = 400
OURS, PLAIN, OTHER = "mainspring", "rank_bm25", "bm25s"

Rank = Callable[[str], Sequence[int]]
"""A question → the places of the tools, best first, at most `TOP`."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, in which group, and the places of the functions that answer it."""

    group: str
    text: str
    gold: frozenset[int]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a figure for each ranker, and the bar that ours must reach."""

    measure: str
    unit: str
    values: dict[str, float | None]
    bar: str = ""
    passed: bool | None = None


def main(*, quick: bool, as_json: bool, note: Callable[[str], None]) -> list[str]:
    """Measure and print; what missed its bar."""
    rows = [*_quality(note), *(row for size in (1_000, 10_000) for row in _times(size, 3 if quick else 15))]
    if as_json:
        print(json.dumps({"router": [asdict(row) for row in rows]}, indent=2))
    else:
        print(_table(rows))
    return [f"router: {row.measure}" for row in rows if row.passed is False]


# -- quality ---------------------------------------------------------------------------------------


def _quality(note: Callable[[str], None]) -> Iterator[Row]:
    try:
        corpus = wheel("bfcl-eval")
    except CannotDownload as failure:
        note(f"router: quality cannot be measured: {failure}")
        yield Row("recall@12", "share", {}, "≥ the better", passed=None)
        return
    tools, questions = read(corpus)
    note(f"router: {len(tools)} functions, {len(questions)} questions of {corpus.name}")
    rankers = {OURS: _ours(tools), PLAIN: _plain(tools)}
    try:
        rankers[OTHER] = _bm25s(tools)
    except CannotDownload as failure:
        note(f"router: no bm25s: {failure}")
    held_out = questions[1::2]
    yield _recall("recall@12, held out", held_out, rankers, judged=True)
    yield _recall("recall@12, all", questions, rankers, judged=True)
    for group in sorted({question.group for question in questions}):
        yield _recall(f"  {group}", [q for q in questions if q.group == group], rankers)


def _recall(measure: str, asked: Sequence[Question], rankers: dict[str, Rank], judged: bool = False) -> Row:
    values: dict[str, float | None] = {
        name: statistics.fmean(len(q.gold & set(rank(q.text))) / len(q.gold) for q in asked)
        for name, rank in rankers.items()
    }
    best = max(value or 0 for name, value in values.items() if name != OURS)
    ours = values[OURS] or 0
    return Row(f"{measure} ({len(asked)})", "share", values, "≥ the better" if judged else "",
               ours >= best if judged else None)  # fmt: skip


def read(corpus: Path) -> tuple[list[tuple[str, str]], list[Question]]:
    """Functions (name, description) and questions of a wheel's data files; nothing in it is executed."""
    places: dict[tuple[str, str], int] = {}
    questions: list[Question] = []
    with zipfile.ZipFile(corpus) as files:
        names = files.namelist()
        asking = sorted(name for name in names if re.search(r"/data/BFCL_v\d+_\w+\.json$", name))
        documents = sorted(name for name in names if "/data/multi_turn_func_doc/" in name)
        for record in (record for name in [*documents, *asking] for record in _records(files, name)):
            for function in record.get("function") or ([record] if "name" in record else []):
                places.setdefault(_told(function), len(places))
        for name in asking:
            answers = name.replace("/data/", "/data/possible_answer/")
            if answers in names:
                truth = {record["id"]: record["ground_truth"] for record in _records(files, answers)}
                questions += _questions(
                    re.sub(r".*BFCL_v\d+_|\.json", "", name), _records(files, name), truth, places
                )
    return list(places), questions


def _questions(
    group: str,
    records: Iterable[dict[str, Any]],
    truth: dict[str, Any],
    places: dict[tuple[str, str], int],
) -> Iterator[Question]:
    """The questions whose gold functions are among those that the question itself lists."""
    for record in records:
        of = {function["name"]: places[_told(function)] for function in record.get("function", [])}
        gold = frozenset(of[called] for called in _called(truth.get(record["id"])) if called in of)
        if gold:
            yield Question(group, _asked(record), gold)


def _told(function: dict[str, Any]) -> tuple[str, str]:
    return function["name"], function.get("description", "")


def _records(files: zipfile.ZipFile, name: str) -> Iterator[dict[str, Any]]:
    """One record a line; a file that is no such list has none for us."""
    for line in files.read(name).decode().split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _called(truth: Any) -> list[str]:
    calls = truth if isinstance(truth, list) else []
    return [name for call in calls if isinstance(call, dict) for name in call]


def _asked(record: dict[str, Any]) -> str:
    said = [message for turn in record["question"] for message in turn]
    return " ".join(message["content"] for message in said if message["role"] == "user")


def _ours(tools: Sequence[tuple[str, str]]) -> Rank:
    # Some functions share a name, which tools cannot: they are told apart by a mark that is no word.
    marks = str.maketrans("01", "._")
    numbered = {f"{name}{f'{at:b}'.translate(marks)}": at for at, (name, _) in enumerate(tools)}
    every = universe([ToolDeclaration(name=name, description=tools[at][1]) for name, at in numbered.items()])
    spec = RoutingSpec(top=TOP)
    return lambda text: [numbered[item.name] for item in route(every, spec, query(text, "", [])).ranked]


def _plain(tools: Sequence[tuple[str, str]]) -> Rank:
    index = BM25Okapi([f"{name} {text}".lower().split() for name, text in tools])

    def rank(asked: str) -> Sequence[int]:
        scores = np.asarray(index.get_scores(asked.lower().split()))
        return [int(at) for at in np.argsort(-scores, kind="stable")[:TOP]]

    return rank


def _bm25s(tools: Sequence[tuple[str, str]]) -> Rank:
    folder = importable(OTHER)
    sys.path.insert(0, str(folder))
    module = importlib.import_module(OTHER)
    index = module.BM25()
    index.index(module.tokenize([f"{name} {text}" for name, text in tools], show_progress=False),
                show_progress=False)  # fmt: skip

    def rank(asked: str) -> Sequence[int]:
        tokens = module.tokenize([asked], show_progress=False)
        found, _ = index.retrieve(tokens, k=TOP, show_progress=False)
        return [int(at) for at in found[0]]

    return rank


# -- time ------------------------------------------------------------------------------------------


def _times(size: int, repetitions: int) -> Iterator[Row]:
    invented = random.Random(size)
    known = ["".join(invented.choices("aeiourstlnmdcpgb", k=invented.randint(3, 9))) for _ in range(6_000)]
    weights = [1 / (rank + 3) for rank in range(len(known))]

    def said(count: int, joined: str = " ") -> str:
        return joined.join(invented.choices(known, weights, k=count))

    tools = [
        ToolDeclaration(name=f"mcp:{said(1)}/{said(2, '_')}_{n}", description=said(30)) for n in range(size)
    ]
    # The words of each size are its own: none is remembered from elsewhere.
    made, every = _timed(lambda: universe(tools))
    first, _ = _timed(lambda: every.index)
    again = statistics.median(_timed(lambda: universe(tools))[0] for _ in range(5))
    index = BM25Okapi([f"{tool.name} {tool.description}".lower().split() for tool in tools])
    spec = RoutingSpec()
    queries = [said(QUERY_TOKENS) for _ in range(repetitions)]
    ours = [_timed(lambda q=q: route(every, spec, q, [tools[7].name]))[0] for q in queries]
    warm = [_timed(lambda q=q: route(every, spec, q, [tools[7].name]))[0] for q in queries]
    theirs = [_timed(lambda q=q: index.get_scores(q.lower().split()))[0] for q in queries[:5]]
    found = [_timed(lambda q=q: search(every, " ".join(q.split()[:8])))[0] for q in queries]
    limit = 0.002 * max(1, size / 1_000)
    at = f"{size:,} tools"
    new = statistics.median(ours)
    yield Row(f"route, {at}, new words", "s", {OURS: new, PLAIN: statistics.median(theirs)},
              f"≤ {limit * 1000:.0f} ms", new <= limit)  # fmt: skip
    yield Row(f"route, {at}, words seen before", "s", {OURS: statistics.median(warm)})
    yield Row(f"search of 8 words, {at}", "s", {OURS: statistics.median(found)})
    yield Row(f"first use, {at}: the index", "s", {OURS: first}, "≤ 1 s", first <= 1.0)
    yield Row(f"once a run, {at}: the universe, unknown", "s", {OURS: made})
    yield Row(f"once a run, {at}: the universe, known", "s", {OURS: again})


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of this process, which is wall time on a quiet machine and hardly moves on a busy one."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


# -- the table -------------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> str:
    lines = [["", OURS, PLAIN, OTHER, "bar", ""]]
    for row in rows:
        verdict = {True: "PASS", False: "FAIL", None: ""}[row.passed]
        lines.append([row.measure, *(_cell(row, name) for name in (OURS, PLAIN, OTHER)), row.bar, verdict])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(row: Row, name: str) -> str:
    value = row.values.get(name)
    if value is None:
        return "–"
    if row.unit == "share":
        return f"{value:.3f}"
    ours = row.values.get(OURS)
    ratio = f"  {value / ours:.0f}×" if ours and name != OURS else ""
    return f"{value * 1000:,.2f} ms{ratio}"
