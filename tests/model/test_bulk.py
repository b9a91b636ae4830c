"""Bulk work with other calls between its steps, in sequences that random steps seldom take."""

from __future__ import annotations

from typing import cast

import msgpack
import pytest

from glidemq_async.functions import loader
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.outcomes import Failed, Retry
from glidemq_async.functions.settle import SettleReply
from tests.model.choices import START_MS
from tests.model.driver import BASE, Driver, run
from tests.support.fake_worker import SettledRun, with_runs


@pytest.fixture
def queue(driver: Driver) -> Driver:
    driver.load(loader.source(testing=True))
    driver.reset(START_MS)
    return driver


def add(queue: Driver, count: int, **extra: object) -> list[str]:
    packed = msgpack.packb(extra) if extra else b""
    return run(queue.functions.add.jobs([AddRequest("", "n", b"", b"", packed)] * count)).ids


def step(queue: Driver, function: str, *args: str | int) -> tuple[str, object]:
    cursor, done = cast("tuple[bytes, object]", run(queue.functions.caller.once(function, args)))
    return cursor.decode(), done


def settle(queue: Driver, channel: RequestChannel, slots: int, *settled: SettledRun) -> SettleReply:
    request = queue.functions.settle.request(channel, "w", slots, 30_000, subscribed=True)
    return run(queue.functions.settle.send(with_runs(request, settled)))


def fail_all(queue: Driver, channel: RequestChannel) -> list[str]:
    """Run the waiting jobs and let them fail; return their ids."""
    jobs, failed = settle(queue, channel, 100).jobs, Failed(b"", "unrecoverable", "error")
    settle(queue, channel, 0, *(SettledRun(job.id, job.entry, failed) for job in jobs))
    return [job.id for job in jobs]


def test_draining_removes_jobs_behind_a_job_that_was_passed_over_and_left(queue: Driver) -> None:
    add(queue, 3, priority=2)
    cursor, removed = step(queue, "drainJobs", "", 0, 1)
    queue.set_clock(START_MS + 1_000)
    [later] = add(queue, 1, priority=1)
    cursor, more = step(queue, "drainJobs", cursor, 0, 1)
    assert (removed, more) == (1, 0)
    assert run(queue.functions.jobs.remove(later)).code == "ok"
    while cursor:
        cursor, _ = step(queue, "drainJobs", cursor, 0, 5)
    assert run(queue.functions.reading.count_jobs())["prioritized"] == 0


def test_retrying_restarts_jobs_behind_a_job_that_was_passed_over_and_left(queue: Driver) -> None:
    add(queue, 3)
    channel = RequestChannel("l")
    fail_all(queue, channel)
    cursor, _ = step(queue, "retryJobs", "", "failed", -1, 1)
    queue.set_clock(START_MS + 1_000)
    [again] = fail_all(queue, channel)
    cursor, started = step(queue, "retryJobs", cursor, "failed", -1, 1)
    assert started == 0
    assert run(queue.functions.jobs.remove(again)).code == "ok"
    while cursor:
        cursor, _ = step(queue, "retryJobs", cursor, "failed", -1, 5)
    assert run(queue.functions.reading.count_jobs())["failed"] == 0


def test_promoting_starts_jobs_behind_a_job_that_was_passed_over_and_left(queue: Driver) -> None:
    add(queue, 3, delay=60_000)
    cursor, promoted = step(queue, "promoteJobs", "", -1, 1)
    [later] = add(queue, 1, delay=1_000)
    cursor, more = step(queue, "promoteJobs", cursor, -1, 1)
    assert (promoted, more) == (1, 0)
    assert run(queue.functions.jobs.remove(later)).code == "ok"
    while cursor:
        cursor, _ = step(queue, "promoteJobs", cursor, -1, 5)
    assert run(queue.functions.reading.count_jobs())["delayed"] == 0


def test_draining_a_deleted_record_leaves_its_key_free(queue: Driver) -> None:
    [first] = add(queue, 1, key="x")
    channel = RequestChannel("l")
    [job] = settle(queue, channel, 1).jobs
    settle(queue, channel, 0, SettledRun(first, job.entry, Retry(b"", 20.0, "error")))
    queue.wire.send("UNLINK", f"{BASE}:job:{first}")
    step(queue, "drainJobs", "", 1, 500)
    [second] = add(queue, 1, key="x")
    assert [job.id for job in settle(queue, channel, 1).jobs] == [second]
