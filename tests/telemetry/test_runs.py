"""What a run tells OpenTelemetry: one trace, and each span, figure and log record once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from temporalio.service import RPCError
from temporalio.worker import Replayer

from mainspring.client import RunFailed
from mainspring.embedded import Server
from mainspring.schemas.run import Spend
from mainspring.testing import Case
from mainspring.tools import tool
from support.invariants import serving
from support.telemetry import Recorded, nested, tree_of
from support.tools import nap, observe

REPLIES = [
    {
        "calls": [{"tool": "observe"}, {"tool": "observe"}],
        "usage": {"input_tokens": 100, "output_tokens": 10},
    },
    {"calls": [{"tool": "observe"}], "usage": {"input_tokens": 200, "output_tokens": 20}},
    {"text": "Done.", "usage": {"input_tokens": 300, "output_tokens": 30}},
]
CHAT, TOOL, ROOT = "chat default", "execute_tool observe", "invoke_agent tested"
TREE = [(ROOT, None), (CHAT, ROOT), (TOOL, ROOT), (TOOL, ROOT), (CHAT, ROOT), (TOOL, ROOT), (CHAT, ROOT)]


def one_trace(spans: Sequence[ReadableSpan]) -> None:
    """All spans are of one trace, none has the id of another, and all lie within the first."""
    assert len({span.context.trace_id for span in spans}) == 1
    assert len({span.context.span_id for span in spans}) == len(spans)
    assert [span.name for span in spans if not nested(span, spans[0])] == []


@pytest.mark.parametrize("cached", [1_000, 0])
async def test_run_is_one_trace_told_once(server: Server, cached: int) -> None:
    """One `invoke_agent`, a `chat` a turn, an `execute_tool` a call: once, also if each task is a replay."""
    told = Recorded()
    async with serving(
        server.address,
        replies=REPLIES,
        tools=[observe],
        telemetry=told.providers,
        max_cached_workflows=cached,
        max_concurrent_workflow_task_polls=2,
    ) as case:
        result = await case.run()
    spans = told.spans()
    assert tree_of(spans) == TREE
    one_trace(spans)
    assert told.active.active == 0
    assert told.active.started == len(spans)
    assert [record.event_name for record in told.logs()] == [
        "mainspring.run_started",
        "mainspring.exchange_started",
        "mainspring.exchange_ended",
        "mainspring.finished",
    ]
    assert {record.trace_id for record in told.logs()} == {spans[0].context.trace_id}
    spend = result.spend
    tokens = "gen_ai.client.token.usage"
    assert told.total(tokens, gen_ai__token__type="input") == spend.input_tokens == 600
    assert told.total(tokens, gen_ai__token__type="output") == spend.output_tokens == 60
    assert told.total("mainspring.turns") == spend.turns == 3
    assert told.total("mainspring.tool.calls", mainspring__status="ok") == spend.tool_calls == 3
    assert told.total("mainspring.runs", mainspring__outcome="completed") == 1
    assert told.total("mainspring.tools.offered") == 3
    counts = {name: sum(p.count for p in told.points(name)) for name in HISTOGRAMS}
    assert counts == {
        "gen_ai.client.operation.duration": 3,
        "mainspring.tool.duration": 3,
        "mainspring.run.duration": 1,
    }


HISTOGRAMS = ("gen_ai.client.operation.duration", "mainspring.tool.duration", "mainspring.run.duration")


async def test_spans_carry_the_attributes_of_the_conventions(server: Server) -> None:
    """Kinds, names and attributes are those of the GenAI conventions, and ours for the rest."""
    told = Recorded()
    async with serving(server.address, replies=REPLIES, tools=[observe], telemetry=told.providers) as case:
        run = await case.start()
        await run.result()
        events = await case.events(run)
        info = await case.handle(run).describe()
    root, chat, called = (told.spans(name)[0] for name in ("invoke_agent", "chat", "execute_tool"))
    of_run = {
        "gen_ai.agent.name": "tested",
        "gen_ai.conversation.id": run.id,
        "mainspring.run.id": info.run_id,
    }
    model = {"gen_ai.provider.name": "mainspring.scripted", "gen_ai.request.model": "default"}
    seqs = {event["event"]: event["seq"] for event in reversed(events)}
    call_id = next(event["call_id"] for event in events if event["event"] == "ToolCompleted")
    assert (root.kind, chat.kind, called.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert dict(root.attributes or {}) == of_run | model | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.usage.input_tokens": 600,
        "gen_ai.usage.output_tokens": 60,
        "mainspring.turns": 3,
        "mainspring.model_calls": 3,
        "mainspring.tool_calls": 3,
        "mainspring.outcome": "completed",
        "mainspring.exchanges": 1,
        "mainspring.unanswered": 0,
    }
    planned = next(event for event in events if event["event"] == "ContextPlanned")
    shown = dict(chat.attributes or {})
    shown.pop("gen_ai.response.time_to_first_chunk", None)
    shown.pop("gen_ai.response.model", None)
    assert shown == of_run | model | {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "mainspring.seq": seqs["BudgetCheckpoint"],
        "mainspring.turn": 1,
        "mainspring.tools.offered": 1,
        "mainspring.tools.universe": 1,
        "mainspring.context_tokens": planned["context_tokens"],
    }
    assert dict(called.attributes or {}) == of_run | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "observe",
        "gen_ai.tool.call.id": call_id,
        "mainspring.seq": seqs["ToolCompleted"],
        "mainspring.turn": 1,
        "mainspring.status": "ok",
        "mainspring.bytes": len("observation 0"),
        "mainspring.spilled": False,
    }
    assert {span.status.status_code for span in told.spans()} == {StatusCode.UNSET}


async def test_figures_equal_the_spend_of_the_run(server: Server) -> None:
    """Tokens and dollars add up to what the run says it cost, with attempts and fallbacks that failed."""
    told = Recorded()
    failing = {"status": 500, "usage": {"input_tokens": 7, "output_tokens": 3}}
    script = {
        "price": {"input": 1_000.0, "output": 10_000.0},
        "replies": [
            {**REPLIES[0], "fails": [failing]},
            {"fails": [{"status": 400, "usage": {"input_tokens": 50}}], "text": "never"},
        ],
    }
    fallback = {
        "price": {"input": 2_000.0, "output": 0.0},
        "replies": [
            {"text": "unused"},
            {"text": "Done.", "usage": {"input_tokens": 900, "output_tokens": 9}},
        ],
    }
    async with serving(
        server.address,
        replies=script,
        tools=[observe],
        config={
            "models": {
                "default": {"script": "script.yaml", "fallback": "second"},
                "second": {"script": "second.yaml"},
            }
        },
        files={"second.yaml": json.dumps(fallback)},
        telemetry=told.providers,
    ) as case:
        spend = (await case.run()).spend
    assert spend.model_calls == 2
    assert told.total("gen_ai.client.token.usage", gen_ai__token__type="input") == spend.input_tokens
    assert told.total("gen_ai.client.token.usage", gen_ai__token__type="output") == spend.output_tokens
    assert spend.input_tokens == 100 + 7 + 50 + 900
    assert spend.dollars
    assert told.total("mainspring.cost") == pytest.approx(spend.dollars)
    assert [span.name for span in told.spans("chat")] == ["chat default", "chat second"]
    assert told.spans("chat second")[0].status.status_code is StatusCode.UNSET
    assert told.total("mainspring.model.failures") == 1


async def test_runs_that_are_talked_to_to_the_last_are_told_once(server: Server) -> None:
    """Words that come while a run ends have the server refuse its last task: it is told once all the same."""
    told = Recorded()
    script = {"replies": [{"text": "Done.", "usage": {"input_tokens": 3}}], "then": "repeat_last"}
    async with serving(server.address, replies=script, telemetry=told.providers) as case:
        spends = await asyncio.gather(*(talked_to(case) for _ in range(5)))
    roots = told.spans("invoke_agent")
    assert len(roots) == len({root.context.span_id for root in roots}) == len(spends) == 5
    chats = told.spans("chat")
    assert len(chats) == len({chat.context.span_id for chat in chats}) == sum(spend.turns for spend in spends)
    assert told.total("mainspring.runs") == 5
    assert told.total("mainspring.turns") == sum(spend.turns for spend in spends)
    assert told.total("gen_ai.client.token.usage") == 3 * sum(spend.turns for spend in spends)
    turns = [(root.attributes or {})["mainspring.turns"] for root in roots]
    assert sorted(turns) == sorted(spend.turns for spend in spends)  # of the last ending, not an earlier one


async def talked_to(case: Case) -> Spend:
    """The spend of a run that is sent words every few milliseconds until it takes no more."""
    run = await case.start()

    async def talk() -> None:
        for _ in range(10):
            try:
                await case.handle(run).signal("follow_up", {"message": "and?"})
            except RPCError:
                return
            await run.state()

    await asyncio.gather(*(talk() for _ in range(3)))
    return (await run.result()).spend


async def test_query_and_replay_tell_nothing(server: Server) -> None:
    """A closed run that is looked at, or whose history is replayed, makes no span, figure or record again."""
    told = Recorded()
    async with serving(
        server.address, replies=REPLIES, tools=[observe], telemetry=told.providers, max_cached_workflows=0
    ) as case:
        run = await case.start()
        await run.result()
        await asyncio.to_thread(case.plugin.telemetry.pipeline.flush, 5)
        before = (len(told.spans()), len(told.logs()), told.total("mainspring.turns"))
        for _ in range(3):
            await run.state()
            await case.events(run)
        await Replayer(workflows=[], plugins=[case.plugin]).replay_workflow(await case.history(run))
        await asyncio.to_thread(case.plugin.telemetry.pipeline.flush, 5)
        assert (len(told.spans()), len(told.logs()), told.total("mainspring.turns")) == before
    assert before == (7, 4, 3)


async def test_run_without_an_answer_is_an_error(server: Server) -> None:
    """A run that ends without an answer has an `invoke_agent` in error, with the outcome as its type."""
    told = Recorded()
    async with serving(
        server.address,
        replies=REPLIES,
        tools=[observe],
        agent={"budgets": {"turns": 1}},
        telemetry=told.providers,
    ) as case:
        with pytest.raises(RunFailed):
            await case.run()
    [root] = told.spans("invoke_agent")
    assert root.status.status_code is StatusCode.ERROR
    assert (root.attributes or {})["error.type"] == "max_turns"
    assert told.total("mainspring.runs", mainspring__outcome="max_turns") == 1
    assert told.logs("mainspring.finished")[0].severity_text == "ERROR"


async def test_refused_run_has_a_span_of_its_own(server: Server) -> None:
    """A run that is refused at arming is one `invoke_agent` in error, and nothing hangs from it."""
    told = Recorded()
    async with serving(server.address, replies=REPLIES, telemetry=told.providers) as case:
        with pytest.raises(RunFailed):
            await case.run(overrides={"model": "unheard-of"})
    [root] = told.spans()
    assert (root.name, root.parent) == ("invoke_agent tested", None)
    assert (root.attributes or {})["error.type"] == "invalid_input"
    assert told.total("mainspring.runs", mainspring__outcome="invalid_input") == 1


async def test_decisions_are_events_of_the_run_and_log_records(server: Server) -> None:
    """Pause, resume, steering and a rejected signal are told: on the run's span, in time, and as logs."""
    told = Recorded()
    replies = [{"calls": [{"tool": "nap", "arguments": {"seconds": 0.6}}]}, {"text": "Done."}]
    async with serving(server.address, replies=replies, tools=[nap], telemetry=told.providers) as case:
        run = await case.start()
        while (await run.state())["status"] != "acting":
            await asyncio.sleep(0.02)
        await run.pause()
        await run.resume()
        await run.steer("quicker")
        await case.handle(run).signal("nonsense", 1)
        await run.result()
    [root] = told.spans("invoke_agent")
    names = [event.name for event in root.events]
    expected = ["paused", "resumed", "signal_rejected", "steered"]
    assert sorted(names) == sorted(
        f"mainspring.{name}" for name in [*expected, "exchange_started", "exchange_ended"]
    )
    assert all(root.start_time <= event.timestamp <= root.end_time for event in root.events)  # type: ignore[operator]
    assert {f"mainspring.{name}" for name in expected} < {record.event_name for record in told.logs()}
    [rejected] = told.logs("mainspring.signal_rejected")
    assert rejected.attributes["mainspring.signal"] == "_OTHER"
    assert told.total("mainspring.signals.rejected") == 1


async def test_run_joins_the_trace_it_is_given(server: Server) -> None:
    """A run that is started with a traceparent, as a child is, hangs from that span and is in its trace."""
    told = Recorded()
    tracer = told.tracer.get_tracer("caller")
    async with serving(server.address, replies=REPLIES, tools=[observe], telemetry=told.providers) as case:
        with tracer.start_as_current_span("caller") as span:
            context = span.get_span_context()
            given = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
        request = {"agent": "tested", "prompt": "go", "traceparent": given}
        handle = await case.client.start_workflow("AgentRun", request, id="given", task_queue=case.task_queue)
        await handle.result()
    spans = told.spans()
    assert tree_of(spans)[0] == ("caller", None)
    assert ("invoke_agent tested", "caller") in tree_of(spans)
    assert {span.context.trace_id for span in spans} == {context.trace_id}


async def test_caller_that_samples_nothing_is_followed(server: Server) -> None:
    """A run in a trace that is not recorded makes no span; its figures are counted all the same."""
    told = Recorded()
    async with serving(server.address, replies=REPLIES, tools=[observe], telemetry=told.providers) as case:
        given = f"00-{1:032x}-{2:016x}-00"
        request = {"agent": "tested", "prompt": "go", "traceparent": given}
        handle = await case.client.start_workflow(
            "AgentRun", request, id="unsampled", task_queue=case.task_queue
        )
        await handle.result()
    assert told.spans() == []
    assert told.total("mainspring.runs") == 1


@tool(effects="read")
def traced() -> str:
    """Make a span of one's own, in a thread."""
    with otel.get_tracer("tool", tracer_provider=_TOLD[-1].tracer).start_as_current_span("mine"):
        return "made"


@tool(effects="read")
async def traced_too() -> str:
    """Make a span of one's own."""
    with otel.get_tracer("tool", tracer_provider=_TOLD[-1].tracer).start_as_current_span("mine too"):
        return "made"


_TOLD: list[Recorded] = []


async def test_spans_of_tools_hang_from_their_call(server: Server) -> None:
    """A span that a tool makes is a child of its call's `execute_tool`, though that is made later."""
    told = Recorded()
    _TOLD.append(told)
    replies = [{"calls": [{"tool": "traced"}, {"tool": "traced_too"}]}, {"text": "Done."}]
    async with serving(
        server.address, replies=replies, tools=[traced, traced_too], telemetry=told.providers
    ) as case:
        await case.run()
    tree = tree_of(told.spans())
    assert ("mine", "execute_tool traced") in tree
    assert ("mine too", "execute_tool traced_too") in tree


async def test_nothing_is_added_where_nothing_is_traced(server: Server) -> None:
    """Without a tracer provider no trace is recorded and no activity gets a header: history is as it was."""
    async with serving(server.address, replies=REPLIES, tools=[observe]) as case:
        run = await case.start()
        await run.result()
        armed = await case.handle(run).query("armed")
        history = await case.history(run)
    assert "trace" not in armed
    scheduled = [e.activity_task_scheduled_event_attributes for e in history.events]
    assert not any("_tracer-data" in attributes.header.fields for attributes in scheduled)


async def test_switched_off_is_off(server: Server) -> None:
    """`telemetry: {enabled: false}` tells nothing, whatever providers there are."""
    told = Recorded()
    config = {"telemetry": {"enabled": False}}
    async with serving(
        server.address, replies=REPLIES, tools=[observe], config=config, telemetry=told.providers
    ) as case:
        await case.run()
    assert (told.spans(), told.logs(), told.points("mainspring.runs")) == ([], [], [])
