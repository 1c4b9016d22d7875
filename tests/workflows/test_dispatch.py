from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.agent import LimitSpec
from mainspring.schemas.ledger import EntryCall
from mainspring.schemas.tools import CallProblem, Claim, ParsedCall, ToolDeclaration
from mainspring.workflows.dispatch import (
    HEARTBEAT_SECONDS,
    WAVE_BYTES,
    Attempts,
    Batch,
    Refused,
    Run,
    attempts,
    check_calls,
    summary,
    waves,
)
from mainspring.workflows.intrinsics import DONE

TOOLS = {name: ToolDeclaration(name=name, effects="read") for name in ("read", "write", DONE)}


def _check(*calls: tuple[str, str | None], **limits: Any) -> Batch:
    """The batch of these calls: a tool, and the kind of its problem."""
    parsed = [
        ParsedCall(
            tool=tool,
            problem=None if kind is None else CallProblem.model_validate({"kind": kind, "message": "m"}),
        )
        for tool, kind in calls
    ]
    entries = [EntryCall(id=f"c{index}", tool=call.tool) for index, call in enumerate(parsed)]
    return check_calls(parsed, entries, TOOLS, LimitSpec(**limits))


def _kinds(batch: Batch) -> list[str]:
    return ["run" if isinstance(item, Run) else item.kind for item in batch.items]


# -- check_calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "kinds", "done", "forbidden"),
    [
        ([], [], None, None),
        ([("read", None), ("write", None)], ["run", "run"], None, None),
        ([("read", "malformed"), ("write", None)], ["malformed", "run"], None, None),
        (
            [("read", "schema"), ("read", "truncated"), ("read", "too_large")],
            ["schema", "truncated", "too_large"],
            None,
            None,
        ),
        ([("rm", None)], ["unknown_tool"], None, "rm"),
        ([("rm", "unknown_tool"), ("dd", None)], ["unknown_tool", "unknown_tool"], None, "rm"),
        ([("rm", "malformed")], ["malformed"], None, "rm"),
        ([("read", None), ("dd", "unknown_tool")], ["run", "unknown_tool"], None, "dd"),
        ([("read", None), (DONE, None), (DONE, None)], ["run", "run", "run"], "c1", None),
        ([(DONE, "schema"), (DONE, None)], ["schema", "run"], "c1", None),
        ([(DONE, "schema")], ["schema"], None, None),
    ],
    ids=count(),
)
def test_check_calls_table(calls: Any, kinds: list[str], done: str | None, forbidden: str | None) -> None:
    """One item a call, in order; the first valid `nika:done`; the first name that is not on the whitelist."""
    batch = _check(*calls)
    assert _kinds(batch) == kinds
    assert (batch.done and batch.done.id, batch.forbidden) == (done, forbidden)


@given(
    st.lists(
        st.tuples(st.sampled_from(["read", "rm", DONE]), st.sampled_from([None, "schema"])), max_size=20
    ),
    st.integers(1, 8),
)
def test_check_calls_answers_each_call_once(calls: list[tuple[str, str | None]], most: int) -> None:
    """Whatever the batch, each call runs or is refused with a reason; no more than `batch_calls` run."""
    batch = _check(*calls, batch_calls=most)
    assert [item.call.id for item in batch.items] == [f"c{n}" for n in range(len(calls))]
    assert all(item.message for item in batch.items if isinstance(item, Refused))
    assert len(batch.runs) <= most
    assert batch.runs == tuple(item for item in batch.items if isinstance(item, Run))


def test_check_calls_refuses_what_is_beyond_the_batch() -> None:
    """Calls beyond the bound are refused and say so, and none of them is `nika:done` (B25)."""
    batch = _check(("read", None), ("read", None), (DONE, None), batch_calls=2)
    assert _kinds(batch) == ["run", "run", "batch"]
    assert batch.done is None


def test_check_calls_sees_a_forbidden_name_anywhere() -> None:
    """A name outside of the whitelist is found also beyond the bound of the batch."""
    assert _check(("read", None), ("rm", "unknown_tool"), batch_calls=1).forbidden == "rm"


def test_check_calls_pairs_calls_with_their_entries() -> None:
    """Another number of entries than of calls is a defect of ours."""
    with pytest.raises(ValueError, match="shorter"):
        check_calls([ParsedCall(tool="read")], [], TOOLS, LimitSpec())


# -- waves -----------------------------------------------------------------------------------------


def _run(number: int, claim: bool | None = None, key: str = "k", size: int = 0) -> Run:
    """A call that claims `key`, alone (True), shared (False) or not at all."""
    claims = () if claim is None else (Claim(argument="path", exclusive=claim),)
    call = EntryCall(id=f"c{number}", tool="t", arguments={"path": key, "pad": "x" * size})
    return Run(call, ToolDeclaration(name="t", claims=claims))


def _ids(grouped: list[list[Run]]) -> list[list[int]]:
    return [[int(run.call.id[1:]) for run in wave] for wave in grouped]


CLAIMS = st.lists(st.tuples(st.sampled_from([None, True, False]), st.sampled_from("ab")), max_size=20)


@given(CLAIMS, st.integers(1, 5))
def test_waves_hold_every_run_once_in_order(claims: list[tuple[bool | None, str]], parallel: int) -> None:
    """Wave after wave, the calls are as they were; no wave is empty or larger than `parallel`."""
    grouped = waves([_run(n, claim, key) for n, (claim, key) in enumerate(claims)], parallel)
    assert [n for wave in _ids(grouped) for n in wave] == list(range(len(claims)))
    assert all(1 <= len(wave) <= parallel for wave in grouped)


@given(CLAIMS, st.integers(1, 20))
def test_waves_never_share_what_is_held_alone(claims: list[tuple[bool | None, str]], parallel: int) -> None:
    """In a wave, a resource that one call claims alone is claimed by no other."""
    grouped = waves([_run(n, claim, key) for n, (claim, key) in enumerate(claims)], parallel)
    for wave in _ids(grouped):
        for key in "ab":
            held = [claims[n][0] for n in wave if claims[n][1] == key and claims[n][0] is not None]
            assert len(held) <= 1 or not any(held)


@pytest.mark.parametrize(
    ("runs", "parallel", "grouped"),
    [
        ([], 8, []),
        ([_run(0), _run(1), _run(2)], 8, [[0, 1, 2]]),
        ([_run(0), _run(1), _run(2)], 2, [[0, 1], [2]]),
        ([_run(0, True), _run(1, True)], 8, [[0], [1]]),
        ([_run(0, True, "a"), _run(1, True, "b")], 8, [[0, 1]]),
        ([_run(0, False), _run(1, False), _run(2, True), _run(3, False)], 8, [[0, 1], [2], [3]]),
        ([_run(0, True), _run(1)], 8, [[0, 1]]),
        ([_run(0, True), _run(1), _run(2), _run(3, True)], 2, [[0, 1], [2, 3]]),
        ([_run(0, size=800_000), _run(1, size=600_000), _run(2, size=200_000), _run(3)], 8, [[0, 1], [2, 3]]),
        ([_run(0, size=2_000_000), _run(1), _run(2, size=2_000_000)], 8, [[0], [1], [2]]),
    ],
    ids=count(),
)
def test_waves_table(runs: list[Run], parallel: int, grouped: list[list[int]]) -> None:
    """A wave ends at its number, at its bytes and before a claim that clashes."""
    assert _ids(waves(runs, parallel)) == grouped


@given(st.lists(st.integers(0, 700_000), max_size=12))
def test_waves_are_bounded_in_bytes(sizes: list[int]) -> None:
    """The arguments of a wave of several calls stay below what one workflow task may send (D12)."""
    for wave in waves([_run(n, size=size) for n, size in enumerate(sizes)], 64):
        assert len(wave) == 1 or sum(len(json.dumps(run.call.arguments)) for run in wave) <= WAVE_BYTES


def test_waves_claim_what_an_argument_names() -> None:
    """An absent argument claims nothing; of two claims on one argument the stricter holds."""
    both = (Claim(argument="path", exclusive=True), Claim(argument="path", exclusive=False))
    strict = Run(
        EntryCall(id="c0", tool="t", arguments={"path": "k"}), ToolDeclaration(name="t", claims=both)
    )
    absent = Run(EntryCall(id="c1", tool="t"), ToolDeclaration(name="t", claims=both))
    assert _ids(waves([absent, absent, strict, _run(2, False)], 8)) == [[1, 1, 0], [2]]


# -- attempts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "most"),
    [
        ({"effects": "none"}, 4),
        ({"effects": "read"}, 4),
        ({"effects": "write"}, 1),
        ({"effects": "external"}, 1),
        ({}, 1),
        ({"effects": "write", "idempotent": True}, 4),
        ({"effects": "external", "retry_safe": True}, 4),
        ({"effects": "read", "attempts": 1}, 1),
        ({"effects": "write", "attempts": 3}, 3),
    ],
    ids=count(),
)
def test_attempts_by_effects(declared: dict[str, Any], most: int) -> None:
    """Reads and what may be repeated are tried 4 times, any other effect once, unless declared."""
    assert attempts(ToolDeclaration(name="t", **declared), None).attempts == most


@pytest.mark.parametrize(
    ("declared", "heartbeat"),
    [
        ({"source": "python"}, HEARTBEAT_SECONDS),
        ({"source": "mcp"}, HEARTBEAT_SECONDS),
        ({"source": "builtin"}, HEARTBEAT_SECONDS),
        ({"source": "activity"}, None),
        ({"source": "activity", "heartbeat": 5}, 5),
        ({"source": "python", "heartbeat": 5}, 5),
    ],
    ids=count(),
)
def test_attempts_heartbeat_is_expected_of_ours_alone(
    declared: dict[str, Any], heartbeat: float | None
) -> None:
    """Our activities heartbeat by themselves; a foreign one only where it says so."""
    assert attempts(ToolDeclaration(name="t", **declared), None).heartbeat == heartbeat


@pytest.mark.parametrize(
    ("timeout", "wall_left", "start", "whole"),
    [
        (10, None, 10, 130),
        (10, 1_000, 10, 130),
        (10, 60, 10, 60),
        (10, 4, 4, 4),
        (10, 0, 0.001, 0.001),
        (10, -5, 0.001, 0.001),
    ],
)
def test_attempts_are_capped_by_the_wall(
    timeout: float, wall_left: float | None, start: float, whole: float
) -> None:
    """All attempts together, and each, end when the run's wall time does; never with a time of 0."""
    tool = ToolDeclaration(name="t", effects="read", timeout=timeout)
    assert attempts(tool, wall_left) == Attempts(4, start, whole, HEARTBEAT_SECONDS)


# -- summary ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "turn 3 · t()"),
        ({"q": "é", "n": 1}, 'turn 3 · t(q="é", n=1)'),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "turn 3 · t(a=1, b=2, c=3)"),
        ({"a": "two\nlines\x00"}, 'turn 3 · t(a="two\\nlines\\u0000")'),
    ],
    ids=count(),
)
def test_summary_table(arguments: dict[str, Any], line: str) -> None:
    """The turn, the tool and its first arguments."""
    assert summary(3, EntryCall(id="c", tool="t", arguments=arguments)) == line


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=200)))
def test_summary_is_one_short_line(arguments: dict[str, Any]) -> None:
    """Whatever the arguments are, the line is short and has no control character (M5)."""
    line = summary(1, EntryCall(id="c", tool="t" * 300, arguments=arguments))
    assert len(line) <= 120
    assert len(line.splitlines()) == 1
