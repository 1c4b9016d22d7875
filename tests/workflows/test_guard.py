from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mainspring.schemas.agent import GuardSpec
from mainspring.workflows.guard import (
    NUDGES_MAX,
    Act,
    Acted,
    Cycle,
    Guard,
    Held,
    Nudge,
    Proceed,
    Signed,
    Stall,
    Turn,
    carried,
    dominant_cycle,
    fresh,
    observe,
    restored,
    signature,
    view,
)

DEFAULT = GuardSpec()


def _call(tool: str, content: Any = "same", *, error: bool = False, **more: Any) -> Act:
    """A call of a tool without arguments."""
    return Act(tool, {}, content, error, label=f"{tool}()", **more)


def _turn(name: str, content: Any = "same", *, error: bool = False, **more: Any) -> Acted:
    """A turn of one call."""
    return Acted((_call(name, content, error=error, **more),))


def _run(turns: Iterable[Turn], spec: GuardSpec = DEFAULT) -> tuple[Guard, list[Any]]:
    """The guard after these turns, and its verdict on each; a stall ends the exchange."""
    guard, verdicts = fresh(spec), []
    for turn in turns:
        guard, verdict = observe(guard, turn)
        verdicts.append(verdict)
        if isinstance(verdict, Stall):
            break
    return guard, verdicts


def _marks(turns: Iterable[Turn], **spec: int) -> str:
    """The verdicts, a letter each: `.` proceed, `R` repetition, `E` errors, `S` stall."""
    letters = {"repeated_actions": "R", "error_streak": "E"}
    marks = ""
    for verdict in _run(turns, GuardSpec(**spec))[1]:
        match verdict:
            case Proceed():
                marks += "."
            case Nudge(reason):
                marks += letters[reason]
            case Stall():
                marks += "S"
    return marks


def _letters(text: str) -> list[Turn]:
    """A turn a letter: upper case fails, `?` polls, `!` polls and fails, `^` directs the next turn."""
    turns: list[Turn] = []
    directed = False
    for letter in text.replace(" ", ""):
        if letter == "^":
            directed = True
            continue
        error = letter.isupper() or letter == "!"
        turns.append(Acted((_call(letter, error=error, polls=letter in "?!"),), directed))
        directed = False
    return turns


# -- the rules, in their order -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "marks", "spec"),
    [
        # Repetition: one nudge at the third time, the end at the fifth.
        ("aaaaa", "..R.S", {}),
        ("ababababab", ".....R...S", {}),
        ("xyzxyzxyzxyzxyz", "........R.....S", {}),
        ("aabaabaab", "........R", {}),
        ("aa b aa c aa", "." * 8, {}),
        ("aaaaa", ".R.S", {"nudge_after": 2, "stall_after": 4}),
        ("aaaa", "...R", {"nudge_after": 4, "stall_after": 5}),
        # A stall outranks a nudge, whatever is left.
        ("aaa", "..S", {"nudge_after": 3, "stall_after": 3}),
        ("aaa", ".S", {"nudge_after": 9, "stall_after": 2, "max_reflections": 5}),
        # The longest cycle that the default window holds.
        ("abcdefgh" * 5, "." * 23 + "R" + "." * 15 + "S", {}),
        # Errors: one nudge at the second turn in a row that failed whole; then the streak restarts.
        ("AB", ".E", {}),
        ("AaB", "...", {}),
        ("A?B", "...", {}),
        ("A!", ".E", {}),
        ("ABCD", ".E..", {}),
        ("ABCDEF", ".E.E..", {"max_reflections": 2}),
        # One budget for both reasons: repetition comes first, and what is spent is spent.
        ("AAAAA", ".E..S", {}),
        ("AAAAA", ".ER.S", {"max_reflections": 2}),
        ("aaaAB", "..R..", {}),
        ("aaaaa", "..RRS", {"max_reflections": 2}),
        ("AAAA", ".E.E", {"nudge_after": 9, "stall_after": 9, "max_reflections": 3}),
        # Never means never.
        ("aaaaa", "....S", {"max_reflections": 0}),
        ("ABab" + "c" * 4, "." * 8, {"max_reflections": 0}),
        # Re-armed: another block, after something new that is no error.
        ("aaa bbb", "..R..R", {}),
        ("aaa b aba", "..R....", {}),
        ("aaa BBB", "..R...", {}),
        ("aaa c BBB", "..R...R", {}),
        ("AB ccc", ".E..R", {}),
        ("aaa bbb ccc", "..R..R..R", {}),
        # Not re-armed: a relapse, in whatever rotation the cycle comes back.
        ("aaa bcde aaaaa", "..R" + "." * 8 + "S", {}),
        ("ababab c bababa", ".....R.......", {"stall_after": 9}),
        ("xyzxyzxyz c zxyzxyzxy", "........R" + "." * 10, {"stall_after": 9}),
        # At most five in an exchange.
        ("aaabbbcccdddeeefff", "..R..R..R..R..R...", {}),
        # Polls push nothing and judge no cycle; what stands in the window is judged no second time.
        ("????????", "........", {}),
        ("aa?a", "...R", {}),
        ("aaa?a", "..R.R", {"max_reflections": 2}),
        ("aaaa????a", "..R.....S", {}),
        # A directive takes the nudge's place, spends nothing and is no reason to go on for ever.
        ("aa^aaa", "...RS", {}),
        ("aa^aa^a", "...RS", {}),
        ("A^BCD", "...E", {}),
    ],
)
def test_observe_follows_the_rules(turns: str, marks: str, spec: dict[str, int]) -> None:
    """Stall, then repetition, then errors; one budget; re-armed by progress; polls and directives apart."""
    assert _marks(_letters(turns), **spec) == marks


@given(
    st.text("aAbBcC?!^", max_size=60),
    st.builds(
        GuardSpec,
        nudge_after=st.integers(2, 6),
        stall_after=st.integers(2, 6),
        max_reflections=st.integers(0, 5),
        window=st.integers(8, 20),
    ),
)
@example("aaabbbcccaaabbbccc", GuardSpec(stall_after=9, max_reflections=5))
def test_observe_is_bounded_and_repeatable(turns: str, spec: GuardSpec) -> None:
    """Whatever the turns: the same verdicts again, at most five nudges, bounded memory."""
    guard, verdicts = _run(_letters(turns), spec)
    assert _run(_letters(turns), spec) == (guard, verdicts)
    nudges = [verdict for verdict in verdicts if isinstance(verdict, Nudge)]
    assert guard.nudges == len(nudges) <= NUDGES_MAX
    assert not nudges or spec.max_reflections
    assert len(guard.window) <= guard.size == max(spec.window, 8 * spec.stall_after)
    assert len(guard.nudged) <= NUDGES_MAX
    assert 0 <= guard.reflections_left <= spec.max_reflections


def test_observe_sees_no_further_than_its_window() -> None:
    """A cycle longer than what the window holds often enough is not seen; one that fits is, to the turn."""
    spec = GuardSpec(stall_after=5, window=40)
    nine = [_turn(f"t{index % 9}") for index in range(90)]
    assert not any(isinstance(verdict, Stall) for verdict in _run(nine, spec)[1])
    wider = GuardSpec(stall_after=5, window=45)
    assert [index for index, verdict in enumerate(_run(nine, wider)[1]) if isinstance(verdict, Stall)] == [44]


@given(
    st.lists(st.integers(0, 10), max_size=50),
    st.integers(1, 8),
    st.integers(2, 6),
)
def test_observe_finds_every_injected_cycle(prefix: list[int], period: int, stall_after: int) -> None:
    """After any turns, `stall_after` copies of a cycle of 1 to 8 new turns end the exchange, and no fewer."""
    spec = GuardSpec(stall_after=stall_after, max_reflections=0)
    guard = fresh(spec)
    for index, kind in enumerate(prefix):
        guard, _ = observe(guard, _turn(f"p{kind}", index))
    cycle = [_turn(f"c{index}", "cycle") for index in range(period)]
    verdicts = []
    for turn in cycle * stall_after:
        guard, verdict = observe(guard, turn)
        verdicts.append(verdict)
    assert all(verdict == Proceed() for verdict in verdicts[:-1])
    assert verdicts[-1] == Stall(period, stall_after, tuple(f"c{index}()" for index in range(period)))


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=120), st.integers(2, 5))
def test_observe_never_fires_on_turns_that_differ(results: list[int], after: int) -> None:
    """The same call with another result each time is progress, however often it is made."""
    spec = GuardSpec(nudge_after=after, stall_after=after)
    _, verdicts = _run([_turn("next", result) for result in results], spec)
    assert all(verdict == Proceed() for verdict in verdicts)


# -- what a nudge and a stall say --------------------------------------------------------------------


def test_nudge_names_what_repeated() -> None:
    """The calls of one cycle and how often they came, that it brings nothing new, and what to do instead."""
    acts = [Act("read", {"path": path}, "x", False, label=f'read(path="{path}")') for path in "ab"]
    guard, verdicts = _run([Acted((act,)) for act in acts * 3])
    nudge = verdicts[-1]
    assert isinstance(nudge, Nudge)
    assert (nudge.reason, nudge.period, nudge.repeats) == ("repeated_actions", 2, 3)
    assert nudge.text == (
        "[loop-guard] The last 2 turns have now come 3 times in a row, each time with the same outcome:\n"
        '- read(path="a")\n'
        '- read(path="b")\n'
        "Repeating this brings nothing new. "
        "Take a different action, or give the best answer that you can from what you have now."
    )
    assert guard.reflections_left == 0


def test_nudge_names_what_failed() -> None:
    """For errors: how many turns failed, and the newest calls; what never ran is not named."""
    turns = [_turn("a", error=True), Acted((_call("b", error=True), _call("c", error=True, tried=False)))]
    nudge = _run(turns)[1][-1]
    assert isinstance(nudge, Nudge)
    assert (nudge.reason, nudge.period, nudge.repeats) == ("error_streak", 0, 2)
    assert nudge.text.startswith(
        "[loop-guard] Every call of the last 2 turns failed, most recently:\n- b()\n"
    )


@pytest.mark.parametrize("size", [1, 20])
def test_words_are_bounded(size: int) -> None:
    """However long the calls are, and however many a cycle has: a few short lines, without line breaks."""
    act = Act("read", {}, "x", False, label="read(\n" + "x" * 10_000)
    turns = [Acted((act, _call(f"t{index}"))) for index in range(size)] * 5
    _, verdicts = _run(turns, GuardSpec(window=100))
    nudge, stall = (verdict for verdict in verdicts if not isinstance(verdict, Proceed))
    assert isinstance(nudge, Nudge)
    assert isinstance(stall, Stall)
    assert len(nudge.text) < 2_000
    assert len(stall.steps) == min(size, 9)
    assert all(len(step) <= 160 and "\n" not in step for step in stall.steps)
    assert (stall.period, stall.repeats) == (size, 5)
    assert size == 1 or stall.steps[-1] == "… and 12 more turns"


# -- signatures --------------------------------------------------------------------------------------

TEXT = st.text(max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.text(st.characters(categories=["Cs"]), max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ACTS = st.builds(
    Act,
    tool=TEXT,
    arguments=JSON,
    content=JSON,
    is_error=st.booleans(),
    digest=st.none() | TEXT,
)


def _reordered(value: Any) -> Any:
    """The value with the keys of every object turned round."""
    if isinstance(value, dict):
        return {key: _reordered(item) for key, item in reversed(value.items())}
    return [_reordered(item) for item in value] if isinstance(value, list) else value


def _told_apart(value: Any) -> str:
    """Text that is equal for equal values of equal type, whatever the order of keys: an oracle by `repr`."""
    if isinstance(value, dict):
        return repr(sorted((key, _told_apart(item)) for key, item in value.items()))
    return repr([_told_apart(item) for item in value]) if isinstance(value, list) else repr(value)


@given(JSON, JSON)
def test_signature_ignores_the_order_of_keys(arguments: Any, content: Any) -> None:
    """At any depth, in arguments and in content."""
    one = Act("t", arguments, content, False)
    other = Act("t", _reordered(arguments), _reordered(content), False)
    assert signature(Acted((one,))) == signature(Acted((other,)))


@given(JSON, JSON)
@example(1, 1.0)
@example(1, "1")
@example(1, True)
@example(0, False)
@example(0.0, -0.0)
@example(None, "null")
@example("", None)
@example([], {})
@example([1, 2], [2, 1])
@example({"a": [1]}, {"a": 1})
@example({"a": 1}, {"b": 1})
@example("\ud800", "\ud801")
@example("\ud83d\ude00", "\U0001f600")
@example("\ud800", "\\ud800")
@example([[1], 2], [[1, 2]])
def test_signature_tells_values_and_types_apart(one: Any, other: Any) -> None:
    """Any two values that differ in value, type or order of items, as arguments and as content."""
    assume(_told_apart(one) != _told_apart(other))
    for place in ("arguments", "content"):
        acts = [
            Act(**{"tool": "t", "arguments": {}, "content": "", "is_error": False, place: value})
            for value in (one, other)
        ]
        assert len({signature(Acted((act,))) for act in acts}) == 2


@given(ACTS, TEXT)
def test_signature_tells_everything_else_apart(act: Act, more: str) -> None:
    """The error flag, the digest and the tool are signed; label, and whether it was tried, are not."""
    variants = [
        act,
        Act(act.tool, act.arguments, act.content, not act.is_error, digest=act.digest),
        Act(act.tool, act.arguments, act.content, act.is_error, digest=f"{act.digest}+"),
        Act(act.tool + "+", act.arguments, act.content, act.is_error, digest=act.digest),
    ]
    assert len({signature(Acted((variant,))) for variant in variants}) == len(variants)
    labelled = Act(act.tool, act.arguments, act.content, act.is_error, False, False, act.digest, more)
    assert signature(Acted((labelled,))) == signature(Acted((act,), directed=True))


@given(st.lists(ACTS, min_size=1, max_size=3), st.lists(ACTS, min_size=1, max_size=3))
@example([Act("ab", "", "", False)], [Act("a", "", "b", False)])
def test_signature_keeps_calls_apart_and_in_order(one: list[Act], other: list[Act]) -> None:
    """Two turns are signed alike only when they are the same calls in the same order."""
    assume([_told_apart(_fields(act)) for act in one] != [_told_apart(_fields(act)) for act in other])
    assert signature(Acted(tuple(one))) != signature(Acted(tuple(other)))


def _fields(act: Act) -> list[Any]:
    return [act.tool, act.arguments, act.content, act.is_error, act.digest]


@given(ACTS, ACTS)
def test_signature_leaves_polls_out(act: Act, poll: Act) -> None:
    """Calls of tools that poll sign nothing; a turn of nothing else, or of no calls, has no signature."""
    polling = Act(poll.tool, poll.arguments, poll.content, poll.is_error, polls=True)
    assert signature(Acted((polling, act, polling))) == signature(Acted((act,)))
    assert signature(Acted((polling,))) is signature(Acted(())) is None


def test_signature_of_a_held_reply_is_its_text_and_gate() -> None:
    """Either matters, neither can be taken for the other, nor for a call."""
    turns: list[Turn] = [
        Held("a", "bc"),
        Held("ab", "c"),
        Held("", "abc"),
        Held("a", "b"),
        _turn("a"),
        Held("\ud800", "b"),
    ]
    assert len({signature(turn) for turn in turns}) == len(turns)
    assert signature(Held("a", "b")) == signature(Held("a", "b"))


def test_signature_is_the_same_in_every_process(printed_by_seed: Callable[[str], set[str]]) -> None:
    """Eight bytes that depend on the turn alone: no salt of the process is in them."""
    code = (
        "from mainspring.workflows.guard import *\n"
        "print(signature(Acted((Act('t', {'b': 1, 'a': [1.5, None]}, 'é', True),))))"
    )
    here = signature(Acted((Act("t", {"a": [1.5, None], "b": 1}, "é", True),)))
    assert printed_by_seed(code) == {f"{here}\n"}
    assert here is not None
    assert 0 <= here < 2**64


# -- dominant_cycle ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signatures", "cycle"),
    [
        ("", None),
        ("a", None),
        ("ab", None),
        ("aa", Cycle(1, 2)),
        ("abab", Cycle(2, 2)),
        ("bababa", Cycle(2, 3)),
        ("aaaaaa", Cycle(1, 6)),
        ("abcabc", Cycle(3, 2)),
        ("abcabca", Cycle(3, 2)),
        ("aba", None),
        ("aabaab", Cycle(3, 2)),
        ("abbabb", Cycle(1, 2)),
        ("ababb", Cycle(1, 2)),
        ("xyzabbabb", Cycle(1, 2)),
        ("aabbaabbaabb", Cycle(4, 3)),
    ],
)
def test_dominant_cycle_is_the_one_that_repeats_most(signatures: str, cycle: Cycle | None) -> None:
    """Of the contiguous copies at the end: the most repeats win, ties go to the smallest period."""
    assert dominant_cycle(tuple(map(ord, signatures))) == cycle


@given(st.lists(st.integers(0, 2), max_size=24))
def test_dominant_cycle_equals_its_definition(signatures: list[int]) -> None:
    """The scan that stops early finds what trying everything finds."""
    found = []
    for period in range(1, len(signatures) // 2 + 1):
        block = signatures[-period:]
        repeats = 1
        while signatures[-(repeats + 1) * period :] == block * (repeats + 1):
            repeats += 1
        if repeats >= 2 and repeats * period <= len(signatures):
            found.append((-repeats, period))
    expected = Cycle(min(found)[1], -min(found)[0]) if found else None
    assert dominant_cycle(tuple(signatures)) == expected


class _Counted(int):
    """A signature that counts how often it is compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return int.__eq__(self, other)

    def __lt__(self, other: int) -> bool:
        _Counted.compared += 1
        return int.__lt__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _compared(scan: Callable[[], object]) -> int:
    _Counted.compared = 0
    scan()
    return _Counted.compared


def test_dominant_cycle_costs_a_quarter_of_the_square() -> None:
    """At most W²/4 comparisons: for every window of two signatures up to 12 turns, and for long ones."""
    worst = 0
    windows: list[tuple[int, ...]] = [
        window for length in range(13) for window in itertools.product((0, 1), repeat=length)
    ]
    for length in (40, 200):
        for period in range(1, length // 2 + 1):
            copies = (tuple(range(period)) * length)[:length]
            windows += [copies, (*copies[1:], 0), (period, *copies[1:])]
            windows.append((0,) * (length - period) + (1,) + (0,) * (period - 1))
    for window in windows:
        counted = tuple(_Counted(number) for number in window)
        compared = _compared(lambda counted=counted: dominant_cycle(counted))  # type: ignore[misc]
        assert compared <= len(window) ** 2 / 4
        worst = max(worst, compared)
    assert worst > 1_000  # it does count


@pytest.mark.parametrize("period", [1, 2, 5, 20, 50])
def test_observe_costs_the_square_of_its_window(period: int) -> None:
    """A whole judgement, with everything that a nudge takes, stays within W² comparisons."""
    spec = GuardSpec(window=100, nudge_after=2, stall_after=12)
    block = [_turn(f"t{index}") for index in range(period)]
    signed = [signature(turn) for turn in block]
    copies = 2 if period > 8 else 8
    noise = [_Counted(index) for index in range(spec.window - copies * period)]
    window = [_Counted(7), *noise, *(_Counted(number or 0) for number in signed * copies)][:-1]
    guard = Guard(spec, window=tuple(Signed(number, "") for number in window), reflections_left=1)
    compared = _compared(lambda: observe(guard, block[-1]))
    assert isinstance(observe(guard, block[-1])[1], Nudge)
    assert 0 < compared <= spec.window**2


# -- carried across runs, and shown --------------------------------------------------------------------


@given(st.text("abAB?", max_size=60), st.text("abAB?", max_size=30))
def test_guard_goes_on_after_it_was_carried(before: str, after: str) -> None:
    """Through JSON text and back, at any turn, no verdict changes."""
    spec = GuardSpec(max_reflections=2, stall_after=9)
    guard, _ = _run(_letters(before), spec)
    again = restored(json.loads(json.dumps(carried(guard))), spec)
    for turn in _letters(after):
        guard, verdict = observe(guard, turn)
        again, repeated = observe(again, turn)
        assert verdict == repeated
    assert again == guard


def test_view_shows_counts() -> None:
    """What the query `state` says: numbers, never what was called."""
    assert view(fresh(DEFAULT)) == {
        "window": 0,
        "period": 0,
        "repeats": 0,
        "error_streak": 0,
        "reflections_left": 1,
        "nudges": 0,
    }
    guard, _ = _run([_turn(name, error=True) for name in "abcabc"])
    assert view(guard) == {
        "window": 6,
        "period": 3,
        "repeats": 2,
        "error_streak": 4,
        "reflections_left": 0,
        "nudges": 1,
    }


# -- faults that users of such loops have reported -----------------------------------------------------


def test_honest_repetitive_work_goes_on() -> None:
    """Twelve reads of twelve files: the same tool, other arguments, other results."""
    turns = [Acted((Act("read", {"path": f"f{n}"}, f"text {n}", False),)) for n in range(12)]
    assert _marks(turns) == "." * 12


def test_a_step_tool_goes_on() -> None:
    """The same call eight times, with a result that counts; only another tool that stands still is named."""
    assert _marks([_turn("next", count) for count in range(1, 9)]) == "." * 8
    exempt = [Acted((_call("next", polls=True), _call("stuck"))) for _ in range(5)]
    _, verdicts = _run(exempt)
    assert verdicts[-1] == Stall(1, 5, ("stuck()",))


def test_alternating_calls_are_a_loop() -> None:
    """A,B,A,B,A,B is told at the third full period, as A,A,A is."""
    assert _marks([_turn("lookup"), _turn("search")] * 3) == ".....R"
    assert _marks([_turn("lookup")] * 3) == "..R"


def test_words_beside_the_calls_do_not_hide_a_loop() -> None:
    """What the model says while it repeats a call is no part of the turn that is signed."""
    said = [Act("look", {}, "same", False, label=f"look() while thinking {n}") for n in range(5)]
    assert _marks([Acted((act,)) for act in said]) == "..R.S"


def test_replies_without_calls_are_a_loop() -> None:
    """The same text sent back by the same gate: told, then ended, with its own words for what it was."""
    _, verdicts = _run([Held("I am done.", "verification")] * 6)
    assert isinstance(verdicts[2], Nudge)
    assert "a reply that verification sent back: I am done." in verdicts[2].text
    assert verdicts[4] == Stall(1, 5, ("a reply that verification sent back: I am done.",))
    assert _marks([Held(f"try {n}", "verification") for n in range(6)]) == "." * 6
    assert _marks([Held("same", gate) for gate in "abcdef"]) == "." * 6


def test_waiting_for_a_job_reaches_its_end() -> None:
    """`running` many times and then `done`: a tool that polls is exempt, and thresholds are settings."""
    polls = [_turn("status", "running", polls=True)] * 12 + [_turn("status", "done", polls=True)]
    assert _marks(polls) == "." * 13
    plain = [_turn("status", "running")] * 4 + [_turn("status", "done")]
    assert _marks(plain) == "..R.."
    assert _marks(plain, nudge_after=10, stall_after=20) == "....."


def test_a_cycle_of_three_with_failures_is_seen() -> None:
    """Read, failing edit, failing test: first a nudge, in the end a stall of period 3."""
    cycle = [_turn("read"), _turn("edit", error=True), _turn("test", error=True)]
    assert _marks(cycle * 5) == "..E" + "." * 11 + "S"
    assert _run(cycle * 5)[1][-1] == Stall(3, 5, ("read()", "edit()", "test()"))


def test_a_second_loop_gets_its_own_nudge() -> None:
    """The model obeyed for the first loop; the second is told apart, and by its own name."""
    commands = [[Acted((Act("sh", {"c": c}, c, False, label=f"sh({c})"),))] * 3 for c in ("c1", "c2")]
    nudges = [verdict for verdict in _run([*commands[0], *commands[1]])[1] if isinstance(verdict, Nudge)]
    assert ["sh(c1)" in nudge.text for nudge in nudges] == [True, False]
    assert ["sh(c2)" in nudge.text for nudge in nudges] == [False, True]


def test_a_relapse_is_treated_more_strictly() -> None:
    """A block that was nudged gets no second nudge, however much was done since, nor after it was carried."""
    told, _ = _run([_turn("a")] * 3)
    for guard in (told, restored(carried(told), DEFAULT)):
        verdicts = []
        for turn in [*(_turn(f"other{n}") for n in range(8)), *[_turn("a")] * 5]:
            guard, verdict = observe(guard, turn)
            verdicts.append(verdict)
        assert verdicts == [*[Proceed()] * 12, Stall(1, 5, ("a()",))]


def test_results_of_several_calls_do_not_fill_the_window() -> None:
    """A turn is one signature, however many results it has; one wordy result is no loop."""
    wordy = Acted(tuple(_call(name) for name in "abc"))
    assert _marks([wordy] * 5) == "..R.S"
    assert _marks([_turn("say", "again and " * 12), *(_turn("go", n) for n in range(5))]) == "." * 6


def test_unknown_tools_are_errors_and_not_one_call() -> None:
    """Six calls of six tools that do not exist: told as errors, never taken for the same call."""
    unknown = [_turn(f"no_such_{n}", "no such tool", error=True) for n in range(6)]
    assert _marks(unknown) == ".E...."


def test_batch_with_one_success_is_no_failure() -> None:
    """Only a turn in which every call failed counts, however many others did."""
    mixed = [Acted((_call("a", n), _call("b", n, error=True))) for n in range(4)]
    assert _marks(mixed) == "...."
    assert _marks([Acted((_call("a", n, error=True), _call("b", n, error=True))) for n in range(2)]) == ".E"


def test_what_never_ran_is_no_failure() -> None:
    """Calls that were interrupted, or whose batch had ended, count neither way."""
    stopped = [Acted((_call(f"t{n}", "interrupted", error=True, tried=False),)) for n in range(4)]
    assert _marks(stopped) == "...."
    beside = [
        Acted((_call("a", n, error=True), _call("b", "not run", error=True, tried=False))) for n in range(2)
    ]
    assert _marks(beside) == ".E"


def test_broken_characters_are_signed_like_any_other() -> None:
    """Lone surrogates in arguments and results: nothing fails, equal turns are still seen."""
    broken = Acted((Act("t\ud800", {"q\udfff": "\ud800"}, ["\udc00", "x"], False, label="t(\ud800)"),))
    _, verdicts = _run([broken] * 5)
    assert isinstance(verdicts[2], Nudge)
    assert isinstance(verdicts[4], Stall)
    verdicts[2].text.encode("utf-8")
    verdicts[4].steps[0].encode("utf-8")
