"""The stall guard: sees turns repeat, tells the model once, then ends the exchange.

Pure. A turn is signed by its calls and their observations together, so that only a repetition that changes
nothing is seen: polling whose answer changes, and the same work on other things, never are.

Source: shared design, loop.md "Guard (stalls)".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from mainspring.schemas.agent import GuardSpec
from mainspring.schemas.base import JsonValue
from mainspring.workflows.signatures import Act, Acted, Held, Turn, signature
from mainspring.workflows.values import clip

__all__ = [
    "NUDGES_MAX",
    "Act",
    "Acted",
    "Cycle",
    "Guard",
    "Held",
    "Nudge",
    "Proceed",
    "Signed",
    "Stall",
    "Turn",
    "carried",
    "dominant_cycle",
    "fresh",
    "observe",
    "restored",
    "signature",
    "view",
]

NUDGES_MAX = 5
"""Of one exchange, however often reflections are re-armed."""
PERIODS = 8
"""Cycles up to this long stall, whatever `stall_after` is: the window holds that many copies of them."""
ERRORS_IN_A_ROW = 2
"""Turns in which every call failed, after which the model is told."""
STEP_CHARACTERS = 160
STEPS_SHOWN = 8
"""Of one cycle, in the words for a model or a person; a longer one is cut and says so."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A turn in the window."""

    signature: int
    label: str


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guard knows of an exchange.

    Args:
        spec: Its settings.
        window: The newest signed turns, oldest first; at most `size` of them.
        error_streak: Turns in a row in which every call failed, since the last nudge for it.
        reflections_left: Nudges that may still be given before progress re-arms them.
        nudges: Given so far.
        nudged: Blocks that were nudged, each in its canonical rotation; at most `NUDGES_MAX`.
        progressed: Since the last nudge a turn brought something new that is not an error.
    """

    spec: GuardSpec
    window: tuple[Signed, ...] = ()
    error_streak: int = 0
    reflections_left: int = 0
    nudges: int = 0
    nudged: tuple[tuple[int, ...], ...] = ()
    progressed: bool = False

    @property
    def size(self) -> int:
        """Turns that the window holds: enough for `stall_after` copies of a cycle of `PERIODS` turns."""
        return max(self.spec.window, self.spec.stall_after * PERIODS)


@dataclass(frozen=True, slots=True)
class Cycle:
    """The last `period` turns, `repeats` times in a row."""

    period: int
    repeats: int


@dataclass(frozen=True, slots=True)
class Proceed:
    """Nothing to say."""


@dataclass(frozen=True, slots=True)
class Nudge:
    """Tell the model `text`. For an error streak `period` is 0 and `repeats` the turns that failed."""

    reason: Literal["repeated_actions", "error_streak"]
    period: int
    repeats: int
    text: str


@dataclass(frozen=True, slots=True)
class Stall:
    """End the exchange: `steps`, one cycle of `period` turns, came `repeats` times in a row."""

    period: int
    repeats: int
    steps: tuple[str, ...]


def fresh(spec: GuardSpec) -> Guard:
    """The guard at the start of an exchange."""
    return Guard(spec, reflections_left=spec.max_reflections)


def observe(guard: Guard, turn: Turn) -> tuple[Guard, Proceed | Nudge | Stall]:
    """Judge the newest turn against the window of earlier ones.

    A turn that signs nothing (all of its calls poll) is judged by its errors alone. Costs O(W²) comparisons
    of integers, for a window of W turns.

    Args:
        guard: As the last turn left it; of this exchange.
        turn: With its calls and observations in the order of the calls, as the ledger keeps them.

    Returns: The guard to carry on with, and the verdict. A stall outranks every nudge, repetition outranks
        errors.
    """
    guard, signed = _taken_in(guard, turn)
    cycle = dominant_cycle(tuple(item.signature for item in guard.window)) if signed else None
    directed = isinstance(turn, Acted) and turn.directed
    if cycle is not None and cycle.repeats >= guard.spec.stall_after:
        return guard, Stall(cycle.period, cycle.repeats, _steps(guard, cycle.period))
    if cycle is not None and cycle.repeats >= guard.spec.nudge_after:
        block = _canonical(tuple(item.signature for item in guard.window[-cycle.period :]))
        armed = _rearmed(guard, block)
        if _may_nudge(armed):
            if directed:
                return guard, Proceed()
            text = _repeated(cycle, _steps(guard, cycle.period))
            return _nudged(armed, block), Nudge("repeated_actions", cycle.period, cycle.repeats, text)
    if guard.error_streak >= ERRORS_IN_A_ROW and _may_nudge(guard):
        streak, guard = guard.error_streak, replace(guard, error_streak=0)
        if directed:
            return guard, Proceed()
        return _nudged(guard), Nudge("error_streak", 0, streak, _failed(streak, turn))
    return guard, Proceed()


def _taken_in(guard: Guard, turn: Turn) -> tuple[Guard, bool]:
    """The guard with the turn in its window, where the turn signs anything, and whether it does."""
    acts = turn.acts if isinstance(turn, Acted) else ()
    tried = [act for act in acts if act.tried]
    failed = bool(tried) and all(act.is_error for act in tried)
    streak = guard.error_streak + 1 if failed else 0
    signed = signature(turn)
    if signed is None:
        return replace(guard, error_streak=streak), False
    is_new = all(item.signature != signed for item in guard.window)
    window = (*guard.window, Signed(signed, _label(turn)))[-guard.size :]
    progressed = guard.progressed or (is_new and any(not act.is_error for act in acts))
    return replace(guard, window=window, error_streak=streak, progressed=progressed), True


# -- nudges ----------------------------------------------------------------------------------------


def _may_nudge(guard: Guard) -> bool:
    return guard.reflections_left > 0 and guard.nudges < NUDGES_MAX


def _rearmed(guard: Guard, block: tuple[int, ...]) -> Guard:
    """With all reflections again, where a second, unrelated loop begins after progress.

    A relapse into a block that was nudged is no new loop: it is left to the stall.
    """
    if guard.progressed and block not in guard.nudged:
        return replace(guard, reflections_left=guard.spec.max_reflections)
    return guard


def _nudged(guard: Guard, *blocks: tuple[int, ...]) -> Guard:
    return replace(
        guard,
        reflections_left=guard.reflections_left - 1,
        nudges=guard.nudges + 1,
        nudged=(*guard.nudged, *blocks),
        progressed=False,
    )


def _canonical(block: tuple[int, ...]) -> tuple[int, ...]:
    """The least rotation of a block: X,Y,Z and Y,Z,X are one cycle, wherever it is first seen."""
    return min(block[start:] + block[:start] for start in range(len(block)))


# -- cycles ----------------------------------------------------------------------------------------


def dominant_cycle(signatures: tuple[int, ...]) -> Cycle | None:
    """The cycle that repeats most at the end of `signatures`; ties go to the smallest period.

    At most W²/4 comparisons of W signatures.
    """
    length = len(signatures)
    best: Cycle | None = None
    for period in range(1, length // 2 + 1):
        if best is not None and length // period <= best.repeats:
            break  # no longer period has room to repeat more often
        block = signatures[length - period :]
        repeats, start = 1, length - 2 * period
        while start >= 0 and signatures[start : start + period] == block:
            repeats, start = repeats + 1, start - period
        if repeats > (best.repeats if best else 1):
            best = Cycle(period, repeats)
    return best


# -- words -----------------------------------------------------------------------------------------


def _label(turn: Turn) -> str:
    match turn:
        case Held(text, gate):
            return clip(f"a reply that {gate} sent back: {text}", STEP_CHARACTERS)
        case Acted(acts):
            return _calls(act for act in acts if not act.polls)


def _calls(acts: Iterable[Act]) -> str:
    return clip(" · ".join(act.label or act.tool for act in acts), STEP_CHARACTERS)


def _steps(guard: Guard, period: int) -> tuple[str, ...]:
    labels = tuple(item.label for item in guard.window[-period:])
    left_out = period - STEPS_SHOWN
    return labels if left_out <= 0 else (*labels[:STEPS_SHOWN], f"… and {left_out} more turns")


_ASKED = "Take a different action, or give the best answer that you can from what you have now."


def _repeated(cycle: Cycle, steps: tuple[str, ...]) -> str:
    turns = "turn has" if cycle.period == 1 else f"{cycle.period} turns have"
    listed = "\n".join(f"- {step}" for step in steps)
    return (
        f"[loop-guard] The last {turns} now come {cycle.repeats} times in a row, "
        f"each time with the same outcome:\n{listed}\n"
        f"Repeating this brings nothing new. {_ASKED}"
    )


def _failed(streak: int, turn: Turn) -> str:
    acts = turn.acts if isinstance(turn, Acted) else ()
    failed = _calls(act for act in acts if act.tried)
    return (
        f"[loop-guard] Every call of the last {streak} turns failed, most recently:\n- {failed}\n"
        f"Trying the same again brings nothing new. {_ASKED}"
    )


# -- carried across runs, and shown ----------------------------------------------------------------


def carried(guard: Guard) -> dict[str, JsonValue]:
    """The guard as plain JSON, for continue-as-new. Signatures are text: a JSON number has no 64 bits."""
    return {
        "window": [[f"{item.signature:016x}", item.label] for item in guard.window],
        "error_streak": guard.error_streak,
        "reflections_left": guard.reflections_left,
        "nudges": guard.nudges,
        "nudged": [[f"{number:016x}" for number in block] for block in guard.nudged],
        "progressed": guard.progressed,
    }


def restored(plain: dict[str, Any], spec: GuardSpec) -> Guard:
    """The guard that `carried` wrote."""
    return Guard(
        spec,
        window=tuple(Signed(int(number, 16), label) for number, label in plain["window"]),
        error_streak=plain["error_streak"],
        reflections_left=plain["reflections_left"],
        nudges=plain["nudges"],
        nudged=tuple(tuple(int(number, 16) for number in block) for block in plain["nudged"]),
        progressed=plain["progressed"],
    )


def view(guard: Guard) -> dict[str, JsonValue]:
    """The guard for the query `state`: counts, never content. `period` is 0 where nothing repeats."""
    cycle = dominant_cycle(tuple(item.signature for item in guard.window))
    return {
        "window": len(guard.window),
        "period": cycle.period if cycle else 0,
        "repeats": cycle.repeats if cycle else 0,
        "error_streak": guard.error_streak,
        "reflections_left": guard.reflections_left,
        "nudges": guard.nudges,
    }
