"""Deduplication and job ids: several adds with the same meaning store one job. The times are real."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import Deduplication, JobFailed, JobNotFound, JobOptions
from tests.support.clocked_queue import HOUR, MINUTE, SECOND, Timed
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, counts, echo, ended, job_events, worker_of
from tests.support.waiting_jobs import waits_for_results

SIMPLE = Deduplication("d")


async def leaves_nothing(timed: Timed) -> None:
    """Check that no key of the deduplication is left."""
    left = [key for key in await timed.store.keys() if ":dedup" in key]
    assert left == []


# -- simple -----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_an_add_is_a_duplicate_until_the_first_job_has_ended(queue: AnyQueue) -> None:
    first = await queue.add("n", 1, deduplication=SIMPLE)
    second = await queue.add("n", 2, deduplication=SIMPLE)
    assert (first.outcome, second.outcome) == ("added", "duplicate")
    assert (second.id, second.data) == (first.id, 1)
    assert (await queue.add("n", 3, deduplication=Deduplication("e"))).outcome == "added"
    gate = Gate()
    async with worker_of(queue, gate, concurrency=2):
        await gate.running()
        await gate.running()
        assert (await queue.add("n", 2, deduplication=SIMPLE)).outcome == "duplicate"
        gate.release()
        await ended(first)
        assert (await queue.add("n", 4, deduplication=SIMPLE)).outcome == "added"
    assert ("duplicate", "d") in await job_events(queue, first.id)


@pytest.mark.parametrize("options", [{"priority": 2}, {"lifo": True}, {"key": "k"}, {"delay": 60}], ids=str)
async def test_deduplication_applies_to_every_kind_of_job(queue: AnyQueue, options: dict[str, Any]) -> None:
    first = await queue.add("n", 1, deduplication=SIMPLE, **options)
    again = await queue.add("n", 2, deduplication=SIMPLE, **options)
    assert (again.outcome, again.id, again.state) == ("duplicate", first.id, first.state)
    assert await queue.count() == 1


async def test_deduplication_applies_inside_one_call(queue: AnyQueue) -> None:
    options = [JobOptions(deduplication=Deduplication(name)) for name in "aabab"]
    jobs = await queue.add_bulk([("n", number, given) for number, given in enumerate(options)])
    assert [job.outcome for job in jobs] == ["added", "duplicate", "added", "duplicate", "duplicate"]
    assert [job.id for job in jobs] == [jobs[0].id, jobs[0].id, jobs[2].id, jobs[0].id, jobs[2].id]


async def test_only_one_of_many_concurrent_adds_is_stored(queue: AnyQueue) -> None:
    jobs = await asyncio.gather(*(queue.add("n", number, deduplication=SIMPLE) for number in range(50)))
    assert sorted(job.outcome for job in jobs) == ["added"] + ["duplicate"] * 49
    assert len({job.id for job in jobs}) == 1


async def test_every_end_frees_the_id(timed: Timed) -> None:
    """Completed, failed, removed, revoked, expired, stalled too often, not kept at all."""
    queue, fake_worker = timed.queue, timed.fake_worker
    for code in ("c", "f"):
        await queue.add("n", deduplication=SIMPLE)
        [lease] = await fake_worker.claim()
        await fake_worker.settle(lease, code)
    await (await queue.add("n", deduplication=SIMPLE)).remove()
    await (await queue.add("n", deduplication=SIMPLE)).revoke()
    await queue.add("n", deduplication=SIMPLE, ttl=60)
    await timed.clock.advance(2 * MINUTE)
    assert await timed.names() == []
    await queue.add("n", deduplication=SIMPLE, ttl=60)
    await timed.clock.advance(2 * MINUTE)
    await fake_worker.sweep()
    job = await queue.add("n", deduplication=SIMPLE)
    [lease] = await fake_worker.claim()
    await fake_worker.vanish(lease)
    await fake_worker.sweep(max_stalled=0)
    await job.refresh()
    assert job.failed_reason == "stalled"
    await queue.add("n", deduplication=SIMPLE)
    [lease] = await fake_worker.claim()
    await fake_worker.settle(lease, "c", "0 -1")
    assert (await queue.add("n", deduplication=SIMPLE)).outcome == "added"
    [lease] = await fake_worker.claim()
    await queue.remove(lease.id)
    await leaves_nothing(timed)


async def test_a_retry_does_not_free_the_id(timed: Timed) -> None:
    first = await timed.queue.add("n", deduplication=SIMPLE, attempts=3)
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "60000 no")
    again = await timed.queue.add("n", deduplication=SIMPLE)
    assert (again.outcome, again.id, again.state) == ("duplicate", first.id, "delayed")


async def test_a_ttl_frees_the_id_earlier(timed: Timed) -> None:
    once = Deduplication("d", ttl=60)
    first = await timed.queue.add("a", deduplication=once)
    await timed.clock.advance(50 * SECOND)
    assert (await timed.queue.add("b", deduplication=once)).outcome == "duplicate"
    await timed.clock.advance(11 * SECOND)
    second = await timed.queue.add("c", deduplication=once)
    assert (second.outcome, await first.get_state()) == ("added", "waiting")
    assert (await timed.queue.add("d", deduplication=once)).id == second.id
    assert await timed.run(1) == ["a"]
    assert (await timed.queue.add("e", deduplication=once)).id == second.id, (
        "the end of the old job must not free the id of the new one"
    )
    assert await timed.run() == ["c"]
    await leaves_nothing(timed)


async def fail_one(timed: Timed, **options: Any) -> AnyJob:
    """A job that failed for good."""
    job = await timed.queue.add("n", **options)
    [lease] = await timed.fake_worker.claim()
    assert await timed.fake_worker.settle(lease, "f") is None
    return job


@pytest.mark.parametrize("way", ["retry", "retry_jobs", "replay"])
async def test_regression_a_job_that_is_retried_by_hand_owns_its_id_again(timed: Timed, way: str) -> None:
    first = await fail_one(timed, deduplication=SIMPLE)
    match way:
        case "retry":
            await first.retry()
        case "retry_jobs":
            assert await timed.queue.retry_jobs() == 1
        case _:
            assert await timed.queue.replay_dead_letter_jobs() == 1
    again = await timed.queue.add("n", deduplication=SIMPLE)
    assert (again.outcome, again.id) == ("duplicate", first.id)
    assert await timed.run() == ["n"]
    assert (await timed.queue.add("n", deduplication=SIMPLE)).outcome == "added"
    await timed.run()
    await leaves_nothing(timed)


async def test_a_retried_job_does_not_take_its_id_from_another_owner(timed: Timed) -> None:
    first = await fail_one(timed, deduplication=SIMPLE)
    second = await timed.queue.add("n", deduplication=SIMPLE)
    assert second.outcome == "added"
    await first.retry()
    assert (await timed.queue.add("n", deduplication=SIMPLE)).id == second.id
    await second.remove()
    assert (await timed.queue.add("n", deduplication=SIMPLE)).outcome == "added", (
        "the first job must not inherit the id"
    )
    assert await counts(timed.queue) == {"waiting": 2}


async def test_one_of_two_retried_jobs_owns_the_id(timed: Timed) -> None:
    jobs = [await fail_one(timed, deduplication=SIMPLE) for _ in range(2)]
    assert await timed.queue.retry_jobs() == 2
    again = await timed.queue.add("n", deduplication=SIMPLE)
    assert (again.outcome, again.id) == ("duplicate", jobs[1].id)
    assert await timed.run() == ["n", "n"]
    await leaves_nothing(timed)


async def test_a_retried_job_owns_its_id_no_longer_than_its_ttl(timed: Timed) -> None:
    once = Deduplication("d", ttl=60)
    first = await fail_one(timed, deduplication=once)
    await timed.clock.advance(30 * SECOND)
    await first.retry()
    assert (await timed.queue.add("n", deduplication=once)).id == first.id
    await timed.clock.advance(31 * SECOND)
    second = await timed.queue.add("n", deduplication=once)
    assert second.outcome == "added"
    for lease in await timed.fake_worker.claim(2):
        await timed.fake_worker.settle(lease, "f")
    await timed.clock.advance(61 * SECOND)
    await first.retry()
    assert (await timed.queue.add("n", deduplication=once)).outcome == "added"
    await timed.run()
    await leaves_nothing(timed)


async def test_a_retried_job_leaves_a_throttle_as_it_is(timed: Timed) -> None:
    hourly = Deduplication("d", ttl=3_600, mode="throttle")
    first = await fail_one(timed, deduplication=SIMPLE)
    second = await timed.queue.add("n", deduplication=hourly)
    await second.remove()
    await first.retry()
    assert (await timed.queue.add("n", deduplication=hourly)).outcome == "duplicate"
    assert await timed.run() == ["n"]
    third = await fail_one(timed, deduplication=Deduplication("e", ttl=60, mode="throttle"))
    await timed.clock.advance(61 * SECOND)
    await third.retry()
    assert (await timed.queue.add("n", deduplication=Deduplication("e", ttl=60, mode="throttle"))).outcome == "added"


async def test_a_retried_job_that_never_started_is_replaced_by_a_debounced_one(timed: Timed) -> None:
    burst = Deduplication("d", ttl=10, mode="debounce")
    first = await timed.queue.add("a", deduplication=burst)
    await first.revoke()
    await first.retry()
    await timed.queue.add("b", deduplication=burst)
    await timed.clock.advance(11 * SECOND)
    assert await timed.run() == ["b"]


async def test_a_record_deleted_by_hand_does_not_block_the_id(timed: Timed) -> None:
    first = await timed.queue.add("n", deduplication=SIMPLE)
    await timed.store.ask("DEL", f"{timed.fake_worker.base}:job:{first.id}")
    assert (await timed.queue.add("n", deduplication=SIMPLE)).outcome == "added"
    assert await timed.run() == ["n"]
    await leaves_nothing(timed)


# -- throttle ---------------------------------------------------------------------------------------------------------


async def test_throttle_counts_from_the_add_even_if_the_job_is_gone(timed: Timed) -> None:
    hourly = Deduplication("d", ttl=3_600, mode="throttle")
    first = await timed.queue.add("a", 1, deduplication=hourly)
    assert (await timed.queue.add("b", 2, deduplication=hourly)).outcome == "duplicate"
    assert await timed.run() == ["a"]
    done = await timed.queue.add("c", 3, deduplication=hourly)
    assert (done.outcome, done.id, done.state, done.data) == ("completed", first.id, "completed", 1)
    await timed.clock.advance(HOUR - MINUTE)
    assert (await timed.queue.add("d", 4, deduplication=hourly)).outcome == "completed"
    await timed.clock.advance(2 * MINUTE)
    assert (await timed.queue.add("e", 5, deduplication=hourly)).outcome == "added"


@pytest.mark.parametrize("end", ["failed", "removed", "not kept"])
async def test_throttle_continues_after_other_ends(timed: Timed, end: str) -> None:
    hourly = Deduplication("d", ttl=3_600, mode="throttle")
    first = await timed.queue.add("a", deduplication=hourly)
    [lease] = await timed.fake_worker.claim()
    if end == "removed":
        await first.remove()
    else:
        await timed.fake_worker.settle(lease, *(("f", ";retries_exhausted;no") if end == "failed" else ("c", "0 -1")))
    again = await timed.queue.add("b", deduplication=hourly)
    assert (again.outcome, again.id) == ("duplicate", first.id)
    assert await timed.names() == []
    await timed.clock.advance(HOUR + MINUTE)
    assert (await timed.queue.add("c", deduplication=hourly)).outcome == "added"


async def test_regression_a_duplicate_of_a_removed_job_is_reported_as_gone(queue: AnyQueue) -> None:
    hourly = Deduplication("d", ttl=3_600, mode="throttle")
    first = await queue.add("first", 1, deduplication=hourly)
    assert not first.gone
    await first.remove()
    again, other = await queue.add_bulk([("again", 2, JobOptions(deduplication=hourly)), ("other", 3)])
    assert (again.outcome, again.id, again.gone, other.gone) == ("duplicate", first.id, True, False)
    assert (again.queue, repr(again)) == (queue.name, f"<Job {first.id} of {queue.name!r}, gone>")
    for field in ("name", "data", "state", "options", "headers", "key", "priority", "created_at", "attempts_made",
                  "progress", "return_value", "dead_letter", "failed_reason", "data_size", "stacktrace"):  # fmt: skip
        with pytest.raises(JobNotFound, match=f"job '{first.id}': no such job"):
            getattr(again, field)
    assert not hasattr(other, "no_such_field")
    for call in (again.result(5), again.refresh(), again.retry(), again.remove(), again.log("x")):
        with pytest.raises(JobNotFound):
            await call
    with pytest.raises(JobNotFound):
        await queue.add_and_wait("n", 3, deduplication=hourly, wait_timeout=5)


async def test_a_removed_job_can_be_added_again(queue: AnyQueue) -> None:
    hourly = Deduplication("d", ttl=3_600, mode="throttle")
    await (await queue.add("first", job_id="mine", deduplication=hourly)).remove()
    again = await queue.add("again", deduplication=hourly)
    assert again.gone
    await queue.add("second", 2, job_id="mine")
    await again.refresh()
    assert (again.gone, again.name, again.data, again.outcome) == (False, "second", 2, "duplicate")


async def test_throttle_leaves_no_permanent_key(timed: Timed) -> None:
    await timed.queue.add("a", deduplication=Deduplication("d", ttl=10, mode="throttle"))
    key = f"{timed.fake_worker.base}:dedup:d"
    left = (await timed.store.lifetimes([key]))[key]
    assert 10_000 < left <= 10_000 + 2 * MINUTE


async def test_waiting_for_a_completed_duplicate_gives_its_result(queue: AnyQueue) -> None:
    hourly = Deduplication("d", ttl=3_600, mode="throttle")
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", 1, deduplication=hourly, wait_timeout=10) == 1
        assert await queue.add_and_wait("n", 2, deduplication=hourly, wait_timeout=10) == 1


# -- debounce ---------------------------------------------------------------------------------------------------------


async def test_debounce_runs_the_last_job_of_a_burst(timed: Timed) -> None:
    burst = Deduplication("d", ttl=10, mode="debounce")
    jobs: list[AnyJob] = []
    for number in range(5):
        jobs.append(await timed.queue.add(str(number), number, deduplication=burst))
        await timed.clock.advance(6 * SECOND)
        assert await timed.names() == []
    assert [job.outcome for job in jobs] == ["added"] * 5
    assert [await timed.queue.get_job(job.id) for job in jobs[:4]] == [None] * 4
    assert await counts(timed.queue) == {"delayed": 1}
    await timed.clock.advance(6 * SECOND)
    assert await timed.run() == ["4"]
    assert ("removed", "replaced") in await job_events(timed.queue, jobs[0].id)
    await leaves_nothing(timed)


async def test_a_delayed_record_deleted_by_hand_starts_no_later_job_early(timed: Timed) -> None:
    first = await timed.queue.add("old", job_id="mine", delay=60)
    await timed.store.ask("DEL", f"{timed.fake_worker.base}:job:{first.id}")
    await timed.queue.add("new", job_id="mine", delay=600)
    await timed.clock.advance(2 * MINUTE)
    assert await timed.names() == []
    await timed.clock.advance(10 * MINUTE)
    assert await timed.run() == ["new"]
    assert await timed.run() == []


@pytest.mark.parametrize("options", [{"delay": 0}, {"delay": 0, "priority": 3}, {"delay": 0, "lifo": True}], ids=str)
async def test_debounce_replaces_a_waiting_job(timed: Timed, options: dict[str, Any]) -> None:
    burst = Deduplication("d", mode="debounce")
    for name in "abc":
        await timed.queue.add(name, deduplication=burst, **options)
    assert await timed.run() == ["c"]


async def test_regression_debounce_in_the_line_of_a_key_does_not_block_the_key(timed: Timed) -> None:
    burst = Deduplication("d", mode="debounce")
    await timed.queue.add("first", key="k")
    for name in "abc":
        await timed.queue.add(name, key="k", delay=0, deduplication=burst)
    await timed.queue.add("last", key="k")
    assert [await timed.run() for _ in range(4)] == [["first"], ["c"], ["last"], []]


async def test_debounce_of_an_active_job_adds_another_one(timed: Timed) -> None:
    burst = Deduplication("d", ttl=10, mode="debounce")
    await timed.queue.add("a", deduplication=burst)
    await timed.clock.advance(11 * SECOND)
    [lease] = await timed.fake_worker.claim()
    second = await timed.queue.add("b", deduplication=burst)
    assert second.outcome == "added"
    assert await timed.fake_worker.settle(lease) is None
    third = await timed.queue.add("c", deduplication=burst)
    assert await timed.queue.get_job(second.id) is None
    await timed.clock.advance(11 * SECOND)
    assert await timed.run() == ["c"]
    assert await third.get_state() == "completed"


async def test_debounce_of_an_ended_job_adds_another_one(timed: Timed) -> None:
    burst = Deduplication("d", ttl=10, mode="debounce")
    first = await timed.queue.add("a", deduplication=burst)
    await timed.clock.advance(11 * SECOND)
    assert await timed.run() == ["a"]
    assert (await timed.queue.add("b", deduplication=burst)).outcome == "added"
    assert await first.get_state() == "completed"


async def test_debounce_uses_the_delay_of_the_new_job(timed: Timed) -> None:
    await timed.queue.add("a", delay=60, deduplication=Deduplication("d", ttl=10, mode="debounce"))
    await timed.clock.advance(20 * SECOND)
    assert await timed.names() == []
    await timed.clock.advance(41 * SECOND)
    assert await timed.run() == ["a"]


async def test_a_client_that_waits_for_a_replaced_job_is_notified(queue: AnyQueue) -> None:
    burst = Deduplication("d", ttl=60, mode="debounce")
    first = await queue.add("a", deduplication=burst)
    waiting = asyncio.create_task(first.result(10))
    await waits_for_results(queue)
    await queue.add("b", deduplication=burst)
    with pytest.raises(JobNotFound):
        await waiting


async def test_regression_an_add_with_a_taken_id_replaces_no_job(timed: Timed) -> None:
    """The add is a duplicate by its job_id, so it must not replace the debounced job."""
    burst = Deduplication("d", ttl=10, mode="debounce")
    other = await timed.queue.add("other", job_id="taken")
    pending = await timed.queue.add("pending", deduplication=burst)
    refused = await timed.queue.add("refused", job_id="taken", deduplication=burst)
    assert (refused.outcome, refused.id) == ("duplicate", other.id)
    assert await pending.get_state() == "delayed"
    await timed.clock.advance(11 * SECOND)
    assert sorted(await timed.run()) == ["other", "pending"]


async def test_debounce_with_the_same_job_id_replaces_the_job(timed: Timed) -> None:
    burst = Deduplication("d", ttl=10, mode="debounce")
    await timed.queue.add("a", 1, job_id="mine", deduplication=burst)
    second = await timed.queue.add("b", 2, job_id="mine", deduplication=burst)
    assert (second.outcome, second.id) == ("added", "mine")
    await timed.clock.advance(11 * SECOND)
    assert await timed.run() == ["b"]


async def test_debounce_inside_one_call_keeps_the_last_job(timed: Timed) -> None:
    burst = Deduplication("d", ttl=10, mode="debounce")
    await timed.queue.add_bulk([(str(number), None, JobOptions(deduplication=burst)) for number in range(5)])
    assert await counts(timed.queue) == {"delayed": 1}
    await timed.clock.advance(11 * SECOND)
    assert await timed.run() == ["4"]


# -- job ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_an_id_is_unique(queue: AnyQueue) -> None:
    first = await queue.add("n", 1, job_id="mine")
    again = await queue.add("n", 2, job_id="mine")
    assert (first.outcome, again.outcome, again.data) == ("added", "duplicate", 1)
    async with worker_of(queue, echo):
        await ended(first)
        done = await queue.add("n", 3, job_id="mine")
        assert (done.outcome, done.state, done.return_value) == ("completed", "completed", 1)
        assert await queue.add_and_wait("n", 4, job_id="mine", wait_timeout=10) == 1
    await first.remove()
    assert (await queue.add("n", 5, job_id="mine")).outcome == "added"


@pytest.mark.parametrize("options", [{"priority": 2}, {"lifo": True}, {"key": "k"}, {"delay": 60}], ids=str)
async def test_an_id_is_unique_among_all_kinds(queue: AnyQueue, options: dict[str, Any]) -> None:
    await queue.add("n", 1, job_id="mine", **options)
    kinds: list[dict[str, Any]] = [{}, {"priority": 1}, {"lifo": True}, {"key": "k"}, {"delay": 9}]
    for others in kinds:
        assert (await queue.add("n", 2, job_id="mine", **others)).outcome == "duplicate"
    assert await queue.count() == 1


@pytest.mark.parametrize("options", [{}, {"priority": 2}, {"lifo": True}, {"key": "k"}, {"delay": 60}], ids=str)
@pytest.mark.parametrize("way", ["removed", "revoked"])
async def test_regression_an_id_that_is_free_again_runs_once(timed: Timed, options: dict[str, Any], way: str) -> None:
    """The first jobs must leave nothing in any line that would start the last one twice, or early."""
    for _ in range(3):
        job = await timed.queue.add("old", job_id="mine", **options)
        if way == "revoked":
            assert await job.revoke() is True
        await job.remove()
    later: dict[str, Any] = {**options, "delay": 600}
    await timed.queue.add("new", job_id="mine", **later)
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == []
    await timed.clock.advance(10 * MINUTE)
    assert await timed.run() == ["new"]
    assert await timed.run() == []


async def test_the_id_of_a_failed_job_stays_taken(queue: AnyQueue) -> None:
    async def fail(job: AnyJob) -> None:
        raise ValueError("no")

    async with worker_of(queue, fail):
        await ended(await queue.add("n", 1, job_id="mine"))
        again = await queue.add("n", 2, job_id="mine")
        assert (again.outcome, again.state) == ("duplicate", "failed")
        with pytest.raises(JobFailed):
            await again.result(10)


async def test_both_the_id_and_the_deduplication_are_checked(queue: AnyQueue) -> None:
    first = await queue.add("n", 1, job_id="a", deduplication=SIMPLE)
    assert (await queue.add("n", 2, job_id="b", deduplication=SIMPLE)).id == first.id
    assert (await queue.add("n", 3, job_id="a", deduplication=Deduplication("e"))).id == first.id
    assert (await queue.add("n", 4, deduplication=Deduplication("e"))).outcome == "added"
    assert await queue.count() == 2


async def test_regression_debounce_leaves_a_job_that_has_run(queue: AnyQueue) -> None:
    burst = Deduplication("d", ttl=0.05, mode="debounce")

    async def fail_first(job: AnyJob) -> Any:
        if job.attempts_made == 0 and job.data == "first":
            raise ValueError("no")
        return job.data

    async with worker_of(queue, fail_first) as worker:
        retrying = Heard(worker, "retrying")
        first = await queue.add("n", "first", attempts=2, backoff=0.5, deduplication=burst)
        await retrying.next()
        second = await queue.add("n", "second", deduplication=burst)
        assert second.outcome == "added"
        assert [await first.result(10), await second.result(10)] == ["first", "second"]


async def test_regression_an_expired_job_does_not_block_an_add(timed: Timed) -> None:
    once = Deduplication("d")
    late = await timed.queue.add("n", 1, ttl=1, deduplication=once)
    await timed.clock.advance(2 * SECOND)
    again = await timed.queue.add("n", 2, deduplication=once)
    assert (again.outcome, again.id != late.id) == ("added", True)
    assert (await timed.queue.add("n", 3, deduplication=once)).id == again.id


async def test_jobs_added_and_replaced_in_one_call_leave_nothing_after_a_clock_change(timed: Timed) -> None:
    burst = JobOptions(deduplication=Deduplication("d", ttl=5, mode="debounce"))
    await timed.clock.advance(SECOND)
    await timed.queue.add_bulk([("n", number, burst) for number in range(3)])
    assert len([key for key in await timed.store.keys() if ":job:" in key]) == 1
