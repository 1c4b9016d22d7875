"""Arming's pure part: overrides, tool patterns, and what a run may not ask for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schemas.agent import AgentSpec, BudgetPatch, BudgetSpec, ModelSettings, Overrides, RoutingSpec
from mainspring.schemas.base import unwire
from mainspring.schemas.config import GATES, GovernorSpec
from mainspring.schemas.run import RunInput
from mainspring.schemas.tools import ToolDeclaration
from mainspring.workflows.arming import (
    NOT_YET,
    STANDING_MAX,
    TOOLS_MAX,
    Refused,
    apply,
    check,
    check_tools,
    concerns,
    idle_patterns,
    named_servers,
    pattern_faults,
)
from mainspring.workflows.catalog import INTRINSICS, admits
from mainspring.workflows.intrinsics import SERVED

Json = dict[str, object]
SERVERS = ("git", "docs")
NAMES = ("files/read", "files/list", "billing/charge", "lookup")
SPEC = AgentSpec(
    model="deep",
    tools=("files/*",),
    budgets=BudgetSpec(turns=30, tokens=1_000, wall=60.0),
    settings=ModelSettings(temperature=0.5, seed=7),
)


def applied(spec: AgentSpec, overrides: Overrides) -> AgentSpec:
    """The specification with overrides that are known to be sound."""
    result = apply(spec, overrides)
    assert isinstance(result, AgentSpec), result
    return result


def fault(pattern: str, *, names: tuple[str, ...] | None = NAMES) -> str | None:
    """What is wrong with one pattern."""
    return next((why for _, why in pattern_faults([pattern], servers=SERVERS, names=names)), None)


# --- overrides ---

PATCHES = st.builds(
    Overrides,
    model=st.none() | st.sampled_from(["a", "b"]),
    instructions=st.none() | st.sampled_from(["x", ""]),
    tools=st.none() | st.sampled_from([(), ("lookup",), ("**", "!lookup")]),
    budgets=st.builds(
        BudgetPatch, turns=st.none() | st.integers(1, 9), dollars=st.none() | st.sampled_from([0.5, 2.0])
    ),
    settings=st.builds(ModelSettings, temperature=st.none() | st.sampled_from([0.0, 1.0])),
    output_schema=st.none() | st.just({"type": "string"}),
    limits=st.sampled_from([{}, {"depth": 8}, {"parallel_calls": 2, "model_timeout": "90s"}]),
)


@given(PATCHES)
def test_overrides_change_only_what_they_give(patch: Overrides) -> None:
    """A field that an override leaves out stays what the agent says."""
    result = applied(SPEC, patch)
    given_top = {
        n for n in ("model", "instructions", "tools", "output_schema") if getattr(patch, n) is not None
    }
    for name in AgentSpec.model_fields:
        if name in given_top:
            assert getattr(result, name) == getattr(patch, name)
        elif name not in ("budgets", "settings", "limits"):
            assert getattr(result, name) == getattr(SPEC, name)
    for part in ("budgets", "settings"):
        for name in type(getattr(SPEC, part)).model_fields:
            wanted = getattr(getattr(patch, part), name)
            kept = getattr(getattr(SPEC, part), name)
            assert getattr(getattr(result, part), name) == (kept if wanted is None else wanted)


def test_no_overrides_change_nothing() -> None:
    """The empty override is the identity."""
    assert applied(SPEC, Overrides()) == SPEC


@given(PATCHES)
def test_overrides_given_twice_are_given_once(patch: Overrides) -> None:
    """Applying an override again changes nothing more."""
    once = applied(SPEC, patch)
    assert applied(once, patch) == once


def test_zero_and_empty_are_given() -> None:
    """Falsy values override: a temperature of 0, no tools, no instructions."""
    patch = Overrides(instructions="", tools=(), settings=ModelSettings(temperature=0))
    result = applied(SPEC.model_copy(update={"instructions": "x"}), patch)
    assert (result.instructions, result.tools, result.settings.temperature) == ("", (), 0)


def test_limits_are_typed_when_overridden() -> None:
    """A limit takes what its field takes, durations included."""
    result = applied(SPEC, Overrides(limits={"model_timeout": "2m", "on_exhausted": "wait"}))
    assert (result.limits.model_timeout, result.limits.on_exhausted) == (120.0, "wait")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"dept": 3}, "overrides.limits: 'dept': there is no such limit; did you mean depth?"),
        ({"depth": 3}, "depth: Input should be greater than or equal to 4 (given 3)"),
        ({"on_exhausted": "stop"}, "'fail' or 'wait' (given 'stop')"),
    ],
)
def test_wrong_limits_are_refused_by_name(limits: dict[str, object], words: str) -> None:
    """A refusal names the limit, the value and what is allowed."""
    result = apply(SPEC, unwire(Overrides, {"limits": limits}))
    assert isinstance(result, Refused)
    assert words in result.message


# --- tool patterns ---

GOOD = [
    "**", "*", "files/*", "files/read", "lookup", "l*", "!lookup", "!**", "mcp:git/*", "mcp:git/git_log",
    "mcp:*/*", "mcp:g*/x", "mcp:**", "nika:done", "nika:*", "*:git/*", "b*/charge", "files/**", "zz*",
    "mcp:git/a/b", "!mcp:docs/*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", GOOD)
def test_pattern_that_may_match_passes(pattern: str) -> None:
    """A glob over a known source passes, also when it matches nothing today."""
    assert fault(pattern) is None


BAD = [
    ("", "an empty pattern"),
    ("!", "an empty pattern"),
    ("x" * 257, "at most 256"),
    ("a\nb", "printable"),
    (" lookup", "no space around it"),
    ("agent:x", "the prefix 'agent' is not known; a tool is named nika:<builtin>, mcp:<server>/<tool>"),
    ("skill:x", "the prefix 'skill'"),
    ("custom:*", "the prefix 'custom'"),
    ("!agent:x", "the prefix 'agent'"),
    (":x", "the prefix ''"),
    ("x*:y", "no prefix is like 'x*'"),
    ("nika:dnoe", "no such built-in tool; did you mean nika:done"),
    ("nika:z*", "no such built-in tool; did you mean nika:"),
    ("mcp:gti/*", "there is no MCP server 'gti'; did you mean git?"),
    ("mcp:git", "it names a server and none of its tools; write mcp:git/*"),
    ("mcp:git/", "write mcp:git/*"),
    ("mcp:z*/*", "no MCP server is like 'z*'; known: docs, git"),
    ("!mcp:mail/send*", "there is no MCP server 'mail'"),
    ("file/*", "there is no group of tools 'file'; did you mean files?"),
    ("files/raed", "there is no tool of that name; did you mean files/read"),
    ("lookpu", "there is no tool of that name; did you mean lookup?"),
]


@pytest.mark.parametrize(("pattern", "words"), BAD)
def test_pattern_that_can_match_nothing_is_refused(pattern: str, words: str) -> None:
    """An unknown prefix, server, group or name is refused with what is near, or what there is."""
    why = fault(pattern)
    assert why is not None
    assert words in why
    assert repr(pattern)[:20] in why


def test_plain_names_wait_until_tools_are_known() -> None:
    """Without the names of tools, only prefixes and servers are judged."""
    assert fault("lookpu", names=None) is None
    assert fault("mcp:gti/*", names=None) is not None


@given(st.text(max_size=30))
def test_any_pattern_is_judged(pattern: str) -> None:
    """No text crashes the judgement, and one that is refused admits no configured tool."""
    why = fault(pattern)
    if why is not None and not pattern.startswith("!"):
        assert not any(admits([pattern], name) for name in NAMES)


@pytest.mark.parametrize(
    ("patterns", "named"),
    [(["mcp:git/*"], ("git",)), (["mcp:*/*", "**"], ()), (["!mcp:git/x", "mcp:docs/a"], ("docs",)), ([], ())],
)
def test_servers_are_named_without_a_glob(patterns: list[str], named: tuple[str, ...]) -> None:
    """Only a server that is written out is one that the run cannot do without."""
    assert named_servers(patterns, SERVERS) == named


@pytest.mark.parametrize(
    ("pattern", "concerned"),
    [("mcp:git/x", True), ("mcp:*/x", True), ("**", True), ("mcp:**", True), ("*:git/x", True),
     ("mcp:docs/*", False), ("files/**", False), ("!mcp:git/*", False), ("*", False)],
)  # fmt: skip
def test_server_concerns_the_patterns_that_could_match_it(pattern: str, concerned: bool) -> None:
    """A server that no pattern reaches is none of the run's business."""
    assert concerns([pattern], "git") is concerned
    if concerned:
        assert admits([pattern], "mcp:git/x")


def test_idle_patterns_are_those_that_match_nothing() -> None:
    """A pattern without a match today is worth a note; a negation is not."""
    assert idle_patterns(["files/*", "zz*", "!yy*"], NAMES) == ("zz*",)


# --- what a run asks for ---


def messages(spec: Json, *, governor: GovernorSpec | None = None, **run: object) -> tuple[str, ...]:
    """What a run with that inline agent is told."""
    request = unwire(RunInput, {"agent": "a", "prompt": "p", **run})
    refused = check(request, unwire(AgentSpec, spec), servers=SERVERS, governor=governor or GovernorSpec())
    return tuple(item.message for item in refused)


LATER = [
    ({}, {"criteria": [{"tool": "x"}]}, "criteria: "),
    ({"gates": {"verification": "required"}}, {}, "gates.verification: 'required'"),
    ({"gates": {"stop_hooks": ["x"]}}, {}, "gates.stop_hooks: ['x']"),
    ({"gates": {"profile": "effect"}}, {}, "gates.profile: 'effect'"),
    ({"gates": {"switches": {"verify": True}}}, {}, "gates: ['verify: on']"),
    ({"gates": {"switches": {"empty_reply": False}}}, {}, "gates: ['empty_reply: off']"),
    ({"context": {"compaction": "model"}}, {}, "context.compaction: 'model'"),
    ({"intents": {"weather": {"phrases": ["rain"]}}}, {}, "intents: ['weather']"),
    ({"tools": ["nika:recall", "nika:done"]}, {}, "tools: ['nika:recall']"),
]


@pytest.mark.parametrize(("spec", "run", "words"), LATER)
def test_what_cannot_be_done_yet_is_refused(spec: Json, run: Json, words: str) -> None:
    """Asking for it is refused by name, and never ignored."""
    told = messages(spec, **run)
    assert len(told) == 1
    assert words in told[0]
    assert "this version cannot do that yet" in told[0]


@pytest.mark.parametrize("governor", [GovernorSpec(default="deny"), GovernorSpec(rules=({"decide": "ask"},))])
def test_governor_that_would_be_ignored_is_refused(governor: GovernorSpec) -> None:
    """A rule that would not be kept is worse than none."""
    assert len(messages({}, governor=governor)) == 1


def test_every_refusal_of_the_table_is_tested() -> None:
    """No line of the table goes without a case that meets it."""
    tested = {words.partition(":")[0] for *_, words in LATER} | {"governor.default", "governor.rules"}
    assert {item.field for item in NOT_YET} == tested


def test_defaults_ask_for_nothing_that_cannot_be_done() -> None:
    """An agent without a word of its own passes."""
    assert messages({}) == ()


def test_switches_to_what_is_anyway_pass() -> None:
    """Off for a gate that does not exist yet and on for one that is always on change nothing."""
    switches = {name: name == "empty_reply" for name in GATES}
    assert messages({"gates": {"switches": switches}}) == ()


@pytest.mark.parametrize("pattern", ["nika:*", "**", *SERVED])
def test_globs_admit_the_intrinsics_that_are_served(pattern: str) -> None:
    """A glob over built-in tools admits what there is; only a literal name insists."""
    assert messages({"tools": [pattern]}) == ()


@pytest.mark.parametrize("name", [name for name in INTRINSICS if name not in SERVED])
def test_intrinsics_named_literally_are_refused_until_served(name: str) -> None:
    """A tool that is asked for by name and not there is refused."""
    assert messages({"tools": [name]})[0].startswith(f"tools: ['{name}']")


REFUSED = [
    ({"output_schema": {"type": "objekt"}}, {}, "output_schema: it is not a valid JSON Schema"),
    ({"output_schema": False}, {}, "output_schema: False: it admits no answer"),
    (
        {"limits": {"message_bytes": 1000}},
        {"prompt": "x" * 1001},
        "prompt: it is 1001 bytes large; at most 1000",
    ),
    ({"limits": {"message_bytes": 1000}}, {"prompt": "é" * 501}, "prompt: it is 1002 bytes large"),
    (
        {"limits": {"on_exhausted": "wait"}},
        {"attended": False},
        "limits.on_exhausted: 'wait': nobody attends",
    ),
    ({}, {"idle_timeout": 5}, "idle_timeout: 5.0: only lifetime 'conversation'"),
    (
        {"limits": {"completion": "explicit"}},
        {},
        "limits.completion: 'explicit': it needs the tool nika:done",
    ),
    ({"tools": ["x"] * 1001}, {}, "tools: 1001: at most 1000 patterns"),
    ({"tools": ["agent:x"]}, {}, "tools: 'agent:x': the prefix 'agent'"),
    ({"routing": {"pin": ["mcp:no/x"]}}, {}, "routing.pin: 'mcp:no/x': there is no MCP server 'no'"),
]


@pytest.mark.parametrize(("spec", "run", "words"), REFUSED)
def test_refusal_names_field_value_and_what_is_allowed(spec: Json, run: Json, words: str) -> None:
    """Each thing that is wrong is one line: the field, the value, what is allowed."""
    told = messages(spec, **run)
    assert len(told) == 1
    assert told[0].startswith(words)


ALLOWED = [
    ({"limits": {"on_exhausted": "wait"}}, {}),
    ({}, {"idle_timeout": 5, "lifetime": "conversation"}),
    ({"limits": {"completion": "explicit"}, "tools": ["nika:*"]}, {}),
    ({"limits": {"message_bytes": 1000}}, {"prompt": "x" * 1000}),
    ({"output_schema": True}, {}),
]


@pytest.mark.parametrize(("spec", "run"), ALLOWED)
def test_what_is_just_allowed_passes(spec: Json, run: Json) -> None:
    """The nearest thing that is right is not refused."""
    assert messages(spec, **run) == ()


def test_everything_wrong_is_told_at_once() -> None:
    """One refusal lists all: nobody starts a run five times to learn five faults."""
    told = messages(
        {"gates": {"profile": "message"}, "output_schema": False, "tools": ["a:b", "c:d"]}, criteria=[1]
    )
    assert len(told) == 5


def test_tools_that_ask_for_approval_are_refused() -> None:
    """Approvals are not served yet, so a tool that needs one cannot be had."""
    tool = ToolDeclaration(name="billing/charge", approval="always")
    refused = check_tools(SPEC, [tool], servers=SERVERS, names=NAMES)
    assert [item.message for item in refused] == [
        "approval: 'always': the tool billing/charge asks for approval; this version cannot do that yet"
    ]


def test_names_are_checked_once_tools_are_known() -> None:
    """A plain name that no tool has is refused with the near one."""
    spec = AgentSpec(tools=("lookpu",))
    assert "did you mean lookup?" in check_tools(spec, [], servers=SERVERS, names=NAMES)[0].message


def test_more_tools_than_a_history_takes_are_refused() -> None:
    """20,000 tools are taken, one more is not."""
    tools = [ToolDeclaration(name=f"t{i}") for i in range(TOOLS_MAX + 1)]
    spec = AgentSpec(tools=("*",))
    assert check_tools(spec, tools[:-1], servers=SERVERS, names=NAMES) == ()
    (refused,) = check_tools(spec, tools, servers=SERVERS, names=NAMES)
    assert refused.message == "tools: 20001: so many tools are admitted; at most 20000"


@pytest.mark.parametrize(("pin", "core"), [(("t*",), False), ((), True)])
def test_more_standing_tools_than_an_offer_are_refused(pin: tuple[str, ...], core: bool) -> None:
    """What is pinned or core goes into every request, so it is bounded; a small catalog goes whole anyhow."""
    tools = [ToolDeclaration(name=f"t{i}", core=core) for i in range(STANDING_MAX + 1)]

    def told(count: int, **routing: Any) -> list[str]:
        spec = AgentSpec(tools=("*",), routing=RoutingSpec(pin=pin, **routing))
        return [item.message for item in check_tools(spec, tools[:count], servers=SERVERS, names=["t0"])]

    assert told(STANDING_MAX) == []
    assert told(STANDING_MAX + 1, threshold=1_000) == []
    assert "at most 128 go into every request" in told(STANDING_MAX + 1)[0]
