"""Which trace a run belongs to, with every kind of tracer provider and beside other tracing."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, TraceIdRatioBased
from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.opentelemetry import (
    OpenTelemetryInterceptor,
    TracingInterceptor,
    create_tracer_provider,
)
from temporalio.worker import Worker

from mainspring.activities.transcript import ProcessCache
from mainspring.client import start_run
from mainspring.embedded import Server
from mainspring.schemas.activities import Armed, Trace
from mainspring.schemas.agent import AgentSpec, ModelSpec
from mainspring.telemetry import Providers, RunIds
from mainspring.telemetry.ids import honours
from mainspring.telemetry.interceptor import HEADER
from mainspring.testing import Case
from mainspring.tools import tool
from support.invariants import serving
from support.telemetry import Recorded, nested, tree_of
from support.tools import observe
from support.waiting import until

REPLIES: list[dict[str, Any]] = [{"calls": [{"tool": "observe"}]}, {"text": "Done."}]
CHAT, TOOL, ROOT = "chat default", "execute_tool observe", "invoke_agent tested"


async def test_provider_with_ids_of_its_own_gets_the_run_span_at_arming(server: Server) -> None:
    """Without `RunIds` the run's span is made when it is armed, once, and all of the run hangs from it."""
    told = Recorded(id_generator=None)
    async with serving(
        server.address, replies=REPLIES, tools=[observe], telemetry=told.providers, max_cached_workflows=0
    ) as case:
        run = await case.start()
        await run.result()
        armed = await case.handle(run).query("armed")
    assert armed["trace"]["exact"] is False
    spans = told.spans()
    assert tree_of(spans) == [(ROOT, None), (CHAT, ROOT), (TOOL, ROOT), (CHAT, ROOT)]
    assert len({span.context.trace_id for span in spans}) == 1
    assert told.active.active == 0


@pytest.mark.parametrize("generator", [RunIds(), None], ids=["ids asked for", "ids of its own"])
async def test_refreshed_conversation_stays_one_trace(server: Server, generator: Any) -> None:
    """A conversation that is armed again keeps its trace and has one `invoke_agent`."""
    told = Recorded(id_generator=generator)
    agent = {"refresh": "exchange"}
    replies = [{"text": "one"}, {"text": "two"}]
    async with serving(server.address, replies=replies, agent=agent, telemetry=told.providers) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="follow_up")
        changed = case.plugin.config.agents["tested"].model_copy(update={"instructions": "Otherwise."})
        case.plugin.config.agents["tested"] = changed
        assert await run.ask("again") == "two"
        await run.finish()
        await run.result()
    assert sorted(tree_of(told.spans()), key=str) == sorted(
        [(ROOT, None), (CHAT, ROOT), (CHAT, ROOT)], key=str
    )
    assert len({span.context.trace_id for span in told.spans()}) == 1


async def test_span_of_the_caller_is_the_parent(server: Server) -> None:
    """`start_run` hangs the run from the span that its caller is in; one that is given comes first."""
    told = Recorded()
    tracer = told.tracer.get_tracer("caller")
    async with serving(server.address, replies=[{"text": "Done."}], telemetry=told.providers) as case:
        with tracer.start_as_current_span("caller"):
            await case.run()
        with tracer.start_as_current_span("elsewhere"):
            await case.run(traceparent=f"00-{7:032x}-{9:016x}-01")
    roots = told.spans("invoke_agent")
    [caller] = told.spans("caller")
    assert roots[0].parent is not None
    assert roots[0].parent.span_id == caller.context.span_id
    assert roots[1].context.trace_id == 7


async def test_span_around_a_worker_is_no_run_s(server: Server) -> None:
    """A worker that was started inside a span does not make that span the parent of its runs."""
    told = Recorded()
    with told.tracer.get_tracer("app").start_as_current_span("the whole process"):
        async with serving(
            server.address, replies=REPLIES, tools=[observe], telemetry=told.providers
        ) as case:
            started = await case.client.start_workflow(
                "AgentRun", {"agent": "tested", "prompt": "go"}, id="within", task_queue=case.task_queue
            )
            await started.result()
    [root] = told.spans("invoke_agent")
    assert root.parent is None


@pytest.mark.parametrize("generator", [RunIds(), None], ids=["ids asked for", "ids of its own"])
async def test_every_activity_is_told_the_span_that_it_works_for(server: Server, generator: Any) -> None:
    """The header of each activity after arming names the very span that is made of it, or the run's."""
    told = Recorded(id_generator=generator)
    async with serving(server.address, replies=REPLIES, tools=[observe], telemetry=told.providers) as case:
        run = await case.start()
        await run.result()
        history = await case.history(run)
    ids = {format(span.context.span_id, "016x"): span.name for span in told.spans()}
    headers = [
        (item.activity_type.name, json.loads(item.header.fields[HEADER].data)["traceparent"].split("-"))
        for event in history.events
        if (item := event.activity_task_scheduled_event_attributes).header.fields
    ]
    named = [(activity, ids[parts[2]]) for activity, parts in headers]
    spans = [("mainspring.call_model", CHAT), ("observe", TOOL), ("mainspring.call_model", CHAT)]
    assert named == (spans if generator else [(activity, ROOT) for activity, _ in spans])
    assert len({parts[2] for _, parts in headers}) == (3 if generator else 1)
    assert {parts[1] for _, parts in headers} == {format(told.spans()[0].context.trace_id, "032x")}


async def test_cached_arming_record_is_of_no_run() -> None:
    """What a process keeps of an arming record, for all runs that share it, holds no run's trace."""
    record = Armed(
        agent="tested",
        spec=AgentSpec(),
        models=(ModelSpec(name="default"),),
        digest="0" * 16,
        trace=Trace(traceparent=f"00-{1:032x}-{2:016x}-01"),
    )
    cache = ProcessCache()
    cache.put_armed(record)
    kept = await cache.armed(record.digest, cast(Any, None))
    assert kept == record.model_copy(update={"trace": None})


@tool(effects="read")
async def spanning() -> str:
    """Make a span of one's own."""
    with otel.get_tracer("tool", tracer_provider=_TOLD[-1].tracer).start_as_current_span("mine"):
        return "made"


_TOLD: list[Recorded] = []


@pytest.mark.parametrize("from_client", [True, False], ids=["begun by its client", "begun by nobody"])
async def test_temporal_s_own_tracing_composes(server: Server, from_client: bool) -> None:
    """With Temporal's tracing interceptor on client and worker, its spans and ours are one trace."""
    told = Recorded()
    _TOLD.append(told)
    replies = [{"calls": [{"tool": "spanning"}]}, {"text": "Done."}]
    interceptor = TracingInterceptor(told.tracer.get_tracer("temporal"))
    async with serving(
        server.address,
        replies=replies,
        tools=[spanning],
        telemetry=told.providers,
        interceptors=[interceptor],
    ) as case:
        await run_with(case, server, interceptor if from_client else None)
    spans = told.spans()
    traces = {span.context.trace_id for span in spans if not span.name.startswith(("Query", "HandleQuery"))}
    names = [span.name for span in spans]
    assert names.count("invoke_agent tested") == 1
    assert names.count("chat default") == 2
    assert ("mine", "RunActivity:spanning") in tree_of(spans)
    assert told.active.active == 0
    if from_client:
        assert len(traces) == 1
    else:  # their span of the arming activity comes before there is a run to hang from
        [root] = told.spans("invoke_agent")
        assert {span.context.trace_id for span in told.spans("RunActivity")} == {root.context.trace_id}


async def run_with(case: Case, server: Server, interceptor: TracingInterceptor | None) -> None:
    """Run once, from a client with that interceptor."""
    client = await Client.connect(server.address, interceptors=[interceptor] if interceptor else [])
    run: Any = await start_run(client, agent="tested", prompt="go", task_queue=case.task_queue)
    case.started.append(run.id)
    await run.result()


async def test_temporal_s_replay_safe_provider_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal's replay-safe provider and interceptor work with ours, exactly where it wraps `RunIds`."""
    told = Recorded()
    provider = create_tracer_provider(id_generator=RunIds())
    for processor in told.tracer._active_span_processor._span_processors:
        provider.add_span_processor(processor)
    assert honours(provider)
    monkeypatch.setattr(otel, "_TRACER_PROVIDER", provider)  # the process's, which the interceptor insists on
    async with serving(
        server.address,
        replies=REPLIES,
        tools=[observe],
        telemetry=Providers(meter=told.meter, logger=told.logger),
        interceptors=[OpenTelemetryInterceptor(add_temporal_spans=False)],
    ) as case:
        await case.run()
    assert tree_of(told.spans()) == [(ROOT, None), (CHAT, ROOT), (TOOL, ROOT), (CHAT, ROOT)]


@workflow.defn(name="Observed", sandboxed=False)
class Observed:
    """A workflow of a user's that happens to have an attribute of that name."""

    def __init__(self) -> None:
        self.observer: Any = None

    @workflow.run
    async def run(self) -> bool:
        """Whether it is left alone."""
        return self.observer is None


async def test_user_s_workflow_keeps_its_attributes(server: Server) -> None:
    """Nothing is put into a workflow that is not ours, whatever its attributes are called."""
    told = Recorded()
    async with serving(
        server.address, replies=REPLIES, telemetry=told.providers, workflows=[Observed], sandbox=False
    ) as case:
        left_alone = await case.client.execute_workflow("Observed", id="observed", task_queue=case.task_queue)
    assert left_alone


async def test_user_s_workflows_and_activities_are_untouched(server: Server) -> None:
    """A workflow of the user's on the same worker tells us nothing and sends no header."""
    from support.chain import Chain

    told = Recorded()
    async with serving(server.address, replies=REPLIES, telemetry=told.providers, workflows=[Chain]) as case:
        handle = await case.client.start_workflow(
            "Chain", {"execution": 4}, id="theirs", task_queue=case.task_queue
        )
        await handle.execute_update("steer", {"message": "release"})
        await handle.result()
    assert (told.spans(), told.logs()) == ([], [])


@pytest.mark.parametrize(
    ("sampler", "spans"), [(ALWAYS_OFF, 0), (TraceIdRatioBased(0), 0), (TraceIdRatioBased(1), 4)]
)
async def test_sampler_decides_for_the_whole_run(server: Server, sampler: Any, spans: int) -> None:
    """The provider's sampler is asked at arming: a run is recorded whole or not at all; figures always."""
    told = Recorded(sampler=sampler)
    async with serving(server.address, replies=REPLIES, tools=[observe], telemetry=told.providers) as case:
        await case.run()
    assert len(told.spans()) == spans
    assert told.total("mainspring.runs") == 1


async def test_one_worker_without_run_ids_breaks_no_trace(server: Server) -> None:
    """A run armed by a worker that chooses ids and ended by one that cannot is still one trace."""
    told, other = Recorded(), Recorded(id_generator=RandomIdGenerator())
    async with serving(server.address, replies=REPLIES, tools=[observe], telemetry=told.providers) as case:
        run = await case.start(lifetime="conversation")
        await until(run, awaiting="follow_up")
        plugin = type(case.plugin)(
            case.plugin.config, tools=[observe], sandbox=True, telemetry=other.providers
        )
        client = await Client.connect(server.address, plugins=[plugin])
        async with Worker(client, task_queue=case.task_queue, max_cached_workflows=0):
            await run.finish()
            await run.result()
    ours = {span.context.trace_id for span in (*told.spans(), *other.spans())}
    assert len(ours) == 1
    assert len([*told.spans("invoke_agent"), *other.spans("invoke_agent")]) == 1


def test_nested_knows_what_is_outside() -> None:
    """The test's own rule sees a span that begins before, or ends after, the other."""
    told = Recorded()
    tracer = told.tracer.get_tracer("t")
    for name, start, end in (("outer", 10, 20), ("in", 12, 18), ("before", 9, 12), ("after", 12, 21)):
        tracer.start_span(name, start_time=start).end(end)
    found = {span.name: span for span in told.spans()}
    assert [name for name in found if nested(found[name], found["outer"])] == ["outer", "in"]
