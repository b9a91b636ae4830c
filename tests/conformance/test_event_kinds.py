"""Every kind of event names its job or key and has its detail. Every change of state publishes an event."""

from __future__ import annotations

from typing import Any, cast, get_args

from glidemq_async import Deduplication, JobOptions, RateLimited, RetryLater
from glidemq_async.queues.events import EventKind
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, ended, history, job_events, worker_of
from tests.support.stores import RunningStore


async def test_every_kind_of_the_catalogue_can_happen(queue: AnyQueue, store: RunningStore) -> None:
    gate = Gate()

    async def work(job: AnyJob) -> Any:
        if job.fence == 1 and job.data in FIRST:
            raise FIRST[job.data]
        await job.update_progress(1)
        await job.update_data("held")
        return await gate(job)

    async with worker_of(queue, work, concurrency=4, shutdown_timeout=0):
        for data in FIRST:
            await queue.add("n", data, attempts=2)
        revoked = [await gate.running() for _ in FIRST]
        for job in revoked:
            await queue.revoke(job.id)
            await ended(job)
        await queue.add("n", "handed back")
        await gate.running()
    fake_worker = FakeWorker(queue, store)
    (held,) = await fake_worker.claim()
    await fake_worker.vanish(held)
    await fake_worker.sweep()
    (held,) = await fake_worker.claim()
    await fake_worker.settle(held)
    await store.ask("DEL", f"glide:{{{queue.name}}}:job:{(await queue.add('n', job_id='own')).id}")
    assert await fake_worker.claim() == []
    await fake_worker.leave()
    await queue.add("n", deduplication=Deduplication("d"))
    await queue.add("n", deduplication=Deduplication("d"))
    later = await queue.add("n", delay=60)
    await later.change_delay(50)
    await later.promote()
    await later.remove()
    await queue.pause_key("k", 60)
    await queue.pause_key("k", 0)
    await queue.pause()
    await queue.resume()
    await queue.drain()
    await queue.clean()
    kinds = {event.kind for event in await history(queue)}
    assert kinds == set(get_args(EventKind)) - PROVEN_ELSEWHERE


PROVEN_ELSEWHERE = {
    *("obliterated", "dead-lettered", "skipped", "written", "waiting-children"),
    *("suspended", "signalled", "lost"),
}
"""Other kinds are in test_obliterating, test_dead_letters, test_schedulers, test_writes, test_flows and
test_suspending.
"""

FIRST: dict[str, Exception] = {
    "later": RetryLater(0.01),
    "limited": RateLimited(0.01),
    "failed": ValueError("first"),
}


async def test_events_have_their_details(queue: AnyQueue) -> None:
    job = await queue.add("n", deduplication=Deduplication("d"), priority=3)
    await queue.add("n", deduplication=Deduplication("d"))
    await queue.add("n", job_id=job.id)
    await job.change_priority(5)
    assert await job_events(queue, job.id) == [
        ("added", "n"), ("duplicate", "d"), ("duplicate", ""), ("changed", "priority 5"),
    ]  # fmt: skip
    await queue.pause_key("k", 60)
    await queue.pause_key("k", 0)
    assert await job_events(queue, "k") == [("key-paused", "60000"), ("key-resumed", "0")]


async def test_a_replaced_job_has_a_removed_event(queue: AnyQueue) -> None:
    first = await queue.add("n", delay=60, deduplication=Deduplication("d", mode="debounce"))
    await queue.add("n", delay=60, deduplication=Deduplication("d", mode="debounce"))
    assert ("removed", "replaced") in await job_events(queue, first.id)


async def test_a_delayed_job_without_a_record_has_an_event_when_it_is_dropped(
    queue: AnyQueue, store: RunningStore
) -> None:
    base = f"glide:{{{queue.name}}}"
    job = await queue.add("n", delay=60)
    await store.ask("DEL", f"{base}:job:{job.id}")
    [member] = cast("list[bytes]", await store.ask("ZRANGE", f"{base}:scheduled", 0, -1))
    await store.ask("ZADD", f"{base}:scheduled", 1, member.decode())
    fake_worker = FakeWorker(queue, store)
    assert await fake_worker.claim() == []
    assert ("dropped", "missing") in await job_events(queue, job.id)
    await fake_worker.leave()


async def test_a_run_without_a_record_has_an_event_when_its_worker_leaves(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    job = await queue.add("n", job_id="own")
    await fake_worker.claim()
    await store.ask("DEL", f"glide:{{{queue.name}}}:job:{job.id}")
    await fake_worker.leave()
    assert ("dropped", "missing") in await job_events(queue, job.id)


async def test_an_interrupted_claim_has_a_returned_event(queue: AnyQueue, store: RunningStore) -> None:
    base = f"glide:{{{queue.name}}}"
    job = await queue.add("n", job_id="own")
    fake_worker = FakeWorker(queue, store)
    await fake_worker.renew()
    await store.ask("XREADGROUP", "GROUP", "workers", fake_worker.name, "STREAMS", f"{base}:fifo", ">")
    rows = await store.ask("XPENDING", f"{base}:fifo", "workers", "-", "+", 1)
    entry = cast("list[list[bytes]]", rows)[0][0].decode()
    await store.ask("XCLAIM", f"{base}:fifo", "workers", fake_worker.name, 0, entry, "IDLE", 60_000, "JUSTID")
    assert await fake_worker.sweep() == [job.id]
    assert [kind for kind, _ in await job_events(queue, job.id)] == ["added", "returned"]
    await fake_worker.leave()


async def test_a_bulk_removal_has_one_event(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(keep_completed=True)) for number in range(5)])
    await queue.drain()
    assert [event.kind for event in await history(queue)] == ["added"] * 5 + ["drained"]
