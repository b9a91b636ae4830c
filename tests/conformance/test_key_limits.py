"""Limits of keys: concurrency, sliding windows, token buckets, pauses, changed while jobs wait and run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import JobOptions, Queue, RateLimit, RateLimited, TokenBucket
from glidemq_async.storage import Storage
from tests.support.clocked_queue import HOUR, MINUTE, SECOND, Timed
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, job_events, worker_of
from tests.support.recording_storage import Relay

WHOSE = pytest.mark.parametrize("whose", ["k", None], ids=["its own", "the common one"])


async def fill(timed: Timed, count: int, **options: Any) -> None:
    """Add this many jobs of key "k", named by their number."""
    await timed.queue.add_bulk([(str(number), None, JobOptions(key="k", **options)) for number in range(count)])


# -- longer windows ---------------------------------------------------------------------------------------------------


@WHOSE
async def test_regression_a_longer_window_of_a_key_includes_the_last_starts(timed: Timed, whose: str | None) -> None:
    """The starts must also survive the end of the old window."""
    await timed.queue.set_key_limits(whose, concurrency=10, rate_limit=RateLimit(5, 10))
    await fill(timed, 30)
    for _ in range(2):
        assert len(await timed.run()) == 5
        await timed.clock.advance(11 * SECOND)
    await timed.queue.set_key_limits(whose, rate_limit=RateLimit(7, 60))
    key = f"{timed.fake_worker.base}:keyrate:k"
    assert (await timed.store.lifetimes([key]))[key] > 50 * SECOND
    assert await timed.run() == []
    await timed.clock.advance(39 * SECOND)
    assert len(await timed.run()) == 2


@WHOSE
async def test_a_bucket_with_a_slower_refill_is_not_full_early(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, concurrency=10, token_bucket=TokenBucket(5, 0.5))
    await fill(timed, 30)
    assert len(await timed.run()) == 5
    await timed.queue.set_key_limits(whose, token_bucket=TokenBucket(5, 0.01))
    key = f"{timed.fake_worker.base}:keybucket:k"
    assert (await timed.store.lifetimes([key]))[key] > 400 * SECOND
    await timed.clock.advance(110 * SECOND)
    assert len(await timed.run()) == 1


async def test_the_number_of_stored_starts_of_a_key_is_bounded(timed: Timed) -> None:
    await timed.queue.set_key_limits("k", concurrency=10, rate_limit=RateLimit(5, 1))
    await fill(timed, 200)
    for _ in range(40):
        assert len(await timed.run()) == 5
        await timed.clock.advance(2 * SECOND)
    assert await timed.store.ask("ZCARD", f"{timed.fake_worker.base}:keyrate:k") in range(50, 160)


# -- concurrency ------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_key_runs_as_many_jobs_as_its_concurrency_allows(queue: AnyQueue) -> None:
    await queue.set_key_limits("k", concurrency=3)
    gate = Gate()
    await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(7)])
    async with worker_of(queue, gate, concurrency=10):
        assert [(await gate.running()).data for _ in range(3)] == [0, 1, 2]
        assert await counts(queue) == {"active": 3, "key-waiting": 4}
        gate.release()
        assert [(await gate.running()).data for _ in range(4)] == [3, 4, 5, 6]


@pytest.mark.everywhere
async def test_the_jobs_of_several_claims_count_together(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.set_key_limits("k", concurrency=2)
    await queue.add_bulk([("n", None, JobOptions(key="k"))] * 4)
    first, second = *await fake_worker.claim(), *await fake_worker.claim()
    assert await fake_worker.claim() == []
    assert await queue.check() == []
    await fake_worker.complete(first)
    assert len(await fake_worker.claim(4)) == 1
    await fake_worker.complete(second)


async def test_a_raised_limit_starts_more_jobs(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(7)])
    async with worker_of(queue, gate, concurrency=10):
        await gate.running()
        await queue.set_key_limits("k", concurrency=3)
        assert [(await gate.running()).data for _ in range(2)] == [1, 2]
        await queue.set_key_limits("k", concurrency=None)
        await queue.set_key_limits(None, concurrency=5)
        assert [(await gate.running()).data for _ in range(2)] == [3, 4]
        gate.release()


async def test_a_lowered_limit_lets_active_jobs_end(timed: Timed) -> None:
    await timed.queue.set_key_limits("k", concurrency=4)
    await fill(timed, 8)
    leases = await timed.fake_worker.claim(10)
    assert len(leases) == 4
    await timed.queue.set_key_limits("k", concurrency=2)
    for lease in leases[:2]:
        await timed.fake_worker.settle(lease)
        assert await timed.names() == []
    await timed.fake_worker.settle(leases[2])
    assert await timed.names() == ["4"]
    await timed.fake_worker.leave()


@WHOSE
async def test_jobs_above_a_removed_limit_block_their_key_until_the_last_ends(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, concurrency=3)
    await timed.queue.add("other", key="other")
    [other] = await timed.fake_worker.claim(10)
    await fill(timed, 6)
    leases = await timed.fake_worker.claim(10)
    assert len(leases) == 3
    await timed.queue.set_key_limits(whose, concurrency=None)
    await timed.fake_worker.settle(other)
    meta = f"{timed.fake_worker.base}:meta2"
    for lease in leases:
        assert await timed.names() == []
        assert await timed.store.ask("HEXISTS", meta, "key_limits") == 1
        await timed.fake_worker.settle(lease)
    # From now on no call checks limits or counts starts.
    assert await timed.store.ask("HEXISTS", meta, "key_limits") == 0
    assert [await timed.run() for _ in range(4)] == [["3"], ["4"], ["5"], []]


async def test_limits_that_are_set_during_runs_count_the_active_jobs(timed: Timed) -> None:
    await fill(timed, 4)
    leases = await timed.fake_worker.claim(10)
    assert len(leases) == 1
    await timed.queue.set_key_limits("k", concurrency=2)
    leases += await timed.fake_worker.claim(10)
    assert len(leases) == 2
    await timed.fake_worker.settle(leases[0])
    assert await timed.names() == ["2"]
    await timed.fake_worker.leave()


async def test_the_default_applies_to_keys_without_limits(timed: Timed) -> None:
    await timed.queue.set_key_limits(None, concurrency=2)
    await timed.queue.set_key_limits("own", concurrency=3)
    for key in ("a", "b", "own"):
        await timed.queue.add_bulk([(key, None, JobOptions(key=key)) for _ in range(5)])
    assert sorted(await timed.names()) == ["a", "a", "b", "b", "own", "own", "own"]
    await timed.queue.set_key_limits(None, concurrency=None)
    await timed.fake_worker.leave()
    assert sorted(await timed.names()) == ["a", "b", "own", "own", "own"]
    await timed.fake_worker.leave()


async def test_a_raised_default_wakes_workers_for_all_keys(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.add_bulk([("n", key, JobOptions(key=str(key))) for key in range(250) for _ in range(2)])
    async with worker_of(queue, gate, concurrency=600):
        for concurrency in (1, 2):
            await queue.set_key_limits(None, concurrency=concurrency)
            assert {(await gate.running()).data for _ in range(250)} == {*range(250)}
            assert gate.started.empty()
        gate.release()


async def test_limits_can_be_read(queue: AnyQueue) -> None:
    assert vars_of(await queue.get_key_limits("k")) == (None, None, None, None)
    await queue.set_key_limits("k", concurrency=2, rate_limit=RateLimit(5, 1.5), token_bucket=TokenBucket(10, 0.25))
    await queue.set_key_limits(None, concurrency=7)
    found = await queue.get_key_limits("k")
    assert vars_of(found) == (2, RateLimit(5, 1.5), TokenBucket(10, 0.25), None)
    assert (await queue.get_key_limits(None)).concurrency == 7
    await queue.set_key_limits("k", rate_limit=None)
    assert vars_of(await queue.get_key_limits("k")) == (2, None, TokenBucket(10, 0.25), None)
    await queue.pause_key("k", 60)
    paused = (await queue.get_key_limits("k")).paused_until
    assert paused is not None
    assert abs(paused - datetime.now(UTC) - timedelta(seconds=60)) < timedelta(seconds=20)


def vars_of(limits: Any) -> tuple[Any, ...]:
    return (limits.concurrency, limits.rate_limit, limits.token_bucket, limits.paused_until)


@pytest.mark.only_on("memory")
async def test_bad_limits_are_refused_before_anything_is_sent(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue:
        relay.calls.clear()
        bad: Any = queue
        bad_limits: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
            ("k", {}, TypeError, "needs at least one of"),
            ("k", {"concurrency": 0}, ValueError, "concurrency.*0"),
            ("k", {"concurrency": 1.5}, TypeError, "concurrency"),
            ("k", {"concurrency": True}, TypeError, "concurrency"),
            ("k", {"rate_limit": 5}, TypeError, "rate_limit"),
            ("k", {"rate_limit": TokenBucket(1, 1)}, TypeError, "rate_limit"),
            ("k", {"token_bucket": RateLimit(1, 1)}, TypeError, "token_bucket"),
            ("", {"concurrency": 1}, ValueError, "key"),
            (7, {"concurrency": 1}, TypeError, "key"),
        ]
        for key, limits, error, words in bad_limits:
            with pytest.raises(error, match=words):
                await bad.set_key_limits(key, **limits)
        bad_pauses: list[tuple[Any, Any, type[Exception]]] = [
            ("k", -1, ValueError),
            ("k", "5", TypeError),
            ("", 1, ValueError),
            (None, 1, TypeError),
        ]
        for key, seconds, error in bad_pauses:
            with pytest.raises(error):
                await bad.pause_key(key, seconds)
        assert relay.calls == []


# -- windows ----------------------------------------------------------------------------------------------------------


@WHOSE
async def test_a_window_limits_starts(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, concurrency=10, rate_limit=RateLimit(3, 60))
    await fill(timed, 7)
    await timed.queue.add("free", key="other")
    assert sorted(await timed.run()) == ["0", "1", "2", "free"]
    assert await timed.run() == []
    assert await counts(timed.queue) == {"completed": 4, "rate-limited": 1, "key-waiting": 3}
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["3", "4", "5"]
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["6"]


@WHOSE
async def test_regression_no_window_has_twice_the_permitted_starts(timed: Timed, whose: str | None) -> None:
    """A fixed window would permit max starts at its end and max again at the beginning of the next one."""
    await timed.queue.set_key_limits(whose, concurrency=100, rate_limit=RateLimit(10, 60))
    await fill(timed, 200)
    starts: list[int] = []
    for second in range(0, 300, 7):
        starts += [second] * len(await timed.run())
        await timed.clock.advance(7 * SECOND)
    for start in starts:
        assert sum(start <= other < start + 59 for other in starts) <= 10
    assert len(starts) >= 45


@WHOSE
async def test_the_window_applies_with_a_concurrency_of_one(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, rate_limit=RateLimit(2, 60))
    await fill(timed, 5)
    assert [await timed.run() for _ in range(4)] == [["0"], ["1"], [], []]
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run() for _ in range(3)] == [["2"], ["3"], []]


async def test_a_window_can_be_changed(timed: Timed) -> None:
    await timed.queue.set_key_limits("k", concurrency=10, rate_limit=RateLimit(1, 3_600))
    await fill(timed, 10)
    assert await timed.run() == ["0"]
    await timed.queue.set_key_limits("k", rate_limit=RateLimit(3, 3_600))
    assert await timed.run() == ["1", "2"]
    await timed.queue.set_key_limits("k", rate_limit=RateLimit(2, 3_600))
    assert await timed.run() == []
    await timed.clock.advance(HOUR + MINUTE)
    assert await timed.run() == ["3", "4"]
    await timed.queue.set_key_limits("k", rate_limit=None)
    assert await timed.run() == ["5", "6", "7", "8", "9"]


async def test_a_default_window_counts_each_key_separately(timed: Timed) -> None:
    await timed.queue.set_key_limits(None, concurrency=10, rate_limit=RateLimit(2, 60))
    for key in ("a", "b"):
        await timed.queue.add_bulk([(key, None, JobOptions(key=key)) for _ in range(5)])
    assert sorted(await timed.run()) == ["a", "a", "b", "b"]
    assert await counts(timed.queue) == {"completed": 4, "rate-limited": 2, "key-waiting": 4}


async def test_a_key_with_a_concurrency_of_its_own_has_the_default_window(timed: Timed) -> None:
    await timed.queue.set_key_limits(None, concurrency=10, rate_limit=RateLimit(2, 60))
    await timed.queue.set_key_limits("k", concurrency=4)
    await fill(timed, 5)
    assert await timed.run() == ["0", "1"]


async def test_a_key_with_a_window_of_its_own_has_the_default_bucket_and_concurrency(timed: Timed) -> None:
    await timed.queue.set_key_limits(None, concurrency=3, token_bucket=TokenBucket(2, 0.01))
    await timed.queue.set_key_limits("k", rate_limit=RateLimit(9, 60))
    await fill(timed, 5)
    assert await timed.names() == ["0", "1"]
    await timed.queue.set_key_limits("k", token_bucket=TokenBucket(9, 1))
    await timed.clock.advance(5 * SECOND)
    assert await timed.names() == ["2"]
    await timed.fake_worker.leave()


@WHOSE
async def test_expired_jobs_use_no_start(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, concurrency=10, rate_limit=RateLimit(1, 3_600))
    await fill(timed, 3, ttl=60)
    await timed.queue.add("live", key="k")
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["live"]


# -- buckets ----------------------------------------------------------------------------------------------------------


@WHOSE
async def test_each_job_pays_its_cost_from_the_bucket(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, concurrency=100, token_bucket=TokenBucket(10, 0.01))
    for name, cost in (("a", 4.0), ("b", 5.5), ("c", 1.0), ("d", 1.0)):
        await timed.queue.add(name, key="k", cost=cost)
    assert await timed.run() == ["a", "b"]
    assert await counts(timed.queue) == {"completed": 2, "rate-limited": 1, "key-waiting": 1}
    await timed.clock.advance(60 * SECOND)
    assert await timed.run() == ["c"]
    await timed.clock.advance(110 * SECOND)
    assert await timed.run() == ["d"]


@WHOSE
async def test_expired_jobs_cost_nothing(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, concurrency=10, token_bucket=TokenBucket(5, 0.001))
    await fill(timed, 3, ttl=60, cost=5)
    await timed.queue.add("live", key="k", cost=5)
    await timed.queue.add("next", key="k")
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["live"]
    assert await timed.run() == []


@WHOSE
async def test_a_bucket_never_exceeds_its_capacity(timed: Timed, whose: str | None) -> None:
    await timed.queue.set_key_limits(whose, concurrency=100, token_bucket=TokenBucket(3, 10))
    await fill(timed, 10)
    assert len(await timed.run()) >= 3
    await timed.clock.advance(HOUR)
    assert len(await timed.names(3)) == 3
    await timed.fake_worker.leave()


@WHOSE
async def test_a_cost_above_the_capacity_starts_with_a_full_bucket_and_leaves_debt(
    timed: Timed, whose: str | None
) -> None:
    await timed.queue.set_key_limits(whose, concurrency=100, token_bucket=TokenBucket(10, 0.01))
    await timed.queue.add("small", key="k", cost=1)
    await timed.queue.add("huge", key="k", cost=100)
    await timed.queue.add("last", key="k", cost=10)
    assert await timed.run() == ["small"]
    assert await timed.run() == []
    await timed.clock.advance(200 * SECOND)
    assert await timed.run() == ["huge"]
    await timed.clock.advance(9_000 * SECOND)
    assert await timed.run() == []
    await timed.clock.advance(1_200 * SECOND)
    assert await timed.run() == ["last"]


@WHOSE
async def test_regression_an_ordinary_cost_leaves_no_debt(timed: Timed, whose: str | None) -> None:
    """Released jobs pay only when they start again, so the bucket never goes below zero."""
    await timed.queue.set_key_limits(whose, concurrency=100, token_bucket=TokenBucket(2, 0.1))
    await fill(timed, 4)
    for _ in range(3):
        leases = await timed.fake_worker.claim(10)
        for lease in leases:
            await timed.fake_worker.settle(lease, "b")
        tokens = await timed.store.ask("HGET", f"{timed.fake_worker.base}:keybucket:k", "tokens")
        assert isinstance(tokens, bytes)
        assert int(tokens) >= 0
        await timed.clock.advance(10 * SECOND)
    assert await counts(timed.queue) == {"rate-limited": 1, "key-waiting": 3} or await timed.names()
    await timed.fake_worker.leave()


@pytest.mark.parametrize("slots", [1, 3, 100])
async def test_a_bucket_and_a_window_apply_together(timed: Timed, slots: int) -> None:
    await timed.queue.set_key_limits(
        "k", concurrency=100, rate_limit=RateLimit(3, 60), token_bucket=TokenBucket(100, 1)
    )
    await fill(timed, 6, cost=20)
    started = [name for _ in range(6) for name in await timed.run(slots)]
    assert started == ["0", "1", "2"]
    await timed.clock.advance(61 * SECOND)
    assert [name for _ in range(6) for name in await timed.run(slots)] == ["3", "4", "5"]


async def test_regression_an_add_never_changes_limits(timed: Timed) -> None:
    """Any mixture of adds to a key leaves its limits and counters unchanged."""
    await timed.queue.set_key_limits("k", concurrency=5, rate_limit=RateLimit(2, 3_600))
    await fill(timed, 2)
    assert await timed.run() == ["0", "1"]
    await timed.queue.add("a", key="k")
    await timed.queue.add("b", key="k", cost=7, priority=3)
    await timed.queue.add("c", key="k", delay=1)
    await timed.queue.add_bulk([("d", None, JobOptions(key="k", ttl=600, attempts=3))])
    assert await timed.run() == []
    found = await timed.queue.get_key_limits("k")
    assert (found.concurrency, found.rate_limit) == (5, RateLimit(2, 3_600))


async def test_extreme_costs_and_rates_break_nothing(queue: AnyQueue) -> None:
    await queue.set_key_limits("k", concurrency=5, token_bucket=TokenBucket(0.001, 0.001))
    job = await queue.add("n", 1, key="k", cost=10**12)
    await queue.add("n", 2, key="k")
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5):
        assert (await gate.running()).id == job.id
        gate.release()
        assert await job.result(10) == 1
    assert await counts(queue) == {"completed": 1, "rate-limited": 1}
    await queue.set_key_limits("k", token_bucket=TokenBucket(10**12, 10**12))
    gate = Gate()
    async with worker_of(queue, gate):
        gate.release()


# -- pauses -----------------------------------------------------------------------------------------------------------


async def test_regression_a_pause_stops_its_key(timed: Timed) -> None:
    await fill(timed, 3)
    await timed.queue.add("other", key="other")
    await timed.queue.pause_key("k", 60)
    assert await timed.run() == ["other"]
    assert await counts(timed.queue) == {"completed": 1, "rate-limited": 1, "key-waiting": 2}
    assert [job.name for job in await timed.queue.get_jobs("rate-limited")] == ["0"]
    assert [job.name for job in await timed.queue.get_jobs("key-waiting")] == ["1", "2"]
    first = await timed.queue.get_jobs("rate-limited")
    assert first[0].state == "rate-limited"
    await timed.queue.add("late", key="k", priority=0)
    assert await timed.run() == []
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run() for _ in range(4)] == [["0"], ["1"], ["2"], ["late"]]


async def test_a_pause_lets_the_active_job_of_the_key_end(timed: Timed) -> None:
    await fill(timed, 2)
    [lease] = await timed.fake_worker.claim()
    await timed.queue.pause_key("k", 60)
    assert await counts(timed.queue) == {"active": 1, "key-waiting": 1}
    assert await timed.fake_worker.settle(lease) is None
    assert await timed.names() == []
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["1"]


async def test_a_pause_can_be_shortened_and_ended(timed: Timed) -> None:
    await fill(timed, 3)
    await timed.queue.pause_key("k", 3_600)
    await timed.queue.pause_key("k", 60)
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["0"]
    await timed.queue.pause_key("k", 3_600)
    await timed.queue.pause_key("k", 0)
    assert await timed.run() == ["1"]
    assert (await timed.queue.get_key_limits("k")).paused_until is None


async def test_an_ended_pause_is_not_reported(timed: Timed) -> None:
    await timed.queue.pause_key("k", 60)
    assert (await timed.queue.get_key_limits("k")).paused_until is not None
    await timed.clock.advance(61 * SECOND)
    assert (await timed.queue.get_key_limits("k")).paused_until is None


async def test_an_empty_key_can_be_paused(timed: Timed) -> None:
    await timed.queue.pause_key("k", 60)
    await fill(timed, 1)
    assert await timed.run() == []
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["0"]


async def test_the_first_job_of_a_blocked_key_can_be_removed(timed: Timed) -> None:
    jobs = [await timed.queue.add(str(number), key="k") for number in range(4)]
    await timed.queue.pause_key("k", 60)
    await jobs[0].remove()
    assert await jobs[1].get_state() == "rate-limited"
    await jobs[1].revoke()
    await jobs[3].change_priority(0)
    await jobs[2].change_priority(5)
    assert [await job.get_state() for job in jobs[2:]] == ["key-waiting", "rate-limited"]
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run() for _ in range(2)] == [["3"], ["2"]]


# -- RateLimited ------------------------------------------------------------------------------------------------------


async def test_regression_rate_limited_uses_no_attempt_and_blocks_the_key(timed: Timed) -> None:
    await fill(timed, 2)
    await timed.queue.add("other", key="other")
    leases = await timed.fake_worker.claim(5)
    await timed.fake_worker.settle(next(lease for lease in leases if lease.name == "0"), "l", "60000")
    await timed.fake_worker.settle(next(lease for lease in leases if lease.name == "other"))
    assert await timed.names() == []
    job = (await timed.queue.get_jobs("rate-limited"))[0]
    assert (job.name, job.attempts_made, job.state, job.fence) == ("0", 0, "rate-limited", 1)
    assert (await timed.queue.get_key_limits("k")).paused_until is not None
    await timed.queue.add("third", key="third")
    assert await timed.run() == ["third"]
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run() for _ in range(2)] == [["0"], ["1"]]


async def test_a_handler_can_raise_rate_limited(queue: AnyQueue) -> None:
    seen: list[tuple[int, int]] = []

    async def handler(job: AnyJob) -> None:
        seen.append((job.data, job.fence))
        if job.data == 0 and job.fence < 3:
            raise RateLimited(0.05)
        assert job.attempts_made == 0

    async with worker_of(queue, handler, concurrency=5):
        jobs = await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(3)])
        await jobs[2].result(10)
        await jobs[0].refresh()
        assert (jobs[0].state, jobs[0].attempts_made, jobs[0].fence) == ("completed", 1, 3)
    assert seen == [(0, 1), (0, 2), (0, 3), (1, 1), (2, 1)]
    kinds = [kind for kind, _ in await job_events(queue, jobs[0].id)]
    assert kinds.count("limited") == 2
    assert "retrying" not in kinds


async def test_a_rate_limited_job_never_starts_early(queue: AnyQueue) -> None:
    starts: list[Any] = []

    async def handler(job: AnyJob) -> None:
        starts.append(job.processed_at)
        if job.fence == 1:
            raise RateLimited(0.3)

    async with worker_of(queue, handler):
        await (await queue.add("n", key="k")).result(10)
    assert starts[1] - starts[0] >= timedelta(seconds=0.3)
