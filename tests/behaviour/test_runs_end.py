"""Every run ends and frees its slot, whatever its handler raises and however early it is stopped."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import pytest

from glidemq_async import Backoff, JobOptions, Queue
from glidemq_async.options.budget import Meter
from glidemq_async.worker.leases import LeaseRenewer
from glidemq_async.worker.runs import Run, Runner
from tests.support.helpers import (
    AnyJob,
    AnyQueue,
    AnyWorker,
    Gate,
    Heard,
    echo,
    ended,
    job_events,
    soon,
    until,
    worker_of,
)
from tests.support.hooked_storage import HookedStorage
from tests.support.stores import RunningStore

EAGER = sys.version_info >= (3, 12)
"""True if a run takes its first step when it is claimed, before a stop can reach it."""
STOPS = (b"r ", b"x ")
"""The prefixes of the messages that ask a worker to stop a run."""


class StopsJobsBeforeTheirRun(HookedStorage):
    """Stops a job between its claim and the first step of its run."""

    def __init__(self) -> None:
        super().__init__()
        self.stop: Callable[[str], Any] | None = None
        self._messages: asyncio.Queue[Callable[[], None]] = asyncio.Queue()

    async def after_call(self, function: str, reply: object) -> None:
        if function == "settleAndClaim" and self.stop is not None:
            claimed = cast("list[list[bytes]]", reply)[2]
            if claimed:
                stop, self.stop = self.stop, None
                await stop(claimed[0].decode().partition("-")[0])  # the entry of the first job begins with its id
                # Scheduled before the task that the worker creates when it gets this reply.
                asyncio.get_running_loop().call_soon(await soon(self._messages.get()))

    def deliver(self, message: bytes, on_message: Callable[[bytes], None]) -> None:
        if message.startswith(STOPS):
            self._messages.put_nowait(lambda: on_message(message))
        else:
            on_message(message)


@pytest.mark.parametrize("how", ["revoke", "remove"])
async def test_a_run_that_is_stopped_before_its_first_step_frees_its_slot(how: Literal["revoke", "remove"]) -> None:
    ran: list[Any] = []

    async def note(job: AnyJob) -> Any:
        ran.append(job.data)
        return job.data

    async with StopsJobsBeforeTheirRun() as storage, Queue[Any, Any]("q", storage) as queue:
        async with worker_of(queue, note, concurrency=1) as worker:
            await soon(storage.linked.wait())
            storage.stop = queue.revoke if how == "revoke" else queue.remove
            job = await queue.add("n", "stopped", lock_duration=60)  # a job with its own lease is claimed, not pushed
            await until(lambda: storage.stop is None)
            assert await queue.add_and_wait("n", "next", wait_timeout=5) == "next"
            await until(lambda: worker.running == 0)
            if how == "remove":
                assert await queue.get_job(job.id) is None
            elif EAGER:
                assert (await ended(job)).state == "completed"
            else:
                await ended(job)
                assert (job.state, job.failed_reason) == ("failed", "revoked")
        assert ran == (["stopped", "next"] if EAGER else ["next"])
        assert (await queue.get_job_counts())["active"] == 0
        assert await queue.check() == []


class UnexpectedError(BaseException):
    """An exception of a class that no code expects, and not an Exception."""


UNEXPECTED: list[Callable[[], BaseException]] = [
    lambda: UnexpectedError("no"),
    lambda: BaseExceptionGroup("no", [UnexpectedError("a"), ValueError("b")]),
    lambda: SystemExit(3),
]


@pytest.mark.parametrize("tier", ["inline", "thread"])
@pytest.mark.parametrize("make", UNEXPECTED, ids=["UnexpectedError", "BaseExceptionGroup", "SystemExit"])
async def test_any_exception_of_a_handler_is_a_failure(
    queue: AnyQueue, make: Callable[[], BaseException], tier: str
) -> None:
    async def inline(job: AnyJob) -> str:
        return thread(job)

    def thread(job: AnyJob) -> str:
        if job.data == "bad":
            raise make()
        return "fine"

    async with worker_of(queue, inline if tier == "inline" else thread, concurrency=1) as worker:
        job = await ended(await queue.add("n", "bad", attempts=2))
        assert (job.state, job.attempts_made) == ("failed", 2)
        assert type(make()).__name__ in (job.failed_reason or "")
        assert await queue.add_and_wait("n", "good", wait_timeout=5) == "fine"
        await until(lambda: worker.running == 0)


async def test_a_backoff_strategy_that_raises_system_exit_fails_the_job(queue: AnyQueue) -> None:
    def give_up(made: int, error: BaseException) -> float:
        raise SystemExit(1)

    async def fail(job: AnyJob) -> str:
        if job.data == "bad":
            raise ValueError("no")
        return "fine"

    async with worker_of(queue, fail, backoff_strategies={"s": give_up}) as worker:
        job = await ended(await queue.add("n", "bad", attempts=5, backoff=Backoff.custom("s")))
        assert (job.state, job.attempts_made) == ("failed", 1)
        assert await queue.add_and_wait("n", "good", wait_timeout=5) == "fine"
        await until(lambda: worker.running == 0)


@pytest.mark.parametrize("tier", ["inline", "thread"])
async def test_stop_iteration_is_a_failure_like_others(queue: AnyQueue, tier: str) -> None:
    async def inline(job: AnyJob) -> str:
        return thread(job)

    def thread(job: AnyJob) -> str:
        return str(next(iter(job.data)))

    async with worker_of(queue, inline if tier == "inline" else thread, concurrency=1) as worker:
        job = await ended(await queue.add("n", []))
        assert job.state == "failed"
        assert "StopIteration" in (job.failed_reason or "")
        assert await queue.add_and_wait("n", ["fine"], wait_timeout=5) == "fine"
        await until(lambda: worker.running == 0)


async def test_a_worker_closes_normally_after_an_unreadable_record(queue: AnyQueue, store: RunningStore) -> None:
    worker = worker_of(queue, echo, concurrency=3)
    await queue.pause()
    jobs = await queue.add_bulk([("n", number, JobOptions(attempts=2, job_id=f"own-{number}")) for number in range(3)])
    await store.ask("HSET", f"glide:{{{queue.name}}}:job:{jobs[1].id}", "opts", b"\xff\xff")
    failed = Heard(worker, "failed")
    async with worker:
        await queue.resume()
        assert (await jobs[0].result(5), await jobs[2].result(5)) == (0, 2)
        assert (await failed.next())[0].id == jobs[1].id
        await until(lambda: worker.running == 0)
        await asyncio.wait_for(worker.close(), 4)
    assert await queue.remove(jobs[1].id)


@pytest.mark.parametrize("when", ["before the runs end", "after they were claimed again"])
async def test_a_destroyed_group_loses_no_slot_and_no_job(queue: AnyQueue, store: RunningStore, when: str) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=3, lock_duration=1, max_stalled=9) as worker:
        errors = Heard(worker, "error")
        jobs = await queue.add_bulk([("n", number) for number in range(6)])
        for _ in range(3):
            await gate.running()
        await store.ask("XGROUP", "DESTROY", f"glide:{{{queue.name}}}:fifo", "workers")
        if when != "before the runs end":
            # Renewals find the lost leases, and the free slots read the stream from its start.
            for _ in range(3):
                await gate.running()
        assert worker.running <= 3
        gate.release()
        await all_end(queue, jobs, worker)
        assert errors.count == 0


def renews_nothing(_renewer: LeaseRenewer) -> None:
    """Replaces the start of the lease renewal."""


async def test_entries_that_are_claimed_twice_use_a_slot_each(
    queue: AnyQueue, store: RunningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even the first renewal would find the lost leases, and the jobs would start again after their end.
    monkeypatch.setattr(LeaseRenewer, "start", renews_nothing)
    gate = Gate()
    inside: list[int] = [0, 0]

    async def count(job: AnyJob) -> Any:
        inside[0] += 1
        inside[1] = max(inside)
        try:
            return await gate(job)
        finally:
            inside[0] -= 1

    async with worker_of(queue, count, concurrency=5, lock_duration=30) as worker:
        errors = Heard(worker, "error")
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        for _ in range(3):
            await gate.running()
        await store.ask("XGROUP", "DESTROY", f"glide:{{{queue.name}}}:fifo", "workers")
        # The group is created again and returns the running jobs.
        jobs += await queue.add_bulk([("n", number) for number in range(6)])
        for _ in range(2):
            await gate.running()
        await asyncio.sleep(0.2)
        assert inside[1] <= 5
        gate.release()
        await all_end(queue, jobs, worker)
        assert errors.count == 0


async def all_end(queue: AnyQueue, jobs: Sequence[AnyJob], worker: AnyWorker) -> None:
    """Wait until each of these jobs has ended, exactly once, and the worker has no job."""
    for job in jobs:
        assert await job.result(8) == job.data
    await until(lambda: worker.running == 0)
    for job in jobs:
        kinds = [kind for kind, _ in await job_events(queue, job.id)]
        assert (kinds.count("completed"), kinds.count("failed")) == (1, 0)


async def test_an_internal_error_of_the_library_in_a_run_fails_its_job(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Runner, _run: Run, _error: BaseException) -> bool:
        raise AssertionError("a defect")

    async def fail_first(job: AnyJob) -> Any:
        if job.data == "bad":
            raise ValueError("no")
        return job.data

    errors: list[Exception] = []
    worker = worker_of(queue, fail_first, concurrency=1)
    worker.on("error", errors.append)
    async with worker:
        with monkeypatch.context() as patched:
            patched.setattr(Runner, "_raised", broken)
            job = await ended(await queue.add("n", "bad", attempts=3))
        assert (job.state, job.failure_cause) == ("failed", "unrecoverable")
        assert "a defect" in (job.failed_reason or "")
        assert [str(error) for error in errors] == ["a defect"]
        assert await queue.add_and_wait("n", "next", wait_timeout=5) == "next"


async def test_a_stop_while_the_last_progress_is_written_releases_the_job(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushing = asyncio.Event()

    async def hang(_self: Meter) -> None:
        flushing.set()
        await asyncio.Event().wait()

    async def report(job: AnyJob) -> None:
        await job.update_progress(1)

    job = await queue.add("n")
    monkeypatch.setattr(Meter, "flush", hang)
    returned: list[AnyJob] = []
    worker = worker_of(queue, report, shutdown_timeout=0)
    worker.on("returned", returned.append)
    async with worker:
        await soon(flushing.wait())
    assert [one.id for one in returned] == [job.id]
    await job.refresh()
    assert job.state == "waiting"
