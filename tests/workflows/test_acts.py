"""A call as the guard is shown it."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.schemas.base import JsonValue
from mainspring.schemas.ledger import Entry, EntryCall
from mainspring.schemas.tools import BlobRef, ToolDeclaration, ToolOutcome
from mainspring.workflows.acts import act_of
from mainspring.workflows.guard import Acted, signature
from mainspring.workflows.intrinsics import FIND_TOOLS, found
from mainspring.workflows.ledger import observation_entry


def observed(content: JsonValue = "seen", **more: Any) -> Entry:
    """An observation."""
    return observation_entry(3, 1, 1, "c1", "look", ToolOutcome(content=content, **more))


LOOK = EntryCall(id="c1", tool="look", arguments={"at": "a"})


@pytest.mark.parametrize(
    ("status", "tried"),
    [
        ("ok", True),
        ("error", True),
        ("refused", True),
        ("unknown", True),
        ("forbidden", True),
        ("not_run", False),
        ("interrupted", False),
    ],
)
def test_act_was_tried_unless_it_never_ran(status: str, tried: bool) -> None:
    """A call that the checks refused counts as one that was tried (decision 0010)."""
    assert act_of(LOOK, observed(), None, status, None).tried is tried


def test_act_has_what_was_called_and_observed() -> None:
    """Tool, arguments, content and error flag as the ledger has them, and the call in short."""
    act = act_of(LOOK, observed("gone", is_error=True), None, "error", None)
    assert (act.tool, act.arguments, act.content, act.is_error) == ("look", {"at": "a"}, "gone", True)
    assert (act.label, act.polls, act.digest) == ('look(at="a")', False, None)


@pytest.mark.parametrize("polls", [True, False])
def test_act_polls_where_its_tool_declares_it(polls: bool) -> None:
    """The tool's declaration decides, and nothing else."""
    assert act_of(LOOK, observed(), ToolDeclaration(name="look", polls=polls), "ok", None).polls is polls


def test_act_has_the_digest_of_what_is_not_shown() -> None:
    """Of what was spilled, of files beside it, and of what was cut and is kept nowhere."""
    one, other = (BlobRef(digest=name, size=9, media_type="text/plain") for name in ("d1", "d2"))
    entry = observed().model_copy(update={"spilled": one, "files": (other,)})
    assert act_of(LOOK, entry, None, "ok", "d3").digest == "d1 d2 d3"
    assert act_of(LOOK, observed(), None, "ok", "d3").digest == "d3"


def test_searches_that_are_left_do_not_hide_that_searches_repeat() -> None:
    """What the loop adds to a search is no part of what it found; what it found is."""

    def signed(*tools: str, left: int) -> int | None:
        outcome = found([ToolDeclaration(name=name) for name in tools], weak=False, left=left)
        call = EntryCall(id="c1", tool=FIND_TOOLS, arguments={"query": "mail"})
        return signature(Acted((act_of(call, observed(outcome.content), None, "ok", None),)))

    assert signed("mail", left=3) == signed("mail", left=2)
    assert signed("mail", left=3) != signed("post", left=3)
    keyed: JsonValue = {"searches_left": 3}
    assert act_of(LOOK, observed(keyed), None, "ok", None).content == keyed
