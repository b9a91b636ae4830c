"""Traces continue in the processes of jobs where OpenTelemetry is used. Elsewhere they cost nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace

from glidemq_async import Queue
from glidemq_async.executors import SubprocessExecutor
from glidemq_async.telemetry import JobFilter, JobLogging
from tests.executors import speakers
from tests.support.helpers import AnyQueue, worker_of
from tests.support.telemetry_recorder import Recorder

pytestmark = pytest.mark.only_on("memory")


@pytest.fixture
async def traced(queue: AnyQueue, name: str) -> Any:
    recorder = Recorder()
    async with Queue[Any, Any](f"{name}-traced", queue.storage, instrumentation=[recorder.telemetry]) as opened:
        yield opened, recorder


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(JobFilter())
        self.spans: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields: Any = vars(record)
        self.spans.append((fields["trace_id"], fields["span_id"]))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, logger = Kept(), logging.getLogger(speakers.__name__)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.parametrize("name_of_job", ["span_in_the_child", "span_in_a_coroutine"])
async def test_spans_of_a_process_have_the_run_as_parent(
    traced: tuple[AnyQueue, Recorder], kept: Kept, name_of_job: str
) -> None:
    queue, recorder = traced
    executor = SubprocessExecutor(1, setup=speakers.use_telemetry)
    instrumentation = [recorder.telemetry, JobLogging()]
    async with worker_of(queue, speakers.by_name, executor=executor, instrumentation=instrumentation):
        for turn in range(2):
            token = context.attach(baggage.set_baggage("tenant", f"acme {turn}"))
            found = await queue.add_and_wait(name_of_job, wait_timeout=20)
            context.detach(token)
            span = recorder.spans("process")[turn].get_span_context()
            assert span is not None
            assert found["span"] == found["parent"] == trace.format_span_id(span.span_id)
            assert found["trace"] == trace.format_trace_id(span.trace_id)
            assert found["baggage"] == {"tenant": f"acme {turn}"}
            # A record names the span in which it was logged.
            assert kept.spans[turn] == (found["trace"], found["inner"])


async def test_a_process_that_does_not_use_telemetry_does_not_import_it(traced: tuple[AnyQueue, Recorder]) -> None:
    queue, recorder = traced
    async with worker_of(queue, speakers.by_name, executor=SubprocessExecutor(1), instrumentation=[recorder.telemetry]):
        assert await queue.add_and_wait("modules", wait_timeout=20) == []


async def test_without_a_span_the_process_has_none(queue: AnyQueue) -> None:
    executor = SubprocessExecutor(1, setup=speakers.use_telemetry)
    async with worker_of(queue, speakers.by_name, executor=executor):
        assert await queue.add_and_wait("current_span", wait_timeout=20) is False


async def test_spans_are_exported_before_a_process_ends(queue: AnyQueue, tmp_path: Path) -> None:
    note = tmp_path / "spans"
    async with worker_of(queue, speakers.by_name, executor=SubprocessExecutor(1, max_jobs=1)):
        await queue.add_and_wait("export_late", [str(note), 0], wait_timeout=20)
        await queue.add_and_wait("modules", wait_timeout=20)
    assert note.read_text() == "inner\n"


async def test_a_process_that_ends_after_its_last_job_exports_its_spans_although_the_worker_closes(
    queue: AnyQueue, tmp_path: Path
) -> None:
    note = tmp_path / "spans"
    async with worker_of(queue, speakers.by_name, executor=SubprocessExecutor(1, max_jobs=1)):
        await queue.add_and_wait("export_late", [str(note), 0.2], wait_timeout=20)
    assert note.read_text() == "inner\n"
