from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from mainspring.schemas.base import SECONDS_MAX, Closed, Duration, JsonValue, problems, unwire, wire

DURATION = TypeAdapter(Duration)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


class Sample(Closed):
    """One field of each kind."""

    name: str
    count: int = Field(default=1, ge=1)
    wall: Duration = 60.0
    more: JsonValue = None


def _problems(value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        unwire(Sample, value)
    return problems(caught.value)


# -- Duration --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90", 90),
        ("90s", 90),
        ("250ms", 0.25),
        ("10m", 600),
        ("1.5h", 5400),
        (" 2 h ", 7200),
        ("1d", 86400),
        (SECONDS_MAX, SECONDS_MAX),
    ],
)
def test_duration_takes(written: object, seconds: float) -> None:
    """Seconds, or a number with a unit."""
    assert DURATION.validate_python(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "",
        "m",
        "10q",
        "-5s",
        "1e3",
        "1h30m",
        "ten",
        "1.",
        "nan",
        "inf",
        float("nan"),
        float("inf"),
        SECONDS_MAX + 1,
        "9999999d",
        "9" * 400 + "d",
        [],
        None,
    ],
    ids=count(),
)
def test_duration_refuses(written: object) -> None:
    """What is no time, or longer than any run: it would fail a workflow task for ever."""
    with pytest.raises(ValidationError):
        DURATION.validate_python(written)


def test_duration_says_how_to_write_it() -> None:
    """The error shows what was given, however long, and examples."""
    told = _problems({"name": "x", "wall": "10q"})
    assert told == "wall: '10q' is not a duration; write for example 250ms, 90s, 10m, 2h or 1d (given '10q')"
    assert len(_problems({"name": "x", "wall": "q" * 1_000_000})) < 400


# -- Closed, wire, unwire --------------------------------------------------------------------------


def test_closed_is_frozen_and_closed() -> None:
    """A value is never changed, and an unknown key is an error."""
    sample = Sample(name="x")
    with pytest.raises(ValidationError, match="frozen"):
        sample.name = "y"
    assert _problems({"name": "x", "colour": 1}) == "colour: Extra inputs are not permitted (given 1)"


def test_wire_leaves_out_what_is_at_its_default() -> None:
    """History pays for every byte."""
    assert wire(Sample(name="x", count=1)) == {"name": "x"}
    assert wire(Sample(name="x", count=2, more=0)) == {"name": "x", "count": 2, "more": 0}


@given(st.text(), st.integers(1, 9), st.floats(0, SECONDS_MAX))
@settings(deadline=None)
def test_unwire_reads_what_wire_wrote(name: str, number: int, wall: float) -> None:
    """The wire form stands for the value, whole."""
    sample = Sample(name=name, count=number, wall=wall)
    assert unwire(Sample, wire(sample)) == sample


# -- problems --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "name: Field required (given {})"),
        ({"name": 5}, "name: Input should be a valid string (given 5)"),
        ({"name": "x", "count": 0}, "count: Input should be greater than or equal to 1 (given 0)"),
        (5, "value: Input should be a valid dictionary or instance of Sample (given 5)"),
    ],
)
def test_problems_name_field_value_and_rule(value: object, told: str) -> None:
    """Which field, what was given, what is allowed."""
    assert _problems(value) == told


def test_problems_say_how_many_more() -> None:
    """Five problems are told, the others counted."""
    assert _problems({"name": "x", **{f"k{n}": n for n in range(8)}}).endswith("; and 3 more")


@given(ANYTHING)
@settings(deadline=None)
def test_problems_are_bounded(value: object) -> None:
    """Whatever was given, one readable line of about 1 KB is told."""
    told = _problems(
        {"name": value if not isinstance(value, str) else 0, "x" * 500: value, "count": value or "x"}
    )
    assert len(told) < 1_500
    assert "\n" not in told


@pytest.mark.parametrize("huge", ["x" * 10**6, 10**5_000, ["x"] * 10**5, {"k" * 10**6: 1}], ids=count())
def test_problems_of_a_huge_value_are_short(huge: object) -> None:
    """What is too large to show is cut or named."""
    assert len(_problems({"name": [huge], "k" * 10**6: huge})) < 700
