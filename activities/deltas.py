"""Live deltas: every piece of a streaming reply, for products that show tokens as they come.

They are outside history and beside the truth: what a run said is in its ledger. A sink may lose them, and a
run never waits for one longer than a second.

    kind        text                    what it does to the text of its call
    snapshot    the whole text so far   replaces it
    text        the next piece          is added to it
    thinking    the next piece          is added to the thinking
    end         the reply's text        replaces it, for good
    withdrawn   nothing                 leaves it: the attempt ended without a reply

`seq` 0 of every attempt is an empty snapshot: it has begun, and what an earlier attempt streamed is void.

Source: shared design, loop.md "Live text".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

__all__ = ["Delta", "DeltaSink", "Kind", "LiveText", "Stamp"]

Kind = Literal["text", "thinking", "snapshot", "end", "withdrawn"]
KINDS: frozenset[str] = frozenset(get_args(Kind))


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which attempt at which model call a delta belongs to.

    Args:
        run: The workflow id.
        execution: The Temporal run id; a run that continues as new has several.
        exchange: The exchange of the run, from 1.
        turn: The turn, from 1, as the run's events number it.
        call: The activity id of the model call.
        attempt: From 1.
        began: When the server started the attempt, in microseconds since 1970. The calls of a run, and the
            attempts at a call, begin one after the other, so the greater one is the newer, also across
            executions and after a reset, which count anew.
    """

    run: str
    execution: str
    exchange: int
    turn: int
    call: str
    attempt: int
    began: int

    @property
    def order(self) -> tuple[int, int]:
        """What tells a newer attempt from an older one of the same run."""
        return self.began, self.attempt


@dataclass(frozen=True, slots=True)
class Delta:
    """One message about one attempt.

    Args:
        seq: From 0 within the attempt, without gaps: a gap means that something was lost.
        text: Valid Unicode without NUL; see the table above.
    """

    stamp: Stamp
    seq: int
    kind: Kind
    text: str = ""

    def fields(self) -> dict[str, str | int]:
        """Flat, as it stands in a Redis stream and suits JSON; the run is the stream's own name."""
        stamp = self.stamp
        return {
            "kind": self.kind,
            "text": self.text,
            "seq": self.seq,
            "attempt": stamp.attempt,
            "turn": stamp.turn,
            "exchange": stamp.exchange,
            "call": stamp.call,
            "execution": stamp.execution,
            "began": stamp.began,
        }

    @classmethod
    def of_fields(cls, run: str, fields: Mapping[str, Any]) -> Delta | None:
        """The delta that flat fields tell, be they text or numbers; None for what is none we know."""
        try:
            kind: Any = fields["kind"]
            if kind not in KINDS:
                return None
            stamp = Stamp(
                run=run,
                execution=str(fields["execution"]),
                exchange=int(fields["exchange"]),
                turn=int(fields["turn"]),
                call=str(fields["call"]),
                attempt=int(fields["attempt"]),
                began=int(fields["began"]),
            )
            return cls(stamp, int(fields["seq"]), kind, str(fields["text"]))
        except (KeyError, TypeError, ValueError):
            return None


class DeltaSink(Protocol):
    """Where deltas go.

    Contract: `send` is awaited on the worker's event loop, for one attempt at a time never twice at once, for
    several attempts at once. It must not block the loop. It may be slow: what comes meanwhile arrives joined,
    as fewer and larger deltas. It may raise, or take longer than 5 s: the rest of that attempt is not sent,
    which one line of the log tells; the model call goes on. At the end of an attempt what is left has 1 s,
    then `send` is cancelled. It may see an attempt that was lost to its server, beside the one that took its
    place. On replay it is not called at all. Who made a sink closes it.
    """

    async def send(self, deltas: Sequence[Delta]) -> None:
        """Take some deltas of one attempt, in order."""
        ...


class LiveText:
    """What a model is saying, from deltas: the newest attempt at the newest call of one run.

    Contract: total. Deltas of one attempt come in order; they may be missing, repeated, and mixed with those
    of other attempts. Once the `end` of the newest attempt is in, `text` is the reply's, whatever was lost.
    """

    __slots__ = ("_pieces", "_thoughts", "seq", "stamp", "state", "whole")

    def __init__(self) -> None:
        self.stamp: Stamp | None = None
        """Of the newest attempt."""
        self.state: Literal["waiting", "streaming", "ended", "withdrawn"] = "waiting"
        self.whole = True
        """Whether `text` lacks nothing of what was streamed; of no meaning to the thinking."""
        self.seq = -1
        self._pieces: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        """The visible text so far; the reply's, once it has ended."""
        return _joined(self._pieces)

    @property
    def thinking(self) -> str:
        """The thinking so far, as far as it came."""
        return _joined(self._thoughts)

    def feed(self, delta: Delta) -> bool:
        """Take the next delta; False for one that is out of date and changes nothing."""
        if self.stamp is None or delta.stamp.order > self.stamp.order:
            self._begin(delta.stamp)
        elif delta.stamp != self.stamp or delta.seq <= self.seq:
            return False
        if delta.seq != self.seq + 1:
            self.whole = False
        self.seq = delta.seq
        self._take(delta)
        return True

    def _begin(self, stamp: Stamp) -> None:
        self.stamp, self.seq = stamp, -1
        self.whole, self.state = True, "streaming"
        self._pieces, self._thoughts = [], []

    def _take(self, delta: Delta) -> None:
        match delta.kind:
            case "text":
                self._pieces.append(delta.text)
            case "thinking":
                self._thoughts.append(delta.text)
            case "snapshot":
                self._pieces, self.whole = [delta.text], True
            case "end":
                self._pieces, self.whole, self.state = [delta.text], True, "ended"
            case "withdrawn":
                self.state = "withdrawn"


def _joined(pieces: list[str]) -> str:
    """The pieces as one, which they are from then on: asking after every piece stays cheap."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""
