"""Each reason why a job does not run has its gate and its sentence."""

from __future__ import annotations

import pytest

from glidemq_async import (
    Deduplication,
    Explanation,
    FlowJob,
    FlowProducer,
    GlideMQ,
    JobNotFound,
    JobOptions,
    RateLimit,
    RateLimited,
    TokenBucket,
    UnrecoverableError,
)
from tests.support.clocked_queue import SECOND, Timed
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, ended, idle, listening, worker_of


def kinds(found: Explanation) -> list[str]:
    """Return the kinds of the gates, without the gate of a queue without workers."""
    return [gate.kind for gate in found.gates if gate.kind != "no-worker"]


@pytest.mark.everywhere
async def test_the_next_job_has_no_gate_and_the_others_are_behind_it(queue: AnyQueue) -> None:
    jobs = [await queue.add("job") for _ in range(3)]
    last = await queue.add("last", priority=1)
    found = [await queue.explain(job.id) for job in [*jobs, last]]
    assert [kinds(one) for one in found] == [[], ["behind"], ["behind"], ["behind"]]
    assert [one.gates[-1].count for one in found[1:]] == [1, 2, 3]
    assert [one.is_next for one in found] == [True, False, False, False]
    assert found[3].gates[-1].text == "waits for its turn: about 3 jobs start before it"


async def test_a_job_that_does_not_exist_is_not_explained(queue: AnyQueue) -> None:
    with pytest.raises(JobNotFound, match="has no job 'x': it was removed, or never added"):
        await queue.explain("x")


async def test_a_pause_is_the_first_gate(queue: AnyQueue) -> None:
    job = await queue.add("job")
    await queue.pause()
    found = await queue.explain(job.id)
    assert kinds(found) == ["paused"]
    assert found.summary.startswith(f"Job {job.id} waits because the queue is paused since ")
    assert found.gates[1].kind == "no-worker"
    await queue.resume()
    assert kinds(await queue.explain(job.id)) == []


async def test_limits_of_the_queue_hold_jobs_back(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.set_global_concurrency(1)
    await queue.set_global_rate_limit(RateLimit(1, 60))
    async with worker_of(queue, gate, concurrency=5):
        running, job = await queue.add("job"), await queue.add("job")
        await gate.running()
        window, limit = (await queue.explain(job.id)).gates
        assert (window.kind, window.count) == ("window", 1)
        assert window.until is not None
        assert (limit.kind, limit.count) == ("queue-limit", 1)
        assert limit.text == "waits because 1 of 1 allowed jobs of the queue run"
        found = (await queue.explain(running.id)).gates[0]
        assert found.kind == "running"
        assert found.since is not None
        assert found.by == (await queue.get_workers())[0].name
        gate.release()
        await ended(running)
        await queue.remove_global_rate_limit()
        await ended(job)
    assert [gate.kind for gate in (await queue.explain(job.id)).gates] == ["ended"]


async def test_limits_of_a_key_hold_its_jobs_back(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.set_key_limits("k", rate_limit=RateLimit(1, 60), token_bucket=TokenBucket(1, 0.001))
    async with worker_of(queue, gate, concurrency=5):
        first, second = await queue.add("job", key="k"), await queue.add("job", key="k")
        await gate.running()
        await queue.pause_key("k", 60)
        found = {one.kind: one for one in (await queue.explain(second.id)).gates}
        assert list(found) == ["key-paused", "key-busy", "window", "bucket"]
        busy = found["key-busy"]
        assert (busy.by, busy.count) == (first.id, 1)
        assert busy.since is not None
        assert all(found[kind].until is not None for kind in ("key-paused", "window", "bucket"))
        third = await queue.add("job", key="k")
        assert (await queue.explain(third.id)).gates[-1].kind == "behind"
        gate.release()
        await ended(first)
    await queue.drain()
    await queue.pause_key("k", 0)


async def test_the_jobs_before_a_job_of_a_long_line_are_counted(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk([("job", number, JobOptions(key="k")) for number in range(100)])
    for number in (1, 50, 99):
        gates = {gate.kind: gate for gate in (await queue.explain(jobs[number].id)).gates}
        assert gates["behind"].count == number


async def test_the_bucket_of_a_key_pays_for_the_first_job_that_has_not_expired(timed: Timed) -> None:
    """The long ids let the server store the first two jobs of the key and the following ones in different places."""
    await timed.queue.set_key_limits("k", token_bucket=TokenBucket(10, 1))
    await timed.queue.add("first", key="k", cost=10)
    assert await timed.run() == ["first"]
    for number in range(4):
        await timed.queue.add("expired", key="k", ttl=1, cost=1, job_id=str(number) * 100)
    job = await timed.queue.add("job", key="k", cost=8)
    await timed.clock.advance(4 * SECOND)
    assert "bucket" in kinds(await timed.queue.explain(job.id))
    await timed.clock.advance(4 * SECOND)
    assert "bucket" not in kinds(await timed.queue.explain(job.id))


async def test_a_job_of_the_key_that_waits_for_its_next_attempt_holds_the_key(queue: AnyQueue) -> None:
    async def fail(job: AnyJob) -> None:
        raise ValueError(job.name)

    async with worker_of(queue, fail) as worker:
        retrying = Heard(worker, "retrying")
        first = await queue.add("job", key="k", attempts=2, backoff=3600)
        await retrying.next()
        second = await queue.add("job", key="k")
        (busy,) = (await queue.explain(second.id)).gates
        assert (busy.kind, busy.by) == ("key-busy", first.id)
        assert busy.until is not None
        assert "waits for its next attempt" in busy.text
        (delayed,) = (await queue.explain(first.id)).gates
        assert delayed.kind == "delayed"
        assert "next attempt" in delayed.text
    await queue.drain(delayed=True)


async def test_delays_and_successors(queue: AnyQueue) -> None:
    gate = Gate()
    dedup = Deduplication("d", mode="keep_last")

    async with worker_of(queue, gate, concurrency=1):
        late = await queue.add("late", delay=60)
        (delayed,) = (await queue.explain(late.id)).gates
        assert delayed.until == late.due_at
        owner = await queue.add("job", deduplication=dedup)
        await gate.running()
        successor = await queue.add("job", deduplication=dedup)
        (_, busy) = (await queue.explain(successor.id)).gates
        assert busy.text == "waits for a free slot: all 1 slots of 1 worker are occupied"
        assert (await queue.explain(successor.id)).gates[0].text.startswith("waits for the end of the job that owns")
        gate.release()
        await ended(owner)
        await ended(successor)
    await queue.drain(delayed=True)


async def test_rate_limited_by_a_handler(queue: AnyQueue) -> None:
    async def limited(_: AnyJob) -> None:
        raise RateLimited(60)

    async with worker_of(queue, limited, concurrency=1), listening(queue) as events:
        job = await queue.add("job")
        while (await events.next()).kind != "limited":
            pass
        (found,) = (await queue.explain(job.id)).gates
        assert found.kind == "gate"
        assert found.until is not None
    await queue.drain()


async def test_suspended_jobs_and_parents(queue: AnyQueue) -> None:
    async def suspend(job: AnyJob) -> None:
        await job.suspend(timeout=60, signals=["approved", "refused"])

    async with worker_of(queue, suspend), listening(queue) as events:
        job = await queue.add("job")
        while (await events.next()).kind != "suspended":
            pass
        (found,) = (await queue.explain(job.id)).gates
        assert found.kind == "signal"
        assert found.until is not None
        assert found.text.startswith("is suspended for a signal 'approved' or 'refused' until ")
        await job.revoke()
    await queue.pause()
    async with FlowProducer(queue.storage) as producer:
        node = await producer.add(
            FlowJob("parent", queue.name, children=[FlowJob("child", queue.name), FlowJob("child", queue.name)])
        )
        (found,) = (await queue.explain(node.job.id)).gates
        child = node.children[0].job
        assert (found.kind, found.count, found.by) == ("children", 2, child.id)
        assert found.text.startswith(f"waits for 2 child jobs: {child.id} of queue {queue.name!r}")
    await queue.obliterate(force=True)


async def test_failed_and_expired_jobs(queue: AnyQueue) -> None:
    async def fail(_: AnyJob) -> None:
        raise UnrecoverableError("no such address")

    async with worker_of(queue, fail):
        job = await queue.add("job")
        await ended(job)
    (found,) = (await queue.explain(job.id)).gates
    assert found.kind == "ended"
    assert found.text.startswith("failed at ")
    assert found.text.endswith("no such address")
    late = await queue.add("late", ttl=0.001)
    while "expired" not in kinds(await queue.explain(late.id)):
        pass
    await queue.drain()


async def test_workers_without_the_task_or_a_free_slot(queue: AnyQueue) -> None:
    app = GlideMQ(queue.storage)

    async def job() -> None: ...

    app.task(name="resize", version=2, queue=queue.name)(job)
    other, old = await queue.add("other"), await queue.add("resize@1")
    await queue.pause()
    async with app.worker([queue.name], handle_signals=False) as worker:
        await idle(worker.workers[0])
        assert [gate.kind for gate in (await queue.explain(other.id)).gates] == ["paused", "unknown-task"]
        found = (await queue.explain(old.id)).gates
        assert [gate.kind for gate in found][:2] == ["paused", "no-version"]
        assert found[1].text == "waits for a worker with task 'resize@1': 1 worker of the queue have resize@2"
    await queue.resume()
    await queue.drain()
    await app.close()
