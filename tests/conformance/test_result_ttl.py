"""Results with a time to live: they stay exactly for this time, then end, and do not affect other results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from glidemq_async import JobFailed, JobNotFound, JobOptions, JobStateError, Queue
from glidemq_async.client import result_listener
from glidemq_async.storage import Endpoint, MemoryStorage
from tests.behaviour.test_stored_data_over_time import Clock
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import (
    NO_POLLING,
    PATIENCE,
    AnyJob,
    AnyQueue,
    Gate,
    Heard,
    echo,
    ended,
    job_events,
    worker_of,
)
from tests.support.leak_check import verify
from tests.support.stores import RunningStore

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Timed:
    """A queue on a server whose clock the test moves."""

    def __init__(self, queue: AnyQueue, storage: MemoryStorage) -> None:
        self.queue = queue
        self.fake_worker = FakeWorker(queue, RunningStore("memory", storage.url, (Endpoint(path=storage.socket),)))
        self.advance = Clock(storage).advance

    async def counts(self) -> tuple[int, int]:
        """Return how many jobs have completed, and how many failed."""
        counts = await self.queue.get_job_counts()
        return counts["completed"], counts["failed"]


@pytest.fixture
async def timed() -> AsyncIterator[Timed]:
    async with MemoryStorage(testing=True) as storage:
        async with Queue[Any, Any]("q", storage) as queue:
            yield Timed(queue, storage)
        await verify(storage, RunningStore("memory", storage.url, (Endpoint(path=storage.socket),)))


async def fail(job: AnyJob) -> None:
    raise ValueError("no")


async def run(queue: AnyQueue, *jobs: AnyJob, handler: Any = echo, **options: Any) -> None:
    """Run the waiting jobs on a worker that then signs off, so that no worker sweeps."""
    worker = worker_of(queue, handler, **options)
    await worker.run(until_empty=True)
    for job in jobs:
        await ended(job)


async def test_a_result_stays_until_its_time_ends(timed: Timed) -> None:
    job = await timed.queue.add("n", "value", job_id="report", result_ttl=3_600)
    await run(timed.queue, job)
    await timed.advance(HOUR - MINUTE)
    await timed.fake_worker.sweep()
    again = await timed.queue.add("n", "other", job_id="report")
    assert (again.outcome, again.return_value, await again.result(PATIENCE)) == ("completed", "value", "value")


async def test_a_result_ends_without_a_sweep(timed: Timed) -> None:
    job = await timed.queue.add("n", "old", job_id="report", result_ttl=3_600)
    await run(timed.queue, job)
    await timed.advance(HOUR + MINUTE)
    assert await timed.queue.get_job("report") is None
    with pytest.raises(JobNotFound):
        await job.result(PATIENCE)
    with pytest.raises(JobNotFound):
        await timed.queue.update_result_ttl("report", 60)
    again = await timed.queue.add("n", "new", job_id="report")
    assert again.outcome == "added"
    await run(timed.queue)
    assert await again.result(PATIENCE) == "new"


async def test_an_ended_result_does_not_block_an_add_with_the_same_id(timed: Timed) -> None:
    """The add follows directly. No call in between could have removed the result."""
    job = await timed.queue.add("n", "old", job_id="report", result_ttl=3_600)
    await run(timed.queue, job)
    await timed.advance(HOUR + MINUTE)
    assert (await timed.queue.add("n", "new", job_id="report")).outcome == "added"
    assert (await timed.queue.get_job_counts())["completed"] == 0
    assert await timed.queue.check() == []


async def test_a_sweep_removes_an_ended_result_with_all_its_data(timed: Timed) -> None:
    async def process(job: AnyJob) -> int:
        await job.log("line")
        return 1

    job = await timed.queue.add("n", 1, result_ttl=3_600)
    await run(timed.queue, job, handler=process)
    assert await timed.counts() == (1, 0)
    await timed.advance(HOUR + MINUTE)
    await timed.fake_worker.sweep()
    assert await timed.counts() == (0, 0)
    assert await timed.queue.get_job_logs(job.id) == []


async def test_a_result_outlives_the_retention_of_its_set(timed: Timed) -> None:
    kept = await timed.queue.add("n", "kept", keep_completed=False, result_ttl=3 * 86_400)
    await run(timed.queue, kept)
    await timed.queue.add_bulk([("n", n, JobOptions(keep_completed=2)) for n in range(5)])
    await run(timed.queue)
    await timed.advance(2 * DAY)
    await timed.fake_worker.sweep()
    assert await kept.result(PATIENCE) == "kept"
    await timed.advance(DAY)
    await timed.fake_worker.sweep()
    assert await timed.queue.get_job(kept.id) is None


async def test_a_ttl_does_not_affect_another_job(timed: Timed) -> None:
    """In another library a short time to live, stored when a job was settled, ended every result of the queue."""
    lasting = [
        await timed.queue.add("n", "day", result_ttl=86_400),
        await timed.queue.add("n", "plain"),
        await timed.queue.add("n", "hour", result_ttl=3_600),
    ]
    brief = await timed.queue.add("n", "brief", result_ttl=60)
    await run(timed.queue, *lasting, brief, concurrency=10)
    await timed.advance(2 * MINUTE)
    await timed.fake_worker.sweep()
    assert await timed.queue.get_job(brief.id) is None
    assert [await job.result(PATIENCE) for job in lasting] == ["day", "plain", "hour"]
    await timed.advance(HOUR)
    await timed.fake_worker.sweep()
    assert [await job.result(PATIENCE) for job in lasting[:2]] == ["day", "plain"]
    assert await timed.queue.get_job(lasting[2].id) is None


async def test_jobs_with_a_ttl_do_not_count_for_retention(timed: Timed) -> None:
    ordinary = [await timed.queue.add("n", n, keep_completed=3) for n in range(3)]
    await run(timed.queue, *ordinary)
    cached = [await timed.queue.add("n", n, result_ttl=60) for n in range(20)]
    await run(timed.queue, *cached)
    for number in range(2):
        await run(timed.queue, await timed.queue.add("n", f"new{number}", keep_completed=5))
    assert [await job.result(PATIENCE) for job in ordinary] == [0, 1, 2]
    # After their time none of them counts, swept or not.
    await timed.advance(MINUTE + 1_000)
    await run(timed.queue, await timed.queue.add("n", "last", keep_completed=6))
    assert [await job.result(PATIENCE) for job in ordinary] == [0, 1, 2]
    assert (await timed.queue.get_job_counts())["completed"] == 6


async def test_many_ended_results_do_not_displace_other_jobs(timed: Timed) -> None:
    ordinary = [await timed.queue.add("n", n, keep_completed=5) for n in range(4)]
    await run(timed.queue, *ordinary)
    await timed.queue.add_bulk([("n", n, JobOptions(result_ttl=1)) for n in range(2_500)])
    await run(timed.queue, concurrency=500)
    await timed.advance(2 * MINUTE)
    last = await timed.queue.add("n", 4, keep_completed=5)
    await timed.fake_worker.settle((await timed.fake_worker.claim())[0], "c", "5 -1", b"\x04")
    assert [await job.result(PATIENCE) for job in [*ordinary, last]] == [0, 1, 2, 3, 4]
    for _ in range(3):
        await timed.fake_worker.sweep()
    assert await timed.counts() == (5, 0)


async def test_sweeps_keep_up_with_many_ended_results(timed: Timed) -> None:
    for _ in range(2):
        await timed.queue.add_bulk([("n", n, JobOptions(result_ttl=3_600)) for n in range(1_500)])
        await run(timed.queue, concurrency=500)
        assert await timed.counts() == (1_500, 0)
        await timed.advance(HOUR + MINUTE)


async def test_a_failed_job_keeps_its_failure_for_its_ttl(timed: Timed) -> None:
    job = await timed.queue.add("n", 1, job_id="bad", keep_failed=False, result_ttl=3_600)
    await run(timed.queue, job, handler=fail)
    await timed.advance(HOUR - MINUTE)
    await timed.fake_worker.sweep()
    with pytest.raises(JobFailed, match="no"):
        await job.result(PATIENCE)
    assert (await timed.queue.add("n", 2, job_id="bad")).outcome == "duplicate"
    await timed.advance(2 * MINUTE)
    assert (await timed.queue.add("n", 2, job_id="bad")).outcome == "added"


async def test_a_job_that_the_server_fails_has_its_ttl_too(timed: Timed) -> None:
    expired = await timed.queue.add("n", 1, ttl=1, result_ttl=3_600)
    revoked = await timed.queue.add("n", 2, result_ttl=3_600)
    await revoked.revoke()
    await timed.advance(2 * MINUTE)
    await timed.fake_worker.sweep()
    assert [(await ended(job)).failed_reason for job in (expired, revoked)] == ["expired", "revoked"]
    await timed.advance(HOUR + MINUTE)
    assert [await timed.queue.get_job(job.id) for job in (expired, revoked)] == [None, None]


async def test_a_revoked_run_has_its_ttl_too(timed: Timed) -> None:
    gate = Gate()
    async with worker_of(timed.queue, gate):
        job = await timed.queue.add("n", 1, result_ttl=3_600)
        await gate.running()
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
    await timed.advance(HOUR + MINUTE)
    assert await timed.queue.get_job(job.id) is None


@pytest.mark.parametrize("code", ["r", "d", "b", "f"])
async def test_a_run_with_another_end_after_its_revocation_has_its_ttl_too(timed: Timed, code: str) -> None:
    job = await timed.queue.add("n", 1, attempts=3, result_ttl=3_600)
    [lease] = await timed.fake_worker.claim()
    await job.revoke()
    await timed.fake_worker.settle(lease, code, " t3600000;retries_exhausted;broken" if code == "f" else None)
    assert (await ended(job)).failed_reason == "revoked"
    await timed.advance(HOUR - MINUTE)
    assert await timed.queue.get_job(job.id) is not None
    await timed.advance(2 * MINUTE)
    assert await timed.queue.get_job(job.id) is None


async def test_the_ttl_counts_from_the_end_and_not_from_the_add(timed: Timed) -> None:
    job = await timed.queue.add("n", 1, result_ttl=3_600)
    await timed.advance(2 * HOUR)
    await run(timed.queue, job)
    await timed.advance(HOUR - MINUTE)
    assert await job.result(PATIENCE) == 1


async def test_a_retry_by_hand_restarts_the_ttl(timed: Timed) -> None:
    job = await timed.queue.add("n", 1, result_ttl=3_600)
    await run(timed.queue, job)
    await timed.advance(HOUR - MINUTE)
    await job.retry()
    await timed.advance(HOUR)
    await timed.fake_worker.sweep()
    assert await job.get_state() == "waiting"
    await run(timed.queue, job)
    await timed.advance(HOUR - MINUTE)
    assert await job.result(PATIENCE) == 1


async def test_the_first_accepted_add_sets_the_ttl(timed: Timed) -> None:
    job = await timed.queue.add("n", 1, job_id="a", result_ttl=3_600)
    assert (await timed.queue.add("n", 1, job_id="a", result_ttl=1)).outcome == "duplicate"
    await run(timed.queue, job)
    await timed.advance(10_000)
    assert (await timed.queue.add("n", 1, job_id="a", result_ttl=1)).outcome == "completed"


# -- changing it ------------------------------------------------------------------------------------------------------


async def test_a_ttl_can_be_lengthened_and_shortened_from_now(timed: Timed) -> None:
    long, short, none = [await timed.queue.add("n", n, result_ttl=3_600) for n in range(3)]
    plain = await timed.queue.add("n", 3)
    await run(timed.queue, long, short, none, plain)
    await timed.advance(HOUR // 2)
    await timed.queue.update_result_ttl(long.id, 7_200)
    await short.update_result_ttl(60)
    await none.update_result_ttl(None)
    await plain.update_result_ttl(60)
    await timed.advance(MINUTE + 1_000)
    await timed.fake_worker.sweep()
    assert [await timed.queue.get_job(job.id) for job in (short, plain)] == [None, None]
    await timed.advance(2 * HOUR - 2 * MINUTE - 1_000)
    await timed.fake_worker.sweep()
    assert [await job.result(PATIENCE) for job in (long, none)] == [0, 2]
    await timed.advance(2 * MINUTE)
    assert await timed.queue.get_job(long.id) is None
    await timed.advance(DAY)
    await timed.fake_worker.sweep()
    assert await timed.queue.get_job(none.id) is None


async def test_ordinary_retention_counts_from_the_end(timed: Timed) -> None:
    old = await timed.queue.add("n", "old", result_ttl=30 * 86_400)
    await run(timed.queue, old)
    await timed.advance(2 * DAY)
    young = await timed.queue.add("n", "young")
    await run(timed.queue, young)
    await timed.fake_worker.sweep()
    assert await old.result(PATIENCE) == "old"
    await old.update_result_ttl(None)
    assert [job.data for job in await timed.queue.get_jobs("completed")] == ["young", "old"]
    await timed.fake_worker.sweep()
    assert await timed.queue.get_job(old.id) is None
    assert await young.result(PATIENCE) == "young"


async def test_a_result_that_is_stored_for_its_receiver_can_be_kept(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The confirmation of the reply would remove the record.
    monkeypatch.setattr(result_listener, "CONFIRM_SECONDS", NO_POLLING)
    async with worker_of(timed.queue, echo):
        assert await timed.queue.add_and_wait("n", 1, job_id="a", keep_completed=False, wait_timeout=10) == 1
    await timed.queue.update_result_ttl("a", 3_600)
    await timed.advance(HOUR - MINUTE)
    await timed.fake_worker.sweep()
    assert (await timed.queue.add("n", 2, job_id="a")).outcome == "completed"
    await timed.advance(2 * MINUTE)
    assert (await timed.queue.add("n", 2, job_id="a")).outcome == "added"


async def test_only_an_ended_job_has_a_ttl_to_change(queue: AnyQueue) -> None:
    with pytest.raises(JobNotFound, match="change the result ttl of job 'none'"):
        await queue.update_result_ttl("none", 1)
    job = await queue.add("n", 1)
    with pytest.raises(JobStateError, match=r"job is waiting; .*result_ttl"):
        await job.update_result_ttl(1)
    with pytest.raises(JobStateError):
        await job.update_result_ttl(None)


@pytest.mark.parametrize(
    ("ttl", "error", "message"),
    [
        (0, ValueError, "ttl must be more than zero"),
        (-1, ValueError, "ttl must not be negative"),
        (float("nan"), ValueError, "ttl must be a finite number"),
        ("1h", TypeError, "ttl must be seconds"),
        (True, TypeError, "ttl must be seconds"),
    ],
)
@pytest.mark.only_on("memory")
async def test_bad_ttls_are_refused(queue: AnyQueue, ttl: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        await queue.update_result_ttl("a", ttl)
    with pytest.raises(error, match=f"result_{message}"):
        await queue.add("n", 1, result_ttl=ttl)


# -- on every storage -------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_short_result_ends_and_a_long_one_stays(queue: AnyQueue) -> None:
    async with worker_of(queue, echo) as worker:
        done = Heard(worker, "completed")
        await queue.add("n", "long", job_id="long", result_ttl=600)
        await queue.add("n", "short", job_id="short", result_ttl=0.05)
        await done.next()
        await done.next()
        again = await queue.add("n", "other", job_id="long")
        assert (again.outcome, again.return_value) == ("completed", "long")

        async def gone() -> bool:
            return (await queue.add("n", "new", job_id="short")).outcome == "added"

        while not await gone():
            pass
        assert [(await done.next())[1]] == ["new"]


async def test_a_waiting_client_gets_a_result_with_a_short_ttl(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", 1, result_ttl=0.001, wait_timeout=10) == 1


async def test_removing_a_result_removes_its_expiry(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 1, result_ttl=600)
    await run(queue, job)
    assert await store.ask("ZCARD", f"glide:{{{queue.name}}}:held") == 1
    await job.remove()
    assert await store.ask("EXISTS", f"glide:{{{queue.name}}}:held") == 0


async def test_a_job_with_a_ttl_has_the_same_events_as_any_other(queue: AnyQueue) -> None:
    job = await queue.add("n", 1, result_ttl=600)
    await run(queue, job)
    assert [kind for kind, _ in await job_events(queue, job.id)] == ["added", "active", "completed"]


async def test_malformed_policies_are_refused(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    for policy in ("t5", " t", " tx", " t-1", "5 t5", " t5 t6", "1 1t5"):
        with pytest.raises(Exception, match="retention policy"):
            await fake_worker.complete_with_policy(lease, policy)
    assert await fake_worker.settle(lease, "c", "5 -1 t60000") is None
    await fake_worker.leave()
