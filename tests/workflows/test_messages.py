from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.agent import BudgetPatch
from mainspring.schemas.ledger import Attachment
from mainspring.workflows.messages import (
    SIGNALS,
    UPDATES,
    Answer,
    Extend,
    Finish,
    FollowUp,
    Inbox,
    Interrupt,
    Pause,
    Rejected,
    Resume,
    Steer,
    decode,
)

BYTES = 1_000
ANY_TEXT = st.text(st.characters(exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            ANY_TEXT | st.sampled_from(["message", "interrupt", "turns", "attachments"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def _nested(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("steer", ["only the tests"], Steer("only the tests")),
        ("steer", [{"message": "now"}], Steer("now")),
        ("steer", [{"message": "now", "interrupt": True}], Steer("now", interrupt=True)),
        ("steer", ["[stop-guard] is plain text"], Steer("[stop-guard] is plain text")),
        ("steer", ["a\x00b"], Steer("a\ufffdb")),
        ("steer", ["\ud83c\udf78 \ud83c"], Steer("🍸 \ufffd")),
        ("steer", ["x" * BYTES], Steer("x" * BYTES)),
        (
            "steer",
            [{"message": "see", "attachments": [{"data": "AA=="}]}],
            Steer("see", (Attachment(data="AA=="),)),
        ),
        ("follow_up", ["and then?"], FollowUp("and then?")),
        ("follow_up", [{"message": " kept as it is\n"}], FollowUp(" kept as it is\n")),
        ("extend_budget", [{"turns": 5, "wall": "10m"}], Extend(BudgetPatch(turns=5, wall=600.0))),
        ("answer", [{"question_id": "q-1", "text": "Oslo"}], Answer("q-1", "Oslo")),
        ("answer", [{"question_id": "q-1", "text": "a\x00b"}], Answer("q-1", "a\ufffdb")),
        ("interrupt", [], Interrupt()),
        ("interrupt", [None], Interrupt()),
        ("finish", [], Finish()),
        ("pause", [None, None], Pause()),
        ("resume", [], Resume()),
    ],
    ids=count(),
)
def test_decode_understands(name: str, arguments: list[Any], message: object) -> None:
    """Each message in each of its forms; text is made safe."""
    assert decode(name, arguments, message_bytes=BYTES) == message


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("steer", [5], "(given 5)"),
        ("steer", [None], "(given None)"),
        ("steer", [True], "(given True)"),
        ("steer", [["x"]], "(given ['x'])"),
        ("steer", [b"x"], "(given b'x')"),
        ("steer", [], "takes 1 argument, 0 were given"),
        ("steer", ["a", "b"], "takes 1 argument, 2 were given"),
        ("steer", [{}], "message: Field required"),
        ("steer", [{"message": 5}], "message: Input should be a valid string (given 5)"),
        ("steer", [{"message": None}], "message"),
        ("steer", [{"message": "x", "now": True}], "now: Extra inputs"),
        ("steer", [{"message": "x", "interrupt": "maybe"}], "interrupt: "),
        ("steer", [{"message": "x", "attachments": [{"colour": 1}]}], "attachments.0.colour"),
        ("steer", [{"message": "x", "attachments": [{}] * 33}], "at most 32"),
        ("steer", [{"message": "x", "attachments": [{"data": "A" * 131_073}]}], "attachments.0.data"),
        ("steer", [""], "blank"),
        ("steer", [" \n\t\u3000"], "blank"),
        ("steer", ["x" * (BYTES + 1)], f"{BYTES + 1} bytes; at most {BYTES}"),
        ("steer", ["漢" * 334], "1002 bytes"),
        ("steer", ["x" * 3_000_000], "3000000 bytes"),
        ("steer", ["\ud83c" * 3_000_000], "9000000 bytes"),
        ("follow_up", [{"message": "x", "interrupt": True}], "interrupt: Extra inputs"),
        ("follow_up", [{"message": " "}], "blank"),
        ("follow_up", [], "takes 1 argument"),
        ("answer", [], "takes 1 argument"),
        ("answer", ["Oslo"], "answer: "),
        ("answer", [{"text": "Oslo"}], "question_id: "),
        ("answer", [{"question_id": "q-1", "text": " "}], "text: it is blank"),
        ("answer", [{"question_id": "q-1", "text": "x", "by": "me"}], "by: "),
        ("extend_budget", [{}], "at least one of turns, tokens, dollars, wall, calls"),
        ("extend_budget", [{"turns": None}], "at least one of"),
        ("extend_budget", [{"turns": 0}], "turns: "),
        ("extend_budget", [{"turns": "many"}], "turns: "),
        ("extend_budget", [{"dollars": -1}], "dollars: "),
        ("extend_budget", [{"dollars": float("nan")}], "dollars: "),
        ("extend_budget", [{"dollars": 1e300}], "dollars: "),
        ("extend_budget", [{"tokens": 10**4_000}], "tokens: "),
        ("extend_budget", [{"wall": "10q"}], "wall: '10q' is not a duration"),
        ("extend_budget", [{"wall": "99999999999d"}], "wall: "),
        ("extend_budget", ["5"], "extend_budget"),
        ("extend_budget", [{"turns": 1}, 2], "takes 1 argument, 2"),
        ("interrupt", [{}], "takes 0 arguments, 1 were given"),
        ("pause", ["now"], "takes 0 arguments"),
        ("decide", [{}], "'decide' is not known here"),
        ("steerr", ["x"], "did you mean 'steer'?"),
        ("", [], "is not known here"),
        ("\ud800", [], "is not known here"),
        ("x" * 100_000, [], "is not known here"),
    ],
    ids=count(),
)
def test_decode_rejects(name: str, arguments: list[Any], reason: str) -> None:
    """What is wrong is named, in at most a few lines, and nothing is raised."""
    rejected = decode(name, arguments, message_bytes=BYTES)
    assert isinstance(rejected, Rejected)
    assert reason in rejected.reason
    assert len(rejected.reason) < 700
    rejected.reason.encode("utf-8")


@given(st.sampled_from([*SIGNALS, *UPDATES]) | ANY_TEXT, st.lists(JSON, max_size=3), st.integers(1, 50))
def test_decode_is_total(name: str, arguments: list[Any], message_bytes: int) -> None:
    """Any name with any arguments is understood or rejected, within the bound."""
    message = decode(name, arguments, message_bytes=message_bytes)
    if isinstance(message, Steer | FollowUp):
        assert message.text.strip()
        message.text.encode("utf-8")


@pytest.mark.parametrize(
    "given", [10**5_000, _nested(5_000), {"message": _nested(5_000)}, {"k" * 10**6: 1}], ids=count()
)
def test_decode_survives_what_cannot_be_shown(given: object) -> None:
    """What has no bounded text of its own is rejected like anything else."""
    rejected = decode("steer", [given], message_bytes=BYTES)
    assert isinstance(rejected, Rejected)
    assert len(rejected.reason) < 700


def test_decode_of_a_large_wrong_shape_is_quick() -> None:
    """A few megabytes of nonsense cost no more than looking at them."""
    began = time.process_time()
    assert isinstance(decode("steer", [{"message": ["x" * 3_000_000]}], message_bytes=BYTES), Rejected)
    assert isinstance(decode("steer", [{str(n): n for n in range(100_000)}], message_bytes=BYTES), Rejected)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("name", [*SIGNALS, *UPDATES])
def test_every_name_is_decoded(name: str) -> None:
    """Each signal and update that is announced is known to `decode`."""
    message = decode(name, ["x", "y", "z"], message_bytes=BYTES)
    assert isinstance(message, Rejected)
    assert "were given" in message.reason


# -- Inbox -----------------------------------------------------------------------------------------

MESSAGES = st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=12)


@given(MESSAGES)
def test_inbox_delivers_steering_first_each_in_order(sent: list[tuple[bool, str]]) -> None:
    """All steering, then all follow-ups, each in the order sent; nothing lost, nothing twice (G17)."""
    inbox = Inbox()
    for steers, text in sent:
        inbox.put(Steer(text) if steers else FollowUp(text))
    assert inbox.waiting == len(sent)
    delivered = []
    while (said := inbox.next_directive()) is not None:
        delivered.append((isinstance(said.message, Steer), said.message.text))
    assert delivered == [item for item in sent if item[0]] + [item for item in sent if not item[0]]
    assert inbox.waiting == 0


@given(MESSAGES)
def test_inbox_numbers_from_one(sent: list[tuple[bool, str]]) -> None:
    """Each sender is given the next number, and the message keeps it."""
    inbox = Inbox()
    numbers = [inbox.put(Steer(text) if steers else FollowUp(text)) for steers, text in sent]
    assert numbers == list(range(1, len(sent) + 1))
    assert sorted(said.number for said in (*inbox.steering, *inbox.follow_ups)) == numbers
