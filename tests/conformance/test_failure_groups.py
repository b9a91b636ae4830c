"""Failed attempts are grouped by error and place, in bounded space."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgpack
import pytest

from glidemq_async import FailureGroup, JobFailed, Queue, UnrecoverableError
from tests.support.clocked_queue import HOUR, Timed
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, worker_of
from tests.support.stores import RunningStore


async def failing(job: AnyJob) -> Any:
    if job.data == "key":
        raise KeyError(job.id)
    if job.data == "final":
        raise UnrecoverableError("no")
    if job.data == "library":
        msgpack.unpackb(b"\xc1")
    raise ValueError(f"no {job.id}")


async def fail(queue: AnyQueue, *data: str, attempts: int = 1, **options: Any) -> list[AnyJob]:
    """Let jobs with these data fail, and return them."""
    jobs = [await queue.add("send", each, attempts=attempts) for each in data]
    async with worker_of(queue, failing, **options):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.result(10)
    return [found for job in jobs if (found := await queue.get_job(job.id))]


async def groups(queue: AnyQueue) -> dict[str, FailureGroup]:
    """Return the groups by the type of their error. Two with one type are an error of the test."""
    found = await queue.get_failure_groups()
    assert len({group.error_type for group in found}) == len(found)
    assert found == sorted(found, key=lambda group: group.last_at, reverse=True)
    assert await queue.check() == []
    return {group.error_type: group for group in found}


@pytest.mark.everywhere
async def test_attempts_are_grouped_by_error_and_place(queue: AnyQueue) -> None:
    jobs = await fail(queue, "value", "key", "value", "final", attempts=2, version="2026.11.3")
    found = await groups(queue)
    assert {kind: group.count for kind, group in found.items()} == {
        "ValueError": 4,
        "KeyError": 2,
        "UnrecoverableError": 1,
    }
    value = found["ValueError"]
    assert (value.queue, value.name, value.versions) == (queue.name, "send", {"2026.11.3": 4})
    assert value.began_with == "2026.11.3"
    file, function, line = value.place.split(":")
    assert (file, function) == ("tests/conformance/test_failure_groups.py", "failing")
    assert int(line) == failing.__code__.co_firstlineno + 7
    assert value.message == f"no {value.sample_job_id}"
    assert value.trend[-1] + value.trend[-2] == 4
    assert len(value.trend) == 24
    assert value.first_at <= value.last_at
    assert [job.failure_group for job in jobs] == [
        found[kind].fingerprint for kind in ("ValueError", "KeyError", "ValueError", "UnrecoverableError")
    ]
    assert {job.id for job in await queue.find(f"group:{value.fingerprint}")} == {jobs[0].id, jobs[2].id}
    assert {job.worker_version for job in jobs} == {"2026.11.3"}
    assert len(await queue.find("version:<2026.12 version:>=2026.9 -version:2026.11.4")) == 4
    assert await queue.find("version:>2026.11.3") == []


async def test_another_version_continues_a_group(queue: AnyQueue) -> None:
    await fail(queue, "value", version="1.9")
    await fail(queue, "value", "value", version="1.10")
    await fail(queue, "value")
    [group] = await queue.get_failure_groups()
    assert (group.count, group.versions, group.began_with) == (4, {"1.9": 1, "1.10": 2}, "1.9")


async def test_code_of_others_is_not_the_place(queue: AnyQueue) -> None:
    await fail(queue, "library")
    [group] = await queue.get_failure_groups()
    assert group.place.startswith("tests/conformance/test_failure_groups.py:failing:")


async def test_the_default_version_is_that_of_the_environment(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIDEMQ_VERSION", "2.0rc1")
    await fail(queue, "value")
    assert len(await queue.find("version:<2.0 version:>=1.9")) == 1
    async with worker_of(queue, failing):
        assert [worker.version for worker in await queue.get_workers()] in ([], ["2.0rc1"])


@pytest.mark.everywhere
async def test_failures_that_the_server_finds(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    job = await queue.add("lost", 1)
    for _ in range(2):
        [lease] = await fake_worker.claim(lock_ms=1_000)
        await fake_worker.vanish(lease, for_ms=1_100)
        await fake_worker.sweep()
    await queue.add("late", 1, ttl=0.001)
    await queue.revoke((await queue.add("revoked", 1, delay=60)).id)
    await fake_worker.sweep()
    [lease] = await fake_worker.claim()
    await fake_worker.settle(lease, "c")
    found = await groups(queue)
    assert found["stalled"].count == 2
    assert (found["stalled"].name, found["stalled"].sample_job_id, found["stalled"].place) == ("lost", job.id, "")
    assert found["stalled"].message.startswith("the lease of a run was lost")
    assert found.keys() <= {"stalled", "expired"}
    await fake_worker.leave()


async def test_the_trend_moves_with_the_hours(timed: Timed) -> None:
    queue, worker = timed.queue, timed.fake_worker
    await queue.add("n", attempts=5)
    for hours in (0, 2):
        await timed.clock.advance(hours * HOUR)
        [lease] = await worker.claim()
        await worker.settle(lease, "r", "0 broken", msgpack.packb(["E", "m", "t"]))
    [group] = await queue.get_failure_groups()
    assert group.trend[-3:] == (1, 0, 1)
    await timed.clock.advance(22 * HOUR)
    [group] = await queue.get_failure_groups()
    assert (sum(group.trend), group.trend[1]) == (1, 1)
    await timed.clock.advance(200 * HOUR)
    [group] = await queue.get_failure_groups()
    assert (group.count, sum(group.trend)) == (2, 0)


async def test_the_number_of_groups_and_versions_is_bounded(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    for number in range(220):
        await queue.add("n", number)
    failures = Counter[str]()
    for number, lease in enumerate(await fake_worker.claim(220)):
        # Groups that failed in the same millisecond leave in the order of their fingerprints.
        fingerprint = f"{number % 210:03}"
        failures[fingerprint] += 1
        error = [f"E{number}", "", "", "", fingerprint, f"v{number}"]
        await fake_worker.settle(lease, "f", ";unrecoverable;broken", msgpack.packb(error))
    found = await queue.get_failure_groups()
    assert len(found) == 200
    newest = [f"{number % 210:03}" for number in reversed(range(220))]
    assert {group.fingerprint for group in found} == set(newest[:200])
    for _ in range(12):
        await queue.add("n")
    for number, lease in enumerate(await fake_worker.claim(12)):
        error = ["E", "", "", "", "one", f"v{number}"]
        await fake_worker.settle(lease, "f", ";unrecoverable;broken", msgpack.packb(error))
    one = next(group for group in await queue.get_failure_groups() if group.fingerprint == "one")
    assert (one.began_with, list(one.versions)) == ("v0", [f"v{number}" for number in range(4, 12)])
    await fake_worker.leave()


async def test_a_completed_job_pays_nothing(queue: AnyQueue) -> None:
    async with worker_of(queue, lambda job: job.data):
        assert await (await queue.add("n", 1)).result(10) == 1
    assert await queue.get_failure_groups() == []
    assert isinstance(queue, Queue)
