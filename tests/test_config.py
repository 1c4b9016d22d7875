"""The configuration file: what is read, how each error reads, and the JSON Schema for editors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.config import find, json_schema, load, show
from mainspring.errors import ConfigError, MainspringError
from mainspring.schemas.agent import AgentSpec, GateSpec
from mainspring.schemas.base import unwire, wire
from mainspring.schemas.config import GATES, Config

ROOT = Path(__file__).parents[1]

INTERFACES = """\
task_queue: mainspring
state_dir: .mainspring
blobs: file
models:
  default: "openai:gpt-5-mini"
  deep: {model: "anthropic:claude-opus-4-5", window: 200000, settings: {temperature: 0}, fallback: default}
  local: {model: "openai-chat:smollm2", base_url: "http://127.0.0.1:8080/v1", api_key: "env:LOCAL_KEY"}
  scripted: {script: "guide.script.yaml"}
agents:
  guide:
    instructions: "You answer questions about this repository."
    model: default
    tools: ["files/*", "mcp:git/*", "nika:done", "nika:ask"]
    budgets: {turns: 30, tokens: 100000, dollars: 1.0, wall: 10m, calls: 100}
    output_schema: null
    guard: {nudge_after: 3, stall_after: 5, max_reflections: 1}
    routing: {threshold: 24, top: 12, pin: [], sticky: false}
    gates: {profile: auto, max_blocks: 2, verification: optional, stop_hooks: []}
    context: {history_tokens: null, low_water: 0.6, compaction: none}
    limits: {parallel_calls: 8, spill_bytes: 16384, argument_bytes: 262144, depth: 64, on_exhausted: fail,
      strict_tools: false, completion: implicit}
    intents: {}
tools:
  python: ["examples.tools"]
  activities:
    - {name: "billing/charge", description: "Charge a card", activity: ChargeCard, task_queue: payments,
       input_schema: {type: object, properties: {cents: {type: integer}}, required: [cents]}, effects: write,
       approval: always}
mcp:
  git: {command: ["mcp-server-git", "--repository", "."]}
  docs: {url: "https://docs.example.org/mcp", headers: {authorization: "env:DOCS_TOKEN"}}
governor: {default: allow, rules: []}
"""
"""The example of interfaces.md, as it stands there."""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration, beside a script that it may name."""
    (tmp_path / "guide.script.yaml").write_text("replies: [{text: hi}]")

    def write(text: str) -> Path:
        path = tmp_path / "mainspring.yaml"
        path.write_bytes(text.encode())
        return path

    return write


def refused(write: Write, text: str) -> ConfigError:
    """The error of a configuration that is refused."""
    with pytest.raises(ConfigError) as raised:
        load(write(text))
    return raised.value


# --- what is read ---


def test_example_of_the_interface_is_read(write: Write) -> None:
    """Every key of the documented example means what it says."""
    config = load(write(INTERFACES))
    guide = config.agent_spec("guide")
    assert guide is not None
    assert (guide.budgets.turns, guide.budgets.wall, guide.budgets.dollars) == (30, 600.0, 1.0)
    deep = config.model_entry("deep")
    assert deep is not None
    assert (deep.fallbacks, deep.settings.temperature) == (("default",), 0)
    charge = config.tools.activities[0].definition()
    assert (charge.declaration.activity, charge.declaration.source) == ("ChargeCard", "activity")
    assert charge.input_schema["required"] == ["cents"]
    assert config.mcp["docs"].headers == {"authorization": "env:DOCS_TOKEN"}


def test_short_form_of_a_model_is_its_long_form(write: Write) -> None:
    """`name: provider:model` and `name: {model: provider:model}` are the same model."""
    config = load(write('models: {a: "openai:x", b: {model: "openai:x"}}'))
    assert config.model_entry("a") == config.model_entry("b")


def test_paths_are_relative_to_the_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Script, state, blobs, files and the servers' folder do not depend on the working directory."""
    path = write(
        "state_dir: state\nblobs: blobs\nmodels: {default: {script: guide.script.yaml}}\n"
        "files: {root: .}\nmcp: {git: {command: [x]}}"
    )
    monkeypatch.chdir("/")
    config = load(path)
    script = config.model_entry("default")
    assert script is not None
    assert script.script == str(tmp_path / "guide.script.yaml")
    assert (config.state_dir, config.blobs) == (str(tmp_path / "state"), str(tmp_path / "blobs"))
    assert config.files is not None
    assert (config.files.root, config.mcp["git"].cwd) == (str(tmp_path), str(tmp_path))


def test_urls_of_blobs_are_left_alone(write: Write) -> None:
    """A blob store elsewhere is no path."""
    assert load(write("blobs: s3://bucket/prefix")).blobs == "s3://bucket/prefix"


def test_file_tools_can_be_switched_off(write: Write) -> None:
    """`files: null` is no folder at all; without the key it is the file's own folder."""
    assert load(write("files: null")).files is None
    assert load(write("task_queue: x")).files is not None


@pytest.mark.parametrize(("written", "on"), [("off", False), ("on", True), ("false", False), ("true", True)])
def test_gates_are_switched_by_name(write: Write, written: str, on: bool) -> None:
    """`verify: off` is a switch, as YAML 1.2's `false` is."""
    config = load(write(f"models: {{default: a:b}}\nagents: {{g: {{gates: {{verify: {written}}}}}}}"))
    spec = config.agent_spec("g")
    assert spec is not None
    assert spec.gates == GateSpec(switches={"verify": on})


def test_gates_are_those_of_the_design() -> None:
    """The gates that can be switched are the eleven that have a name; stop hooks have a list of their own."""
    assert GATES == (
        "steering_drift", "empty_reply", "freshness", "grounding", "fence", "duplicate_card", "presentation",
        "truncated", "verify", "unresolved_failure", "until_done",
    )  # fmt: skip


def test_agents_cross_the_wire_unchanged(write: Write) -> None:
    """An agent as configured is the same agent after history."""
    spec = load(write(INTERFACES)).agent_spec("guide")
    assert spec is not None
    assert unwire(AgentSpec, json.loads(json.dumps(wire(spec)))) == spec


# --- what is refused, and how it reads ---

AGENT = "models: {default: a:b}\nagents:\n  guide:\n    "

ERRORS = [
    ("budget: 1", "1:1: budget: unknown key 'budget'; known: agents, blobs, deltas, files"),
    ("agentz: {}", "1:1: agentz: unknown key 'agentz'; did you mean 'agents'?"),
    (AGENT + "budget: {turns: 3}", "4:5: agents.guide.budget: unknown key 'budget'; did you mean 'budgets'?"),
    (
        AGENT + "budgets: {turn: 3}",
        "4:15: agents.guide.budgets.turn: unknown key 'turn'; did you mean 'turns'?",
    ),
    (AGENT + "budgets: {turns: 0}", "budgets.turns: must be greater than or equal to 1 (given 0)"),
    (
        AGENT + "budgets: {turns: 100001}",
        "budgets.turns: must be less than or equal to 100000 (given 100001)",
    ),
    (AGENT + "budgets: {turns: true}", "budgets.turns: must be a valid integer (given true)"),
    (AGENT + 'budgets: {turns: "3"}', 'budgets.turns: must be a valid integer (given "3")'),
    (AGENT + "budgets: {wall: 10q}", "'10q' is not a duration; write for example 250ms, 90s, 10m, 2h or 1d"),
    (
        AGENT + "settings: {temperature: 2.1}",
        "settings.temperature: must be less than or equal to 2 (given 2.1)",
    ),
    (AGENT + "limits: {on_exhausted: stop}", "must be 'fail' or 'wait' (given \"stop\")"),
    (AGENT + "limits: {strict_tools: 1}", "limits.strict_tools: must be a valid boolean (given 1)"),
    (
        AGENT + "gates: {verfy: off}",
        "4:13: agents.guide.gates.verfy: unknown key 'verfy'; did you mean 'verify'?",
    ),
    (AGENT + "gates: {verify: maybe}", 'gates.verify: must be a valid boolean (given "maybe")'),
    (AGENT + "gates: {switches: {verfy: true}}", "unknown gate 'verfy'; known: steering_drift"),
    (AGENT + "model: defualt", "4:12: agents.guide.model: unknown model 'defualt'; did you mean 'default'?"),
    (
        AGENT + "tools: [files/*, 'mcp:gti/*']",
        "4:22: agents.guide.tools[1]: 'mcp:gti/*': there is no MCP server",
    ),
    (AGENT + "tools: ['agent:x']", "agents.guide.tools[0]: 'agent:x': the prefix 'agent' is not known"),
    (AGENT + "tools: ['nika:dnoe']", "'nika:dnoe': there is no such built-in tool; did you mean nika:done"),
    (AGENT + "routing: {pin: ['skill:x']}", "agents.guide.routing.pin[0]: 'skill:x': the prefix 'skill'"),
    (AGENT + "tools: files", 'agents.guide.tools: must be a valid array (given "files")'),
    (
        AGENT + "output_schema: {type: objekt}",
        "4:20: agents.guide.output_schema: it is not a valid JSON Schema",
    ),
    (AGENT + "output_schema: {$ref: 'http://x/y'}", "$ref 'http://x/y' leads out of the schema"),
    (
        AGENT + "output_schema: [1]",
        "agents.guide.output_schema: must be an object or a valid boolean (given [1])",
    ),
    ("agents: {g: }", "agents.g: must be an object; nothing is given"),
    ("agents: {'a b': {}}", "agents.a b: must match pattern"),
    ("models: {m: 7}", "1:13: models.m: must be a valid string or an object (given 7)"),
    ("models: {m: {}}", "models.m: give either `model` (provider:model) or `script` (a file), and not both"),
    ("models: {m: {model: a:b, windw: 9}}", "models.m.windw: unknown key 'windw'; did you mean 'window'?"),
    ("models: {m: {script: none.yaml}}", "models.m.script: no such file"),
    ("models: {m: {model: a:b, base_url: ftp://x}}", "models.m.base_url: must match pattern"),
    ("models: {m: {model: a:b, fallback: n}}", "models.m.fallback: unknown model 'n'"),
    ("models: {a: {model: x:y, fallback: b}, b: {model: x:y, fallback: a}}", "in a circle: a → b → a"),
    ("models: {a: {model: x:y, fallback: a}}", "models.a.fallback: falls back in a circle: a → a"),
    ("tools: {activities: [{name: x}]}", "1:22: tools.activities[0].activity: it is missing"),
    ("tools: {activities: [{name: 'b:c', activity: X}]}", "a tool's name is <tool> or <group>/<tool>"),
    ("tools: {activities: [{name: files/x, activity: X}]}", "the group 'files' is built in"),
    (
        "tools: {activities: [{name: x, activity: A}, {name: x, activity: B}]}",
        "[1].name: 'x' is declared twice",
    ),
    (
        "tools: {activities: [{name: x, activity: A, input_schema: {$ref: 'file:///etc/hostname'}}]}",
        "tools.activities[0].input_schema: $ref 'file:///etc/hostname' leads out of the schema",
    ),
    ("files: {root: nowhere}", "files.root: no such folder"),
    ("mcp: {git: {comand: [x]}}", "mcp.git.comand: unknown key 'comand'; did you mean 'command'?"),
    ("mcp: {git: {command: [x], cwd: nowhere}}", "mcp.git.cwd: no such folder"),
    ("mcp_activity: other", "mcp_activity: must be 'dynamic' or 'mainspring.call_tool' (given \"other\")"),
    (
        "governor: {default: perhaps}",
        "governor.default: must be 'allow', 'ask' or 'deny' (given \"perhaps\")",
    ),
    (
        "deltas: {redis: 'localhost:6379'}",
        "deltas.redis: must be a Redis URL (redis://, rediss://, unix://), or the secret that holds it: "
        'env:NAME or file:PATH (given "localhost:6379")',
    ),
    ("models:", "1:8: models: must be an object; nothing is given"),
    ("[1, 2]", "1:1: must be an object (given [1, 2])"),
    ("", "1:1: the file is empty"),
    ("a: 1\na: 2", "2:1: the key 'a' appears twice; first on line 1"),
]


@pytest.mark.parametrize(("text", "words"), ERRORS)
def test_error_names_place_value_and_what_is_allowed(write: Write, text: str, words: str) -> None:
    """Each error is one ConfigError: file, line, column, the key's path, what was given, what is allowed."""
    error = refused(write, text)
    assert words in str(error)
    assert str(error).startswith("mainspring.yaml:")
    assert error.where is not None
    assert str(error).startswith(error.where)


def test_many_fallbacks_are_judged_in_bounded_time(write: Write) -> None:
    """Models that all fall back to those after them make many paths; no path is walked twice."""
    names = [f"m{n:02}" for n in range(40)]
    models = {n: {"model": "a:b", "fallback": names[i + 1 : i + 17]} for i, n in enumerate(names)}
    assert len(load(write(yaml.safe_dump({"models": models}))).models) == 40
    models["m39"]["fallback"] = ["m38"]
    assert "falls back in a circle: m38 → m39 → m38" in str(
        refused(write, yaml.safe_dump({"models": models}))
    )


def test_all_problems_are_listed_in_order(write: Write) -> None:
    """Several problems are reported at once, by line."""
    error = refused(write, "budget: 1\nstate_dir: 3\nmodels: {m: 7}\nmcp_activity: x")
    assert [line.split(":")[1] for line in str(error).splitlines()] == ["1", "2", "3", "4"]
    assert error.where == "mainspring.yaml:1:1"


def test_many_problems_are_bounded(write: Write) -> None:
    """A hopeless file gives a readable error."""
    error = refused(write, "\n".join(f"key{n}: 1" for n in range(500)))
    assert len(str(error).splitlines()) == 21
    assert "and 480 more" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "models: {m: {model: a:b, api_key: sk-TOPSECRET}}",
        "models: {m: {model: a:b, headers: {x-key: TOPSECRET}}}",
        "models: {m: {model: a:b, api_kye: sk-TOPSECRET}}",
        "models: {m: {model: a:b, api_key: [TOPSECRET]}}",
        "mcp: {x: {url: 'https://x', headers: {a: [TOPSECRET]}}}",
        "mcp: {x: {command: [x], env: {A: {b: TOPSECRET}}}}",
    ],
)
def test_secrets_are_never_shown(write: Write, text: str) -> None:
    """A secret that was written where its name belongs does not end up in an error."""
    assert "TOPSECRET" not in str(refused(write, text))


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_file_that_cannot_be_read_is_one_error(tmp_path: Path, name: str) -> None:
    """No file, or a folder in its place, is a ConfigError that names it."""
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        load(tmp_path / name)
    assert isinstance(raised.value, MainspringError)


LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["x", "a:b", "on", "10m", "env:A"])
PLACES = ["models", "agents", "tools", "mcp", "governor", "files"]
PARTS = [
    "default",
    "model",
    "script",
    "gates",
    "verify",
    "budgets",
    "turns",
    "activities",
    "name",
    "activity",
]
KEYS = st.sampled_from([*PLACES, *PARTS, "command", "root", "fallback", "headers", "unknown"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_any_tree_is_a_configuration_or_a_config_error(write: Write, tree: dict[str, object]) -> None:
    """Whatever the keys and values: a Config, or one ConfigError whose lines all have a place."""
    path = write(yaml.safe_dump(tree))
    try:
        assert isinstance(load(path), Config)
    except ConfigError as error:
        lines = str(error).splitlines()
        assert all(line.startswith(("mainspring.yaml:", "and ")) for line in lines)
        assert len(lines) <= 21


# --- finding, showing, and the schema for editors ---


def test_configuration_is_found_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest file in this folder or above it is used, and the environment outranks it."""
    monkeypatch.delenv("MAINSPRING_CONFIG", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"no mainspring\.yaml in"):
        find(inner)
    (tmp_path / "mainspring.yaml").write_text("task_queue: x")
    assert find(inner) == tmp_path.resolve() / "mainspring.yaml"
    monkeypatch.setenv("MAINSPRING_CONFIG", "/elsewhere.yaml")
    assert find(inner) == Path("/elsewhere.yaml")


def test_shown_configuration_holds_no_secret(write: Write) -> None:
    """References are shown, values never: not in headers, not in an environment, not in an address."""
    text = (
        "models: {m: {model: a:b, api_key: env:K, base_url: 'https://user:TOPSECRET@host/v1'}}\n"
        "mcp:\n  a: {command: [x], env: {A: TOPSECRET, B: env:B}}\n"
        "  b: {url: 'https://x', headers: {h: TOPSECRET}}"
    )
    shown = json.dumps(show(load(write(text))))
    assert "TOPSECRET" not in shown
    assert "env:K" in shown
    assert "env:B" in shown


def test_json_schema_is_current() -> None:
    """The committed schema is what `mainspring config schema` prints; write it anew when this fails."""
    committed = (ROOT / "schemas" / "mainspring.schema.json").read_text()
    assert committed == json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("text", [INTERFACES, "agents: {g: {gates: {verify: off}, budgets: {wall: 90}}}"])
def test_json_schema_takes_what_the_loader_takes(text: str) -> None:
    """Editors accept what we accept."""
    jsonschema.Draft202012Validator(json_schema()).validate(_plain(text))


@pytest.mark.parametrize(
    "text",
    [
        "budget: 1",
        AGENT + "budgets: {turns: 0}",
        AGENT + "budgets: {wall: 10q}",
        AGENT + "budgets: {wall: 0}",
        AGENT + "gates: {verfy: off}",
        AGENT + "gates: {verify: maybe}",
        "tools: {activities: [{name: x}]}",
        "mcp_activity: other",
        "agents: {'a b': {}}",
        "deltas: {redis: 'localhost:6379'}",
    ],
)
def test_json_schema_refuses_what_the_loader_refuses(write: Write, text: str) -> None:
    """Editors mark what we refuse."""
    refused(write, text)
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(_plain(text))


def _plain(text: str) -> object:
    from mainspring.document import parse

    return parse(text.encode()).value


def test_example_is_read() -> None:
    """The example of the repository is a valid configuration, for us and for editors."""
    path = ROOT / "examples" / "mainspring.yaml"
    config = load(path)
    assert set(config.models) == {"default", "scripted"}
    jsonschema.Draft202012Validator(json_schema()).validate(_plain(path.read_text()))


@pytest.mark.parametrize("field", ["activity: X", "task_queue: q"])
def test_names_that_the_server_refuses_are_refused_here(tmp_path: Path, field: str) -> None:
    """An activity type or task queue above 1,000 bytes would fail a workflow task for ever."""
    key, _, _ = field.partition(":")
    entry = {"name": "pay", "activity": "Pay", "task_queue": "payments", key: "漢" * 400}
    (tmp_path / "mainspring.yaml").write_text(
        json.dumps({"tools": {"activities": [entry]}}), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="1000"):
        load(tmp_path / "mainspring.yaml")
