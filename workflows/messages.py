"""What people say to a run: decoding of signals and updates, and the two queues.

Pure. Nothing that is sent can raise here: what is not understood becomes `Rejected`, naming what was wrong
and what is allowed. Handlers only enqueue.

Source: shared design, loop.md "Talking to a run"; interfaces.md "On the wire"; temporal-facts.md 2, 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import Field, ValidationError

from mainspring.schemas.agent import BudgetPatch
from mainspring.schemas.base import Closed, problems, unwire
from mainspring.schemas.ledger import Attachment
from mainspring.workflows.catalog import near
from mainspring.workflows.values import clip, safe_text

__all__ = [
    "SIGNALS",
    "UPDATES",
    "Answer",
    "Extend",
    "Finish",
    "FollowUp",
    "Inbox",
    "Interrupt",
    "Message",
    "Pause",
    "Rejected",
    "Resume",
    "Said",
    "Steer",
    "decode",
    "size_of",
]

ATTACHED_BYTES_MAX = 524_288
"""Of all inline attachments of one message: an entry must fit the page of a query."""

SIGNALS: tuple[str, ...] = ("steer", "follow_up", "interrupt", "finish", "pause", "resume")
UPDATES: tuple[str, ...] = ("steer", "follow_up", "answer", "extend_budget")


@dataclass(frozen=True, slots=True)
class Steer:
    """Words for the current exchange."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    interrupt: bool = False


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Words for an exchange of their own."""

    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End the current exchange."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End the run after what is queued."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Start no new call."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Start calls again."""


@dataclass(frozen=True, slots=True)
class Extend:
    """Top the budget up."""

    more: BudgetPatch


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question of the run."""

    question_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """Not understood or not taken, and why."""

    reason: str


Message = Steer | FollowUp | Interrupt | Finish | Pause | Resume | Extend | Answer


class _SteerBody(Closed):
    message: str
    interrupt: bool = False
    attachments: tuple[Attachment, ...] = Field(default=(), max_length=32)


class _FollowUpBody(Closed):
    message: str
    attachments: tuple[Attachment, ...] = Field(default=(), max_length=32)


class _AnswerBody(Closed):
    question_id: str = Field(min_length=1, max_length=1_000)
    text: str


def decode(name: str, arguments: Sequence[object], *, message_bytes: int) -> Message | Rejected:
    """Understand one signal or update by its name and its decoded arguments."""
    decoder = _DECODERS.get(name)
    if decoder is None:
        known = sorted(_DECODERS)
        hint = "".join(f"; did you mean {found!r}?" for found in near(clip(safe_text(name), 80), known, 1))
        return Rejected(f"{clip(safe_text(name), 80)!r} is not known here{hint} Known: {', '.join(known)}")
    try:
        return decoder(arguments, message_bytes)
    except ValidationError as error:
        return Rejected(f"{name}: {clip(safe_text(problems(error)), 500)}")


def _steer(arguments: Sequence[object], message_bytes: int) -> Message | Rejected:
    if len(arguments) != 1:
        return _wrong_count("steer", 1, arguments)
    given = arguments[0]
    body = _SteerBody(message=given) if isinstance(given, str) else unwire(_SteerBody, given)
    text = _text(body.message, message_bytes, body.attachments)
    return text if isinstance(text, Rejected) else Steer(text, body.attachments, body.interrupt)


def _follow_up(arguments: Sequence[object], message_bytes: int) -> Message | Rejected:
    if len(arguments) != 1:
        return _wrong_count("follow_up", 1, arguments)
    given = arguments[0]
    body = _FollowUpBody(message=given) if isinstance(given, str) else unwire(_FollowUpBody, given)
    text = _text(body.message, message_bytes, body.attachments)
    return text if isinstance(text, Rejected) else FollowUp(text, body.attachments)


def _answer(arguments: Sequence[object], message_bytes: int) -> Message | Rejected:
    if len(arguments) != 1:
        return _wrong_count("answer", 1, arguments)
    body = unwire(_AnswerBody, arguments[0])
    if not body.text.strip():
        return Rejected("answer: text: it is blank")
    size = len(body.text.encode("utf-8", "surrogatepass"))
    if size > message_bytes:
        return Rejected(f"answer: text: {size} bytes; at most {message_bytes} are taken")
    return Answer(body.question_id, safe_text(body.text))


def _extend(arguments: Sequence[object], _: int) -> Message | Rejected:
    if len(arguments) != 1:
        return _wrong_count("extend_budget", 1, arguments)
    more = unwire(BudgetPatch, arguments[0])
    if not any(value is not None for value in more.model_dump().values()):
        return Rejected("extend_budget: name at least one of turns, tokens, dollars, wall, calls")
    return Extend(more)


def _bare(name: str, message: Message) -> Callable[[Sequence[object], int], Message | Rejected]:
    def decoder(arguments: Sequence[object], _: int) -> Message | Rejected:
        if any(argument is not None for argument in arguments):
            return _wrong_count(name, 0, arguments)
        return message

    return decoder


_DECODERS: dict[str, Callable[[Sequence[object], int], Message | Rejected]] = {
    "steer": _steer,
    "follow_up": _follow_up,
    "answer": _answer,
    "extend_budget": _extend,
    "interrupt": _bare("interrupt", Interrupt()),
    "finish": _bare("finish", Finish()),
    "pause": _bare("pause", Pause()),
    "resume": _bare("resume", Resume()),
}


def _wrong_count(name: str, wanted: int, arguments: Sequence[object]) -> Rejected:
    return Rejected(f"{name} takes {wanted} argument{'s' * (wanted != 1)}, {len(arguments)} were given")


def _text(text: str, message_bytes: int, attachments: Sequence[Attachment]) -> str | Rejected:
    if not text.strip():
        return Rejected("message: it is blank")
    attached = sum(len(attachment.data or "") for attachment in attachments)
    if attached > ATTACHED_BYTES_MAX:
        return Rejected(
            f"attachments: {attached} bytes are inline; at most {ATTACHED_BYTES_MAX}, larger ones by `blob`"
        )
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > message_bytes:
        return Rejected(
            f"message: {size} bytes; at most {message_bytes} are taken (attach larger text as a file)"
        )
    return safe_text(text)


@dataclass(frozen=True, slots=True)
class Said:
    """A queued message with the number that its sender was given."""

    number: int
    message: Steer | FollowUp


@dataclass(slots=True)
class Inbox:
    """The two queues. Steering goes first; follow-ups wait for the end of the exchange."""

    steering: deque[Said] = field(default_factory=deque)
    follow_ups: deque[Said] = field(default_factory=deque)
    numbered: int = 0
    bytes: int = 0

    @property
    def waiting(self) -> int:
        """Messages queued."""
        return len(self.steering) + len(self.follow_ups)

    def put(self, message: Steer | FollowUp) -> int:
        """Queue a message; its number counts from 1."""
        self.numbered += 1
        self.bytes += size_of(message)
        queue = self.steering if isinstance(message, Steer) else self.follow_ups
        queue.append(Said(self.numbered, message))
        return self.numbered

    def next_steering(self) -> Said | None:
        """The oldest steering message."""
        return self._taken(self.steering)

    def next_directive(self) -> Said | None:
        """What the next exchange works on: steering that found no exchange, then the oldest follow-up."""
        return self._taken(self.steering) or self._taken(self.follow_ups)

    def _taken(self, queue: deque[Said]) -> Said | None:
        if not queue:
            return None
        said = queue.popleft()
        self.bytes -= size_of(said.message)
        return said


def size_of(message: Steer | FollowUp) -> int:
    """Bytes of a message with what is attached inline."""
    attached = sum(len(item.data or "") for item in message.attachments)
    return len(message.text.encode("utf-8", "replace")) + attached
