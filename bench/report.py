"""From samples to a table with bars and verdicts."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.contestant import ENGINE, FLOOR
from bench.suite import Samples, Sizes

STEADY = 1.3
"""Slowest floor repetition ÷ fastest, up to which a verdict can be trusted."""


class Verdict(enum.StrEnum):
    """Whether the engine reaches a bar. `MISSING`: it was not measured, so nobody knows."""

    PASS = "PASS"
    FAIL = "FAIL"
    MISSING = "MISSING"


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit on the engine: what is judged, and what it may be at most."""

    words: str
    limit: float
    judged: Callable[[Samples, str, str], float | None]

    def verdict(self, samples: Samples, measure: str, taken_by: str) -> Verdict:
        """Judge the engine's samples of `measure`.

        An engine that failed in any repetition has missed the bar, whatever it did in the others.
        """
        if ENGINE in samples.failures.get(taken_by, {}):
            return Verdict.FAIL
        value = self.judged(samples, measure, ENGINE)
        if value is None:
            return Verdict.MISSING
        return Verdict.PASS if value <= self.limit else Verdict.FAIL


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: how it reads, how its values read, and the bar, if it has one.

    `source` names the measurement that gives the values, where it is not called like the measure;
    failures are noted under it.
    """

    measure: str
    label: str
    shown: Callable[[float], str]
    bar: Bar | None = None
    source: str | None = None

    @property
    def taken_by(self) -> str:
        """The measurement that gives the values."""
        return self.source or self.measure

    def verdict(self, samples: Samples) -> Verdict | None:
        """The verdict on the engine; None without a bar."""
        return self.bar.verdict(samples, self.measure, self.taken_by) if self.bar else None


def _ratio(samples: Samples, measure: str, name: str) -> float | None:
    return samples.ratio(measure, name)


def _worst(samples: Samples, measure: str, name: str) -> float | None:
    values = samples.values.get(measure, {}).get(name)
    return max(values) if values else None


def _off_one(samples: Samples, measure: str, name: str) -> float | None:
    """The worst distance from 1: a turn that grows and a turn that shrinks both count."""
    values = samples.values.get(measure, {}).get(name)
    return max(abs(value - 1) for value in values) if values else None


def rows(sizes: Sizes, groups: Sequence[str], *, peers: bool) -> list[Row]:
    """The rows of the table for the measurement groups taken."""
    n, p = sizes.turns, sizes.peer_turns
    at_once = f"{sizes.runs} runs at once"
    made = {
        "history": [
            Row(f"history@{n}", f"history, {n} turns", _kilobytes, _times(1.25)),
            *([Row(f"history@{p}", f"history, {p} turns", _kilobytes)] if peers else []),
            Row(f"events@{n}", "events a turn", "{:.1f}".format, source=f"history@{n}"),
            Row(
                "growth",
                f"bytes of turn {sizes.late} / turn {sizes.early}",
                "{:.3f}".format,
                Bar("1 ± 0.10", 0.10, _off_one),
                source=f"history@{n}",
            ),
        ],
        "time": [
            Row("time", f"a turn, {at_once}", _milliseconds, _times(1.3)),
            Row("cpu", "  worker CPU of it", _milliseconds, source="time"),
            Row("queries", f"queries, {at_once}", "{:.0f}".format, Bar("0", 0, _worst), "time"),
        ],
        "replay": [
            Row(f"replay@{n}", f"replay, {n} turns", _milliseconds, _times(1.5)),
            *([Row(f"replay@{p}", f"replay, {p} turns", _milliseconds)] if peers else []),
        ],
        "workers": [
            Row(
                "workers",
                "transcripts that two workers change",
                "{:.0f}".format,
                Bar("0", 0, _worst),
            ),
            Row("queries of two workers", "  queries of two workers", "{:.0f}".format, source="workers"),
        ],
    }
    return [row for group in groups for row in made[group]]


def _times(limit: float) -> Bar:
    return Bar(f"≤ {limit:g}× floor", limit, _ratio)


def _kilobytes(value: float) -> str:
    return f"{value / 1000:,.0f} kB"


def _milliseconds(value: float) -> str:
    return f"{value * 1000:,.1f} ms"


def missed(samples: Samples, table: Sequence[Row]) -> list[str]:
    """Labels of the bars that the engine does not reach, or that could not be measured."""
    return [row.label for row in table if row.bar and row.verdict(samples) is not Verdict.PASS]


def unsteady(samples: Samples, table: Sequence[Row]) -> list[str]:
    """Warnings: measures in which the floor itself varied so much that a verdict is doubtful.

    The floor does the same work in every repetition, so what varies in it is the machine.
    """
    warnings = []
    for row in table:
        floors = samples.values.get(row.measure, {}).get(FLOOR, [])
        if row.bar and floors and min(floors) > 0 and max(floors) / min(floors) > STEADY:
            spread = max(floors) / min(floors)
            warnings.append(f"{row.label}: the floor varied {spread:.1f}×; repeat on a quiet machine")
    return warnings


def as_text(samples: Samples, table: Sequence[Row], names: Sequence[str]) -> str:
    """The table for people: the figure, and its ratio to the floor where the floor has one."""
    peers = [name for name in names if name not in (FLOOR, ENGINE)]
    shown = [FLOOR, ENGINE]
    lines = [["", *shown, "bar", "", *peers]]
    for row in table:
        bar = [row.bar.words if row.bar else "", row.verdict(samples) or ""]
        cells = [_cell(samples, row, name) for name in shown]
        lines.append([row.label, *cells, *bar, *(_cell(samples, row, name) for name in peers)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(samples: Samples, row: Row, name: str) -> str:
    if name in samples.failures.get(row.taken_by, {}):
        return "failed"
    value = samples.median(row.measure, name)
    if value is None:
        return "–"
    ratio = samples.ratio(row.measure, name) if name != FLOOR else None
    judged_as_ratio = row.shown in (_kilobytes, _milliseconds)
    return row.shown(value) + (f"  {ratio:.2f}×" if ratio and judged_as_ratio else "")


def as_json(samples: Samples, table: Sequence[Row], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows for programs: SI units (bytes, seconds), medians, ratios and every sample."""
    return [
        {
            "measure": row.measure,
            "label": row.label.strip(),
            "bar": row.bar.words if row.bar else None,
            "verdict": row.verdict(samples),
            "contestants": {
                name: {
                    "value": samples.median(row.measure, name),
                    "ratio": samples.ratio(row.measure, name),
                    "samples": samples.values.get(row.measure, {}).get(name, []),
                    "failure": samples.failures.get(row.taken_by, {}).get(name),
                }
                for name in names
            },
        }
        for row in table
    ]
