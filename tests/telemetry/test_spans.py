"""Spans and metrics of OpenTelemetry from the add to the run, within one process and across two."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from glidemq_async import JobOptions, Queue, RetryLater, SerializationError
from glidemq_async.options.validation import MAX_HEADERS_BYTES
from glidemq_async.queues.base import JobInput
from glidemq_async.storage import Storage
from tests.support.dead_letters import fail
from tests.support.helpers import AnyJob, AnyQueue, Heard, echo, ended, soon, until, worker_of
from tests.support.stores import RunningStore
from tests.support.telemetry_recorder import Recorder, attributes


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def traced(storage: Storage, name: str, recorder: Recorder) -> AsyncIterator[AnyQueue]:
    async with Queue[Any, Any](name, storage, instrumentation=[recorder.telemetry]) as opened:
        yield opened


def context_of(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def ids(span: ReadableSpan) -> tuple[int, int]:
    return context_of(span).trace_id, context_of(span).span_id


async def test_one_trace_covers_the_add_and_the_run(traced: AnyQueue, recorder: Recorder) -> None:
    async with worker_of(traced, echo, instrumentation=[recorder.telemetry]):
        with recorder.tracers.get_tracer("t").start_as_current_span("request"):
            job = await traced.add("mail", "text", headers={"tenant": "7"})
        await ended(job)
        await until(lambda: len(recorder.spans()) == 3)
    [send] = recorder.spans("send")
    [process] = recorder.spans("process")
    [request] = recorder.spans("request")
    assert send.parent is not None
    assert process.parent is not None
    assert send.parent.span_id == context_of(request).span_id
    assert (process.parent.trace_id, process.parent.span_id) == ids(send)
    assert [(link.context.trace_id, link.context.span_id) for link in process.links] == [ids(send)]
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.name == f"send {traced.name}"
    common = {
        "messaging.system": "glidemq",
        "messaging.destination.name": traced.name,
        "messaging.message.id": job.id,
        "messaging.message.body.size": 5,
        "glidemq.job.name": "mail",
    }
    assert attributes(send) == {
        **common,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "glidemq.add.outcome": "added",
    }
    assert attributes(process) == {
        **common,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "glidemq.job.attempt": 1,
        "glidemq.job.fence": 1,
        "glidemq.job.outcome": "completed",
    }
    assert job.headers["tenant"] == "7"
    assert f"{context_of(send).trace_id:032x}" in job.headers["traceparent"]


async def test_a_run_can_begin_its_own_trace(traced: AnyQueue, recorder: Recorder) -> None:
    apart = Recorder(parent=False)
    async with worker_of(traced, echo, instrumentation=[apart.telemetry]):
        await ended(await traced.add("mail"))
        await until(lambda: len(apart.spans()) == 1)
    [process], [send] = apart.spans(), recorder.spans()
    assert process.parent is None
    assert context_of(process).trace_id != context_of(send).trace_id
    assert [(link.context.trace_id, link.context.span_id) for link in process.links] == [ids(send)]


async def test_a_bulk_add_has_a_span_per_job_and_one_for_sending(traced: AnyQueue, recorder: Recorder) -> None:
    async with worker_of(traced, echo, instrumentation=[recorder.telemetry], concurrency=5):
        given: list[JobInput[Any]] = [
            ("one", 1),
            ("two", 2, JobOptions(job_id="mine")),
            ("two", 2, JobOptions(job_id="mine")),
        ]
        jobs = await traced.add_bulk(given)
        await soon(asyncio.gather(*(ended(job) for job in jobs)))
        await until(lambda: len(recorder.spans("process")) == 2)
        assert await traced.add_bulk([]) == []
    [send] = recorder.spans("send")
    creates = recorder.spans("create")
    assert (send.kind, attributes(send)["messaging.batch.message_count"]) == (SpanKind.CLIENT, 3)
    assert [link.context.span_id for link in send.links] == [context_of(span).span_id for span in creates]
    assert [attributes(span)["messaging.message.id"] for span in creates] == [job.id for job in jobs]
    outcomes = [attributes(span)["glidemq.add.outcome"] for span in creates]
    assert outcomes == ["added", "added", "duplicate"]
    parents = {attributes(span)["messaging.message.id"]: span.parent for span in recorder.spans("process")}
    assert {job_id: parent.span_id for job_id, parent in parents.items() if parent} == {
        attributes(span)["messaging.message.id"]: context_of(span).span_id for span in creates[:2]
    }


async def test_every_attempt_is_a_span_with_its_error(traced: AnyQueue, recorder: Recorder) -> None:
    async def work(job: AnyJob) -> str:
        if job.fence == 1:
            raise RetryLater(0)
        if job.attempts_made < 1:
            raise KeyError("no such thing")
        return "done"

    async with worker_of(traced, work, instrumentation=[recorder.telemetry]):
        await ended(await traced.add("mail", attempts=2))
        await until(lambda: len(recorder.spans("process")) == 3)
    runs = recorder.spans("process")
    found = [(attributes(run)["glidemq.job.outcome"], run.status.status_code) for run in runs]
    assert found == [
        ("delayed", StatusCode.UNSET),
        ("retrying", StatusCode.ERROR),
        ("completed", StatusCode.UNSET),
    ]
    assert [attributes(run)["glidemq.job.attempt"] for run in runs] == [1, 1, 2]
    assert attributes(runs[1])["error.type"] == "KeyError"
    assert [event.name for event in runs[1].events] == ["exception"]
    assert len({context_of(run).trace_id for run in runs}) == 1
    name = traced.name
    assert recorder.counts("messaging.client.sent.messages") == {(name, ""): 1}
    assert recorder.counts("messaging.client.consumed.messages") == {(name, ""): 2, (name, "KeyError"): 1}
    assert recorder.counts("messaging.process.duration") == {(name, ""): 2, (name, "KeyError"): 1}
    assert recorder.counts("glidemq.job.wait.duration")[name, ""] >= 2


async def test_an_add_that_fails_is_a_span_with_an_error(traced: AnyQueue, recorder: Recorder) -> None:
    with pytest.raises(SerializationError):
        await traced.add("mail", object())
    with pytest.raises(SerializationError):
        await traced.add_bulk([("a", 1), ("b", object())])
    failed = recorder.spans()
    assert {span.name.split(" ")[0] for span in failed} == {"send", "create"}
    for span in failed:
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "glidemq_async.errors.SerializationError"
    error = "glidemq_async.errors.SerializationError"
    assert recorder.counts("messaging.client.sent.messages") == {(traced.name, error): 3}


async def test_a_job_whose_headers_leave_no_space_for_a_trace_is_added_without_it(
    traced: AnyQueue, caplog: pytest.LogCaptureFixture
) -> None:
    full = {"h": "x" * (MAX_HEADERS_BYTES - 1)}
    with caplog.at_level("WARNING", "glidemq_async"):
        job = await traced.add("n", 1, headers=full)
        [other] = await traced.add_bulk([("n", 2, JobOptions(headers=full))])
    assert job.headers == other.headers == full
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "job 'n' is added without telemetry headers, because they are invalid"
    ] * 2


async def test_spans_and_baggage_are_active_in_the_handler(traced: AnyQueue, recorder: Recorder) -> None:
    found: list[object] = []

    def work(job: AnyJob) -> None:  # in a thread with the context of the run
        found.append(baggage.get_baggage("tenant"))
        with recorder.tracers.get_tracer("t").start_as_current_span("inner"):
            found.append(trace.get_current_span().get_span_context().trace_id)

    async with worker_of(traced, work, instrumentation=[recorder.telemetry]):
        token = context.attach(baggage.set_baggage("tenant", "7"))
        await ended(await traced.add("mail"))
        context.detach(token)
        token = context.attach(baggage.set_baggage("tenant", "x" * 5_000))
        large = await ended(await traced.add("mail"))
        context.detach(token)
        await until(lambda: len(recorder.spans("process")) == 2)
    first = recorder.spans("send")[0]
    assert found[:3] == ["7", context_of(first).trace_id, None]
    assert "baggage" not in large.headers
    assert "traceparent" in large.headers
    inner = recorder.spans("inner")[0]
    assert inner.parent is not None
    assert inner.parent.span_id == context_of(recorder.spans("process")[0]).span_id
    assert trace.get_current_span().get_span_context().is_valid is False


async def test_a_batch_span_belongs_to_none_of_its_jobs(traced: AnyQueue, recorder: Recorder) -> None:
    from glidemq_async import BatchOptions

    current: list[bool] = []

    async def work(jobs: list[AnyJob]) -> None:
        current.append(trace.get_current_span().get_span_context().is_valid)

    await traced.pause()
    jobs = await traced.add_bulk([("n", 1), ("n", 2)])
    async with worker_of(traced, work, batch=BatchOptions(size=2), instrumentation=[recorder.telemetry]):  # type: ignore[arg-type]
        await traced.resume()
        for job in jobs:
            await ended(job)
        await until(lambda: len(recorder.spans("process")) == 2)
    assert current == [False]


async def test_jobs_without_a_trace_run_too(queue: AnyQueue, recorder: Recorder) -> None:
    async with worker_of(queue, echo, instrumentation=[recorder.telemetry]) as worker:
        done = Heard(worker, "completed")
        await queue.add("mail", headers={"traceparent": "not one"})
        await queue.upsert_job_scheduler("s", every=0.02, limit=1)
        await done.next()
        await done.next()
    runs = recorder.spans("process")
    assert [(run.parent, len(run.links)) for run in runs] == [(None, 0)] * 2


def constants(module: ModuleType) -> set[object]:
    """The values to which a module of the conventions gives names."""
    return {vars(module)[name] for name in vars(module) if name.isupper() and isinstance(vars(module)[name], str)}


async def test_the_names_match_the_conventions(traced: AnyQueue, recorder: Recorder) -> None:
    async with worker_of(traced, fail, instrumentation=[recorder.telemetry]):
        await ended(await traced.add("mail"))
        await ended((await traced.add_bulk([("a", 1), ("b", 2)]))[1])
        await until(lambda: len(recorder.spans("process")) == 3)
    known = constants(messaging_attributes) | constants(error_attributes)
    used = {name for span in recorder.spans() for name in attributes(span)}
    assert {name for name in used if not name.startswith("glidemq.")} <= known
    types = {kind.value for kind in messaging_attributes.MessagingOperationTypeValues}
    assert {attributes(span)["messaging.operation.type"] for span in recorder.spans()} <= types
    own = ["messaging.client.sent.messages", "messaging.client.consumed.messages"]
    own += ["messaging.client.operation.duration", "messaging.process.duration"]
    assert set(own) <= constants(messaging_metrics)
    assert all(recorder.counts(name) for name in own)


# Conventions that are not stable yet are in a private package.
messaging_attributes: Any = import_module("opentelemetry.semconv._incubating.attributes.messaging_attributes")
messaging_metrics: Any = import_module("opentelemetry.semconv._incubating.metrics.messaging_metrics")

CHILD = """
import asyncio, json, sys
from glidemq_async import Worker
from tests.support.telemetry_recorder import Recorder, attributes

async def work(job):
    return job.headers["traceparent"]

async def main(name, url):
    recorder = Recorder()
    await Worker(name, work, url, instrumentation=[recorder.telemetry]).run(until_empty=True)
    print(json.dumps([[f"{s.parent.trace_id:032x}", f"{s.parent.span_id:016x}", attributes(s)["messaging.message.id"]]
                      for s in recorder.spans("process")]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.only_on("file", "redis7")
async def test_the_trace_continues_in_another_process(
    traced: AnyQueue, recorder: Recorder, store: RunningStore
) -> None:
    jobs = [await traced.add("mail", number) for number in range(2)]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, traced.name, store.url, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await soon(child.communicate(), 30)
    assert child.returncode == 0
    sent = [(f"{trace_id:032x}", f"{span_id:016x}") for trace_id, span_id in map(ids, recorder.spans("send"))]
    assert sorted(json.loads(printed)) == sorted([*pair, job.id] for pair, job in zip(sent, jobs, strict=True))
