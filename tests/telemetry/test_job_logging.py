"""Log records that name their job, as fields and as JSON."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from glidemq_async import BatchOptions
from glidemq_async.telemetry import JobFilter, JobLogging, JsonFormatter
from tests.support.helpers import AnyJob, AnyQueue, Heard, ended, soon, worker_of
from tests.support.telemetry_recorder import Recorder

log = logging.getLogger("app.jobs")


class Lines:
    """The log lines of a handler, read back."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.addFilter(JobFilter())
        self.handler.setFormatter(JsonFormatter())

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    made = Lines()
    log.addHandler(made.handler)
    log.setLevel(logging.INFO)
    yield made
    log.removeHandler(made.handler)
    log.setLevel(logging.NOTSET)


def fields(line: dict[str, Any]) -> tuple[object, ...]:
    return tuple(line.get(name) for name in ("message", "queue", "job_id", "job_name", "attempt"))


async def test_records_of_a_run_name_its_job(queue: AnyQueue, lines: Lines) -> None:
    async def inner(job: AnyJob) -> None:
        await asyncio.sleep(0)
        log.info("inner %s", job.data)

    async def work(job: AnyJob) -> None:
        log.info("begin %s", job.data)
        await asyncio.create_task(inner(job))
        if job.attempts_made == 0:
            raise ValueError

    async with worker_of(queue, work, concurrency=3, instrumentation=[JobLogging()]) as worker:
        again = Heard(worker, "retrying")
        jobs = await queue.add_bulk([("mail", number) for number in range(3)])
        log.info("outside")
        for job in jobs:
            await job.retry() if (await ended(job)).state == "failed" else None
        for job in jobs:
            await soon(ended(job))
        assert again.count == 0
    found = [fields(line) for line in lines.read()]
    assert found[0] == ("outside", None, None, None, None)
    for number, job in enumerate(jobs):
        for word in ("begin", "inner"):
            assert (f"{word} {number}", queue.name, job.id, "mail", 1) in found
    assert "attempt" not in lines.read()[0]


async def test_records_of_the_worker_about_a_run_name_its_job(queue: AnyQueue, lines: Lines) -> None:
    async def fail(job: AnyJob) -> None:
        raise ValueError("no")

    ours = logging.getLogger("glidemq_async.worker.reports")
    ours.addHandler(lines.handler)
    ours.setLevel(logging.INFO)
    try:
        async with worker_of(queue, fail):
            job = await queue.add("mail", attempts=2)
            await ended(job)
    finally:
        ours.removeHandler(lines.handler)
        ours.setLevel(logging.NOTSET)
    again, failed, stopped = [fields(line) for line in lines.read()]
    assert again[1:] == (queue.name, job.id, "mail", 1)
    assert failed[1:] == (queue.name, job.id, "mail", 2)
    assert stopped[1:] == (None, None, None, None)  # the end of the worker belongs to no run


async def test_records_have_the_attempt_even_in_threads(queue: AnyQueue, lines: Lines) -> None:
    def work(job: AnyJob) -> None:
        log.info("try")
        if job.attempts_made == 0:
            raise ValueError

    async with worker_of(queue, work, instrumentation=[JobLogging()]):
        job = await ended(await queue.add("mail", attempts=2))
    assert [fields(line) for line in lines.read()] == [
        ("try", queue.name, job.id, "mail", 1),
        ("try", queue.name, job.id, "mail", 2),
    ]


async def test_records_of_a_batch_name_none_of_its_jobs(queue: AnyQueue, lines: Lines) -> None:
    async def work(jobs: list[AnyJob]) -> None:
        log.info("batch of %d", len(jobs))

    batch: Any = work
    async with worker_of(queue, batch, batch=BatchOptions(size=5), instrumentation=[JobLogging()]):
        await ended(await queue.add("mail"))
    assert [fields(line) for line in lines.read()] == [("batch of 1", None, None, None, None)]


async def test_records_have_the_span_too(queue: AnyQueue, lines: Lines) -> None:
    recorder = Recorder()

    async def work(job: AnyJob) -> None:
        log.info("inside")

    async with worker_of(queue, work, instrumentation=[recorder.telemetry, JobLogging()]):
        await ended(await queue.add("mail"))
    [line] = lines.read()
    [span] = recorder.spans("process")
    context = span.get_span_context()
    assert context is not None
    assert (line["trace_id"], line["span_id"]) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")


def test_each_record_is_one_json_object(lines: Lines) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("it\nbroke %s", "ü", extra={"tenant": 7, "thing": {1}, "job_id": "mine"})
    [line] = lines.read()
    assert line["ts"].endswith("Z")
    assert (line["level"], line["logger"], line["message"]) == ("error", "app.jobs", "it\nbroke ü")
    assert (line["tenant"], line["thing"], line["job_id"]) == (7, "{1}", "mine")
    assert "ValueError: first\nsecond" in line["exception"]
    assert set(line) == {"ts", "level", "logger", "message", "tenant", "thing", "job_id", "exception"}
