"""Cases of the calls that workers make most: claims, settles, and both in one call, for each kind of job."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgpack

from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.outcomes import Completed, Failed, Outcome, Retention, Retry
from glidemq_async.functions.settle import SettleReply
from tests.server_time.bench import MIB, NIL, Bench, largest
from tests.support.fake_worker import SettledRun, in_groups, key_of, with_runs

MOST: Final = 1_000
"""The largest number of slots and of runs in one call."""
LEASE_MS: Final = 600_000
KEEP_ALL: Final = Retention()

Fill = Callable[[Bench], Coroutine[Any, Any, None]]


class Claimant:
    """A worker with 1,000 slots. It settles all of its runs and claims as many jobs in each call."""

    def __init__(self, b: Bench, outcome: Outcome) -> None:
        self._settle = b.functions.settle
        self._channel = RequestChannel("claimant")
        self.outcome_of: Callable[[ClaimedJob], Outcome] = lambda _: outcome
        self._most = MOST
        self.held: list[ClaimedJob] = []
        self.settled = 0
        self.since: dict[str, int] = {}

    async def call(self, *, slots: int = MOST, is_direct: bool = False) -> SettleReply:
        """Settle the runs that this worker holds, and claim jobs for the rest of the slots."""
        # Only the runs that are sent: sorting all of them in each call takes minutes if they are 50,000.
        ended = self.held[: self._most]
        runs = in_groups(map(self._run_of, ended))
        held = {job.entry: job for job in ended}
        self.held[: self._most] = [held[run.entry] for run in runs]
        request = self._settle.request(
            self._channel,
            "claimant",
            slots,
            LEASE_MS,
            subscribed=True,
            idle=True,
            is_direct=is_direct,
            ran_ms=(len(runs), 0),
        )
        with_runs(request, runs)
        reply = await self._settle.send(request)
        assert not reply.refused
        assert reply.settled or not runs, "a call must settle some of its runs"
        self.settled += reply.settled
        # Like a worker, which does not send many more runs than the server settles.
        self._most = min(2 * self._most, MOST) if reply.settled == len(runs) else reply.settled
        self.held = [*self.held[reply.settled :], *reply.jobs]
        self.since.update((job.entry, reply.claimed_at) for job in reply.jobs)
        return reply

    def _run_of(self, job: ClaimedJob) -> SettledRun:
        since = self.since[job.entry] if job.is_plain else ""
        return SettledRun(job.id, job.entry, self.outcome_of(job), since, key_of(job))

    async def claim(self, jobs: int) -> None:
        """Claim this many jobs in calls that settle nothing."""
        kept, self.held = self.held, []
        while len(kept) < jobs:
            found = await self.call(slots=min(MOST, jobs - len(kept)))
            assert found.jobs, "a claim must start some of the jobs that can start"
            kept += self.held
            self.held = []
        self.held = kept

    async def end(self) -> None:
        """Settle all runs in calls that claim nothing."""
        while self.held:
            await self.call(slots=0)

    async def drain(self, jobs: int) -> None:
        """Settle and claim in the same calls until this many runs have ended."""
        while self.settled < jobs:
            await self.call()


@asynccontextmanager
async def idle_workers(b: Bench) -> AsyncGenerator[None]:
    """Yield while 300 workers are known, each with a run."""
    await b.add(300)
    for number in range(300):
        await b.claim(1, consumer=f"worker{number}")
    yield


async def work(b: Bench, fill: Fill, outcome: Outcome, jobs: int = MOST) -> None:
    """Claim and settle in separate calls, and then together."""
    await fill(b)
    worker = Claimant(b, outcome)
    await worker.claim(jobs)
    await worker.end()
    worker.settled = 0
    await fill(b)
    await worker.drain(jobs)


async def plain(b: Bench) -> None:
    await b.add(MOST)


async def prioritized(b: Bench) -> None:
    await b.add(MOST, priority=3)


async def lifo(b: Bench) -> None:
    await b.add(MOST, lifo=True)


async def keyed(b: Bench) -> None:
    await b.add_keyed(MOST, MOST)


async def keyed_with_limits(b: Bench) -> None:
    await b.functions.limits.set_key("", rate="1000 60000", concurrency="1000", bucket="1000000 1000000")
    await b.add_keyed(MOST, MOST // 2)


async def awaited(b: Bench) -> None:
    for _ in range(10):
        await b.add(MOST // 10, reply="channel")


async def revoked(b: Bench) -> None:
    await b.add(MOST)
    await b.fill("SADD", "revoking", [str(number) for number in range(1, 2 * MOST + 1)])


async def due(b: Bench) -> None:
    await b.add(MOST, delay=60_000)
    await make_due(b)


async def due_keyed(b: Bench) -> None:
    await b.functions.limits.set_key("", rate="1000 60000", concurrency="1000", bucket="1000000 1000000")
    await b.add_keyed(MOST, MOST // 2, delay=60_000)
    await make_due(b)


async def make_due(b: Bench) -> None:
    """Make all delayed jobs due."""
    key = f"{b.base}:scheduled"
    await b.command("ZUNIONSTORE", key, 1, key, "WEIGHTS", 0)


async def expired(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await b.add(MOST, b"x" * 300, ttl=3_600_000)


COMPLETED: Final = Completed(NIL)
FAILED: Final = Failed(b"x" * 1_000, "retries_exhausted", "broken", KEEP_ALL)


@largest("settleAndClaim", "plain")
async def plain_jobs(b: Bench) -> None:
    await work(b, plain, COMPLETED)


@largest("finishClaim")
async def direct_claims(b: Bench) -> None:
    """Measure the whole transaction, because the server serves no other client in it."""
    await b.add(2 * MOST, b"x" * 4_096)
    worker, claims = Claimant(b, COMPLETED), 0
    while worker.settled < 2 * MOST:
        claims += (await worker.call(is_direct=True)).is_direct
    assert claims > 3


@largest("settleAndClaim", "prioritized")
async def prioritized_jobs(b: Bench) -> None:
    await work(b, prioritized, COMPLETED)


@largest("settleAndClaim", "LIFO")
async def lifo_jobs(b: Bench) -> None:
    await work(b, lifo, COMPLETED)


@largest("settleAndClaim", "keyed")
async def keyed_jobs(b: Bench) -> None:
    await work(b, keyed, COMPLETED)


@largest("settleAndClaim", "keyed with limits")
async def limited_jobs(b: Bench) -> None:
    await work(b, keyed_with_limits, COMPLETED)


@largest("settleAndClaim", "awaited")
async def awaited_jobs(b: Bench) -> None:
    await work(b, awaited, COMPLETED)


@largest("settleAndClaim", "awaited, held beyond their retention")
async def held_jobs(b: Bench) -> None:
    await work(b, awaited, Completed(NIL, Retention(10)))


@largest("settleAndClaim", "awaited, nothing kept")
async def awaited_not_kept(b: Bench) -> None:
    await work(b, awaited, Completed(NIL, Retention(0)))


@largest("settleAndClaim", "expired")
async def expired_jobs(b: Bench) -> None:
    await expired(b)
    key = f"{b.base}:expiry"
    await b.command("ZUNIONSTORE", key, 1, key, "WEIGHTS", 0)
    worker = Claimant(b, COMPLETED)
    while (reply := await worker.call()).due == reply.now:
        assert not reply.jobs


@largest("settleAndClaim", "revoked")
async def revoked_jobs(b: Bench) -> None:
    await work(b, revoked, FAILED)


@largest("settleAndClaim", "delayed")
async def delayed_jobs(b: Bench) -> None:
    await work(b, due, COMPLETED)


@largest("settleAndClaim", "delayed and keyed")
async def delayed_keyed_jobs(b: Bench) -> None:
    await work(b, due_keyed, COMPLETED)


@largest("settleAndClaim", "retried")
async def retried_jobs(b: Bench) -> None:
    await work(b, plain, Retry(b"x" * 1_000, 60.0, "broken"))


@largest("settleAndClaim", "retried, keyed with limits")
async def retried_limited_jobs(b: Bench) -> None:
    await work(b, keyed_with_limits, Retry(b"x" * 1_000, 60.0, "broken"))


@largest("settleAndClaim", "retried, each in another group")
async def many_failure_groups(b: Bench) -> None:
    def failure(job: ClaimedJob) -> Retry:
        error = ["E" * 300, "m" * 4_096, "t" * 16_384, "p" * 200, f"{int(job.id):064}", "v" * 64]
        return Retry(msgpack.packb(error), 60.0, "broken")

    await plain(b)
    worker = Claimant(b, FAILED)
    worker.outcome_of = failure
    await worker.claim(MOST)
    jobs = worker.held
    for start in range(0, MOST, 50):
        worker.held = jobs[start : start + 50]
        await worker.end()


@largest("settleAndClaim", "dead letters")
async def dead_letters(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await work(b, partial(_with_data, size=500), FAILED)


@largest("settleAndClaim", "dead letters, keyed with limits")
async def limited_dead_letters(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await work(b, keyed_with_limits, FAILED)


async def _with_data(b: Bench, size: int) -> None:
    await b.add(MOST, b"x" * size)


@largest("settleAndClaim", "events with results")
async def events_with_results(b: Bench) -> None:
    await b.functions.event_rules.set(None, {"event_content": "value"})
    await work(b, partial(_with_data, size=4_000), Completed(b"x" * 1_000))


@largest("settleAndClaim", "events with results, keyed")
async def events_of_keyed_jobs(b: Bench) -> None:
    await b.functions.event_rules.set(None, {"event_content": "value"})
    await work(b, keyed, Completed(b"x" * 1_000))


@largest("settleAndClaim", "events with results, large jobs")
async def events_of_large_jobs(b: Bench) -> None:
    await b.functions.event_rules.set(None, {"event_content": "size"})
    await b.add(20, b"x" * MIB)
    worker = Claimant(b, Completed(b"x" * 1_000))
    await worker.claim(20)
    await worker.end()


@largest("settleAndClaim", "nothing kept")
async def nothing_kept(b: Bench) -> None:
    await work(b, plain, Completed(NIL, Retention(0)))


@largest("settleAndClaim", "kept for a time")
async def kept_for_a_time(b: Bench) -> None:
    await work(b, plain, Completed(NIL, Retention(ttl_ms=3_600_000)))


@largest("settleAndClaim", "less kept than before")
async def less_kept(b: Bench) -> None:
    await plain(b)
    await b.end(MOST)
    await work(b, plain, Completed(NIL, Retention(10)))


@largest("settleAndClaim", "results of 10 kB")
async def large_results(b: Bench) -> None:
    # A worker sends at most a mebibyte of results in a call.
    await plain(b)
    worker = Claimant(b, Completed(b"x" * 10_000, KEEP_ALL))
    await worker.claim(MOST)
    jobs, worker.held = worker.held, []
    for start in range(0, MOST, MIB // 10_000):
        worker.held = jobs[start : start + MIB // 10_000]
        await worker.end()


@largest("settleAndClaim", "payloads of 10 kB")
async def medium_payloads(b: Bench) -> None:
    await work(b, partial(_with_data, size=10_000), COMPLETED)


@largest("settleAndClaim", "payloads of 1 MB")
async def large_payloads(b: Bench) -> None:
    await b.add(20, b"x" * 1_000_000)
    worker = Claimant(b, COMPLETED)
    await worker.claim(20)
    await worker.end()


@largest("settleAndClaim", "limits of the queue, 300 consumers")
async def limits_of_the_queue(b: Bench) -> None:
    async with idle_workers(b):
        await b.functions.limits.set(rate="100000 60000", concurrency="100000")
        await work(b, plain, COMPLETED)


@largest("settleAndClaim", "several kinds")
async def several_kinds(b: Bench) -> None:
    async def fill(b: Bench) -> None:
        for one in (keyed_with_limits, lifo, plain, prioritized):
            await one(b)

    await work(b, fill, COMPLETED, 4 * MOST)


# Plain jobs that get records at their ends.


@largest("settleAndClaim", "retried, payloads of 1 MB")
async def retried_large(b: Bench) -> None:
    await b.add(20, b"x" * MIB)
    worker = Claimant(b, Retry(b"x" * 1_000, 60.0, "broken"))
    await worker.claim(20)
    await worker.end()


@largest("settleAndClaim", "kept for a time, payloads of 1 MB")
async def large_kept_for_a_time(b: Bench) -> None:
    await b.add(20, b"x" * MIB)
    worker = Claimant(b, Completed(NIL, Retention(ttl_ms=3_600_000)))
    await worker.claim(20)
    await worker.end()


@largest("settleAndClaim", "long runs among younger ones")
async def late(b: Bench) -> None:
    # The horizon has passed the oldest jobs when they complete, so they are stored as records.
    await b.add(MOST)
    worker = Claimant(b, Completed(NIL, Retention(100)))
    await worker.claim(MOST)
    late, worker.held = worker.held, []
    await b.add(MOST)
    await worker.claim(MOST)
    await worker.end()
    worker.held = late
    await worker.end()


@largest("settleAndClaim", "many groups")
async def many_groups(b: Bench) -> None:
    await end_in_groups(b, COMPLETED)


@largest("settleAndClaim", "many groups, kept for a time")
async def many_groups_kept_for_a_time(b: Bench) -> None:
    await end_in_groups(b, Completed(NIL, Retention(ttl_ms=3_600_000)))


async def end_in_groups(b: Bench, outcome: Outcome) -> None:
    """End runs that began at different times, so that each has its own group."""
    await b.add(MOST)
    worker = Claimant(b, outcome)
    await worker.claim(MOST)
    for number, job in enumerate(worker.held):
        worker.since[job.entry] += number
    await worker.end()
