"""Keys with limits: when the server does not review them, and how long it keeps their starts and tokens."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import JobOptions, RateLimit, TokenBucket
from glidemq_async.functions.callers import Functions
from tests.support.clocked_queue import SECOND, Timed
from tests.support.fake_worker import leases_of
from tests.support.helpers import counts


@pytest.mark.parametrize(
    "limits",
    [{"concurrency": 2}, {"rate_limit": RateLimit(99, 60)}, {"token_bucket": TokenBucket(99, 0.01)}],
    ids=["concurrency", "window", "bucket"],
)
async def test_jobs_that_are_added_while_no_worker_is_idle_start(timed: Timed, limits: dict[str, Any]) -> None:
    await timed.queue.set_key_limits(None, **limits)
    for _ in range(3):
        jobs = [(str(number), None, JobOptions(key=key)) for number in range(2) for key in ("a", "b")]
        await timed.queue.add_bulk(jobs[:3])
        await timed.queue.add_bulk(jobs[3:])
        assert sorted([name for _ in range(3) for name in await timed.run()]) == ["0", "0", "1", "1"]
        await timed.fake_worker.leave()


async def test_the_end_of_a_run_starts_no_job_of_a_key_that_waits_for_a_retry(timed: Timed) -> None:
    """The concurrency was lowered while the other run lasted."""
    await timed.queue.set_key_limits(None, concurrency=2)
    await timed.queue.add_bulk([(name, None, JobOptions(key="k", attempts=2)) for name in "abc"])
    retried, completed = await timed.fake_worker.claim(2)
    await timed.queue.set_key_limits(None, concurrency=1, token_bucket=TokenBucket(99, 1))
    await timed.fake_worker.settle(retried, "r", "60000 no")
    await timed.fake_worker.complete(completed)
    assert await timed.queue.check() == []
    assert await timed.names() == []
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run(1) for _ in range(2)] == [["a"], ["c"]]


async def test_the_end_of_a_run_starts_no_job_of_a_paused_key(timed: Timed) -> None:
    await timed.queue.set_key_limits(None, concurrency=2)
    await timed.queue.add_bulk([(name, None, JobOptions(key="k")) for name in "abc"])
    leases = await timed.fake_worker.claim(2)
    await timed.queue.pause_key("k", 60)
    await timed.fake_worker.complete(*leases)
    assert await timed.names() == []
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["c"]


async def test_a_job_that_comes_first_pays_its_own_cost(timed: Timed) -> None:
    await timed.queue.set_key_limits(None, token_bucket=TokenBucket(10, 0.01))
    await timed.queue.add("first", key="k", cost=9.5)
    assert await timed.run() == ["first"]
    await timed.fake_worker.leave()
    await timed.queue.add("cheap", key="k", priority=5, cost=0.5)
    await timed.queue.add_bulk([("dear", None, JobOptions(key="k"))])
    assert await counts(timed.queue) == {"completed": 1, "rate-limited": 1, "key-waiting": 1}
    assert await timed.run() == []
    await timed.clock.advance(60 * SECOND)
    assert [*await timed.run(), *await timed.run()] == ["dear"]


async def test_a_job_waits_that_a_changed_bucket_cannot_pay_for(timed: Timed) -> None:
    """A claim may come before the keys are reviewed under their changed limits."""
    await timed.queue.set_key_limits(None, token_bucket=TokenBucket(1, 0.01))
    await timed.queue.add_bulk([(name, None, JobOptions(key="k")) for name in "01"])
    assert await timed.run() == ["0"]
    await timed.queue.set_key_limits(None, token_bucket=None)
    functions = Functions(timed.queue.storage, timed.fake_worker.base)
    await functions.limits.set_key("", bucket="1000 10")
    assert await timed.run() == []
    assert await counts(timed.queue) == {"completed": 1, "rate-limited": 1}
    await timed.clock.advance(110 * SECOND)
    assert await timed.run() == ["1"]


async def test_a_job_waits_for_the_retry_of_another_one_after_the_concurrency_was_lowered(timed: Timed) -> None:
    """A claim may come before the keys are reviewed under their changed limits."""
    await timed.queue.set_key_limits(None, concurrency=2)
    await timed.queue.add_bulk([(name, None, JobOptions(key="k", attempts=2)) for name in "ab"])
    [retried] = await timed.fake_worker.claim(1)
    await timed.fake_worker.settle(retried, "r", "60000 no")
    functions = Functions(timed.queue.storage, timed.fake_worker.base)
    await functions.limits.set_key("", concurrency="1")
    assert await timed.run() == []
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run(1) for _ in range(2)] == [["a"], ["b"]]


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_key_runs_one_job_at_a_time_after_its_limit_was_removed(timed: Timed, slots: int) -> None:
    """A call that ends runs and claims may come before the keys are reviewed without limits."""
    await timed.queue.set_key_limits(None, concurrency=3)
    await timed.queue.add_bulk([(name, None, JobOptions(key="k")) for name in "abcd"])
    first = await timed.fake_worker.claim(1)
    functions = Functions(timed.queue.storage, timed.fake_worker.base)
    await functions.limits.set_key("", concurrency="")
    second = leases_of(await timed.fake_worker.claim_directly(slots, 30_000, *first))
    assert [lease.name for lease in second] == ["b"]
    assert await timed.queue.check() == []
    assert await timed.names() == []
    await timed.fake_worker.complete(*second)
    assert [await timed.run() for _ in range(2)] == [["c"], ["d"]]


@pytest.mark.parametrize("whose", ["k", None], ids=["its own", "the common one"])
async def test_the_starts_of_a_key_live_as_long_as_they_count(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(
        whose, concurrency=10, rate_limit=RateLimit(3, 60), token_bucket=TokenBucket(3, 0.02)
    )
    await timed.queue.add_bulk([(str(number), None, JobOptions(key="k")) for number in range(9)])
    keys = [f"{timed.fake_worker.base}:{name}:k" for name in ("keyrate", "keybucket")]
    for seconds in (0, 9, 4, 70):
        await timed.pass_time(seconds * SECOND)
        await timed.run(1)
        lifetimes = await timed.store.lifetimes(keys)
        assert 60 * SECOND < lifetimes[keys[0]] < 80 * SECOND
        assert 50 * SECOND < lifetimes[keys[1]] < 180 * SECOND
