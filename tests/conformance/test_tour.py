"""One tour through every function of the library, on every kind of storage."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgpack
import pytest

from glidemq_async import (
    Chunk,
    Deduplication,
    FlowJob,
    FlowProducer,
    GlideMQ,
    JobStateError,
    KeepJobs,
    NoReply,
    Queue,
    RateLimit,
    RetryLater,
    RunHandle,
    TokenBucket,
    workflows,
)
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.alerts import Holds, Observation
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg, RequestChannel
from glidemq_async.functions.loader import source
from glidemq_async.functions.outcomes import Completed
from glidemq_async.functions.settings import Author
from glidemq_async.ops import Actor, note_action
from glidemq_async.ops.access import Identity
from glidemq_async.ops.alerts.delivery import delivery_worker
from glidemq_async.ops.alerts.episodes import packed_document
from glidemq_async.ops.core import Ops
from glidemq_async.ops.graphs import read_flow_graph
from glidemq_async.ops.tokens import Tokens
from glidemq_async.queues.finding import describe_tasks
from glidemq_async.queues.inspection import task_parameters, tell_worker
from glidemq_async.queues.limits import stored_settings
from glidemq_async.queues.retention import hold_retention
from glidemq_async.storage import Storage
from glidemq_async.topics.topic import Topic, functions_of
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, ended, history, until, worker_of
from tests.support.recording_storage import Relay
from tests.support.schedulers import ended_schedule
from tests.support.waiting_jobs import waits_for_results

LONG_LINE = 20
"""More waiting jobs of a key than the text of its line holds."""
FUNCTIONS = frozenset(re.findall(r"register\('(\w+)'", source())) - {"version", "migrateQueue"}
"""All functions except `migrateQueue`, which needs a queue of an older layout. tests/migration calls it everywhere."""


async def claim_directly(queue: AnyQueue, functions: Functions) -> None:
    """Claim jobs with a direct claim, and complete them."""
    await queue.add_bulk([("direct", number) for number in range(2)])
    channel = RequestChannel("direct")
    request = functions.settle.request(channel, "direct", 2, 30_000, subscribed=False, is_direct=True)
    reply = await functions.settle.send(request)
    assert len(reply.jobs) == 2
    request = functions.settle.request(channel, "direct", 0, 30_000, subscribed=False)
    request.settle_all([job.entry[1:] for job in reply.jobs], Completed(b"\xc0"), reply.claimed_at)
    assert (await functions.settle.send(request)).settled == 2
    await functions.stalled.close_worker("direct")


class Recorder(Relay):
    """A recording storage whose clones write into the same list, so that it records the calls of the lease thread
    too.
    """

    def clone(self) -> Storage:
        twin = Recorder(super().clone())
        twin.calls = self.calls
        return twin


async def order_and_limits(queue: AnyQueue) -> None:
    """Add jobs of every order, and set and remove every limit."""
    await queue.set_global_concurrency(2)
    await queue.set_global_rate_limit(RateLimit(1_000, 60))
    assert await queue.get_global_concurrency() == 2
    assert await queue.get_global_rate_limit() == RateLimit(1_000, 60)
    await queue.set_key_limits("k", concurrency=2, token_bucket=TokenBucket(10, 100))
    await queue.set_key_limits(None, concurrency=1)
    assert (await queue.get_key_limits("k")).concurrency == 2
    await queue.pause_key("k", 60)
    keyed = [await queue.add("keyed", number, key="k") for number in range(LONG_LINE)]
    dedup = Deduplication("d", ttl=60, mode="throttle")
    others = [await queue.add("first", priority=1, deduplication=dedup), await queue.add("last", lifo=True)]
    assert (await queue.add("first", deduplication=dedup)).outcome == "duplicate"
    assert await queue.get_deduplication_job_id("d") == others[0].id
    assert await queue.release_deduplication("d")
    await others[0].change_priority(2)
    await others[1].change_delay(60)
    await others[1].change_delay(0)
    assert await keyed[0].get_state() == "rate-limited"
    assert await queue.check() == []
    assert (await queue.explain(keyed[0].id)).gates[-1].kind == "key-paused"
    await queue.pause_key("k", 0)
    async with worker_of(queue, echo, concurrency=5):
        for job in keyed + others:
            assert (await ended(job)).state == "completed"
    by = Author("operator", "ada")
    await hold_retention(queue, by, {"keep_completed": KeepJobs()})
    assert (await stored_settings(queue)).holds.keys() == {"keep_completed"}
    await hold_retention(queue, by, {"keep_completed": None})
    assert (await stored_settings(queue)).holds == {}
    await queue.set_global_concurrency(None)
    await queue.remove_global_rate_limit()


async def read_and_remove(queue: AnyQueue) -> None:
    """Read the jobs and workers, then remove the jobs in every way."""
    job = (await queue.get_jobs("completed"))[0]
    assert (await queue.get_jobs("completed", with_data=False))[0].id == job.id
    await job.update_result_ttl(3_600)
    assert job.id in {found.id for found in await queue.search_jobs(name=job.name)}
    assert [found.id for found in await queue.find(f"state:completed id:{job.id}")] == [job.id]
    await describe_tasks(queue, {job.name: ["first"]})
    assert await task_parameters(queue) == {job.name: ["first"]}
    assert (await queue.get_metrics("completed")).count > 0
    await queue.get_failure_groups()
    await queue.get_job_history(job.id)
    await queue.set_history(8_192)
    await note_action(queue, [job.id], Actor("python", "tour"), "read")
    async with worker_of(queue, echo) as worker:
        await until(lambda: worker.health().ready)
        worker.pause()
        assert await tell_worker(queue, worker.name, "resume") == 1
        await queue.get_workers()
    await queue.add("drained", delay=60)
    assert await queue.promote_jobs() == 1
    assert len(await queue.clean(0, 5, "waiting")) == 1
    await queue.add("drained", delay=60)
    assert await queue.drain(delayed=True) == 1
    assert await queue.retry_jobs("completed", 1) == 1
    await queue.drain()
    assert len(await queue.clean(0, 1, "completed")) == 1
    await queue.obliterate(force=True)
    assert await counts_of_all(queue) == 0


async def bulk_and_history(queue: AnyQueue, functions: Functions) -> None:
    """Write as Spark's tasks do, and read events as its readers do."""
    await functions.queue.open(None)
    order = await functions.writes.plan()
    assert await functions.writes.open("w", "run", 60_000, "tour", 1, order=order)
    job: list[Arg] = ["bulk", "n", msgpack.packb(1), b"", b""]
    assert (await functions.writes.add("w", "run", job)).inserted == 1
    assert (await functions.writes.add("w", "run", job)).replayed == 1
    assert (await functions.writes.probe("w", "run", ["bulk", "other"])).missing == [1]
    assert await functions.writes.get_depth() == 1
    assert await functions.writes.end("w", "run", "committed", 1) == ("ok", "committed")
    assert (await functions.writes.list_ids("", 10))[1] == ["w"]
    assert [record[b"state"] for record in await functions.writes.get(["w"])] == [b"committed"]
    assert await functions.writes.get_transaction("tour") == (1, "w")
    assert [b"data" in record for record in await functions.reading.get_heads(["bulk"])] == [False]
    bounds, _ = await functions.history.locate()
    await functions.history.note_reader("lake", bounds.incarnation, bounds.total, hold=False)
    await functions.history.note_loss("lake", "trimmed", bounds.incarnation, 0, 1)
    assert [reader.name for reader in await functions.history.list_readers()] == ["lake"]
    assert len(await functions.history.list_losses()) == 1
    async with worker_of(queue, echo):
        await ended((await queue.get_jobs("waiting"))[0])


async def run_a_flow(queue: AnyQueue, storage: Storage) -> None:
    """Run a flow that is stored and made in several steps."""
    children = [FlowJob("child", queue.name, [number, "x" * 2_000]) for number in range(400)]
    async with FlowProducer(storage) as flows, worker_of(queue, echo):
        node = await flows.add(FlowJob("parent", queue.name, children=children))
        assert (await ended(node.job)).state == "completed"
        assert len(await node.job.get_children_values()) == 400
    assert (await read_flow_graph(queue, node.job.id)).states == {"completed": 401}

    async def add_children(job: AnyJob) -> None:
        if job.name == "parent" and not await job.get_children_values():
            async with FlowProducer(storage) as flows:
                await flows.add_children(job, [FlowJob("child", queue.name)])
            await job.move_to_waiting_children()

    parent = await queue.add("parent")
    async with worker_of(queue, add_children):
        assert (await ended(parent)).state == "completed"


async def stream_and_watch(queue: AnyQueue) -> None:
    """Read the chunks of a job, and watch it."""
    gate = asyncio.Event()

    async def work(job: AnyJob) -> None:
        await job.stream("a")
        await gate.wait()

    job = await queue.add("streams")
    chunks, updates = job.chunks(), job.watch()
    async with worker_of(queue, work):
        first = await anext(chunks)
        assert isinstance(first, Chunk)
        assert first.value == "a"
        assert (await anext(updates)).state in {"waiting", "active"}
        gate.set()
        assert [item async for item in chunks] == []
        assert [update.state async for update in updates][-1] == "completed"
    assert await queue.check() == []


async def run_steps(queue: AnyQueue) -> None:
    """Run a job twice, whose steps are recorded in its first run."""
    called: list[int] = []

    async def work(job: AnyJob) -> list[Any]:
        found = await asyncio.gather(*(job.step("s", asyncio.sleep, 0, number) for number in range(300)))
        called.append(job.fence)
        if job.fence == 1:
            raise ValueError("again")
        return found

    job = await queue.add("steps", attempts=2)
    async with worker_of(queue, work):
        assert await job.result(10) == [*range(300)]
    assert called == [1, 2]
    assert len(await job.get_steps()) == 300
    fork = await RunHandle(job).fork()
    async with worker_of(queue, work):
        assert await fork.result(10) == [*range(300)]
        await RunHandle(job).restart()
        assert await job.result(10) == [*range(300)]
    with pytest.raises(JobStateError):
        await RunHandle(job).accept()
    assert await queue.check() == []


async def suspend_and_signal(queue: AnyQueue) -> None:
    """Suspend a job twice. An operator resumes it, and then a signal."""

    async def work(job: AnyJob) -> Any:
        if job.resumed_by != "signal":
            await job.suspend(signals=["go"])
        return job.signals[0].data

    job = await queue.add("waits")
    async with worker_of(queue, work) as worker:
        await worker.until_empty()
        assert await job.signal("other", 1) is False
        assert [one.name for one in await queue.get_mailbox(job.id)] == ["other"]
        assert await queue.check() == []
        await queue.resume_job(job.id)
        await worker.until_empty()
        assert await job.signal("go", 2) is True
        assert await job.result(10) == 2
        mq: GlideMQ[Any] = GlideMQ(queue.storage, queue=f"{queue.name}-runs")

        @mq.workflow
        async def listen() -> str:
            return (await workflows.receive()).name

        async with mq, mq.worker():
            run = await listen.start()
            await run.signal("early")
            assert await run.result(10) == "early"
        job = await queue.add("waits")
        with pytest.raises(NoReply):  # only workflows reply
            await job.send_and_wait("go", 3, timeout=10)


async def publish_and_feed(name: str, storage: Storage) -> None:
    """Publish messages, and move them into the queue of a subscription."""
    async with Topic(name, storage) as topic, Queue[Any, Any](f"{name}.s", storage) as queue:
        calls, feeds = functions_of(topic).topics, Functions(storage, f"glide:{{{queue.name}}}").feeds
        position = await calls.join("s", queue.name, ["a.>"], "now")
        await topic.publish_many([("a.b", 1), ("c", 2)])
        assert await calls.locate("beginning") == position
        found = await calls.read("s", position, ["a.>"], 10)
        assert found is not None
        await feeds.open("w", functions_of(topic).caller.base, position, 10)
        jobs = [(found.end, AddRequest("", "n", one.data, b"", b"")) for one in found.messages]
        assert (await feeds.add("w", position, found.end, 0, 10, jobs)).status == "ok"
        await feeds.close("w")
        rewound = await calls.rewind("s", "beginning")
        assert rewound is not None
        assert rewound == (position, 1)
        assert await feeds.move(*rewound)
        state = await feeds.read()
        assert state is not None
        assert state.fed == (await topic.info()).subscriptions[0].lag - 1 == 1
        assert await topic.remove_subscription("s")
        assert await queue.check() == await topic.check() == []


async def operate(queue: AnyQueue, storage: Storage) -> None:
    """Find a queue, and write and read audit lines, as operators do."""
    async with Ops(storage) as ops:
        assert (await ops.queue(queue.name)).name == queue.name
        async with ops.changing("pause", queue.name):
            await queue.pause()
        await queue.resume()
        assert [line.action for line in (await ops.audit.read()).lines] == ["pause"]
        assert (await ops.queue_detail(queue.name)).summary.name == queue.name
        tokens = Tokens(ops)
        secret = await tokens.create("ada", "operator")
        assert await tokens.identity(secret) == Identity("ada", "operator")
        [token] = await tokens.list()
        assert (await tokens.revoke(token.id)).identity.name == "ada"
        await queue.add("bulk", delay=60)
        async with ops.worker():
            preview = await ops.preview("promote", f"queue:{queue.name} state:delayed name:bulk")
            await ops.start(preview.operation_id, preview.ticket)
            assert (await ops.wait_operation(preview.operation_id, 20)).done == 1
        other = await ops.preview("delete", f"queue:{queue.name} name:bulk")
        assert (await ops.cancel_operation(other.operation_id)).state == "cancelled"
        assert len(await ops.operations()) == 2
        await ops.set_events(queue.name, max_events=50_000)
        await ops.release_hold(queue.name, "max_events")
        await alert(ops)


async def alert(ops: Ops) -> None:
    """Set an alert rule, open an episode, and send a notification that no receiver gets."""
    connections = ops._connections  # pyright: ignore[reportPrivateUsage]
    calls = connections.alerts.alerts
    await ops.set_alert("idle", "workers < 1 for 0s", webhooks=["http://127.0.0.1:9/"])
    fence = (await calls.begin("tour", 30_000)).fence
    document = packed_document("workers < 1 for 0s", "no worker", "stopped")
    seen = [Observation("q", True, "e1", document)]
    assert await calls.note(fence, "idle", Holds(0, 0), 1, b"", seen) == ["opened"]
    await delivery_worker(connections, ["example.com"]).run(until_empty=True)
    [episode] = await ops.alert_episodes(open_only=True)
    assert episode.notifications["opened:1"].startswith("not permitted")
    assert [rule.name for rule in (await ops.alerts()).rules] == ["idle"]
    await ops.remove_alert("idle")


async def counts_of_all(queue: AnyQueue) -> int:
    """Return the number of jobs in all states."""
    return sum((await queue.get_job_counts()).values())


async def move_and_replay(queue: AnyQueue, dead_name: str, storage: Storage) -> None:
    """Let a job fail for good, move it to another queue, and run it again, there and here."""

    async def fail(job: AnyJob) -> None:
        raise ValueError("no")

    async with Queue[Any, Any](dead_name, storage) as dead:
        await worker_of(queue, echo, dead_letter_queue=dead_name).run(until_empty=True)
        assert await queue.get_dead_letter_queue() == dead_name
        await queue.set_dead_letter_queue(None)
        await queue.set_dead_letter_queue(dead_name)
        job = await queue.add("gone")
        await worker_of(queue, fail).run(until_empty=True)
        assert [letter.data for letter in await dead.get_dead_letter_jobs()] == [None]
        assert await dead.replay_dead_letter_jobs() == 1
        await worker_of(queue, fail).run(until_empty=True)
        assert await queue.replay_dead_letter_jobs(1) == 1
        await worker_of(queue, echo).run(until_empty=True)
        assert (await ended(job)).state == "completed"


@pytest.mark.everywhere
async def test_every_function_works_here(storage: Storage, name: str) -> None:
    relay = Recorder(storage)
    async with Queue[Any, Any](name, relay) as queue:

        async def work(job: AnyJob) -> Any:
            await job.log("a line")
            await job.update_progress(1)
            await job.update_data([job.data])
            if job.name == "later" and job.fence == 1:
                raise RetryLater(0.01)
            if job.name == "fails" and job.fence < 3:
                raise ValueError("no")
            return job.data

        gate = Gate()
        async with worker_of(queue, gate, concurrency=2, shutdown_timeout=0, lock_duration=1):
            revoked, removed = await queue.add("revoked"), await queue.add("removed")
            await gate.running()
            await gate.running()
            await revoked.revoke()
            await removed.remove()
            await ended(revoked)
        waiting = asyncio.create_task((await queue.add("n", delay=60)).result())
        await waits_for_results(queue)
        waiting.cancel()
        await queue.pause()
        assert await queue.is_paused()
        jobs = await queue.add_bulk([("n", 1), ("later", 2)])
        jobs.append(await queue.add("fails", attempts=2, ttl=60))
        await queue.resume()
        async with worker_of(queue, work, concurrency=3, lock_duration=1):
            for job in jobs:
                await ended(job)
            assert await queue.add_and_wait("n", 5, wait_timeout=10) == [5]
            await jobs[2].retry()
            await ended(jobs[2])
            promoted = (await queue.get_jobs("delayed"))[0]
            await promoted.promote()
            await ended(promoted)
            await until(lambda: {"sweep", "renewLeases"} <= set(relay.calls))
        assert [job.state for job in jobs] == ["completed"] * 3
        assert await queue.get_job_logs(jobs[0].id) == ["a line"]
        counts = await queue.get_job_counts()
        assert (counts["completed"], counts["failed"]) == (5, 1)
        assert len(await queue.get_jobs("completed")) == 5
        assert (await history(queue))[0].kind == "added"
        assert await queue.check() == []
        await order_and_limits(queue)
        gated = Gate()
        async with worker_of(queue, gated, shutdown_timeout=0):
            back = await queue.add("back")
            await gated.running()
        assert await back.get_state() == "waiting"
        async with worker_of(queue, echo):
            await ended(back)
        await queue.upsert_job_scheduler("s", every=0.05, limit=1)
        await ended_schedule(queue)
        await queue.trigger_job_scheduler("s")
        assert len(await queue.get_job_schedulers()) == 1
        assert await queue.pause_job_scheduler("s")
        assert await queue.resume_job_scheduler("s")
        assert await queue.remove_job_scheduler("s")
        await move_and_replay(queue, f"{name}-dead", relay)
        await run_a_flow(queue, relay)
        await stream_and_watch(queue)
        await run_steps(queue)
        await publish_and_feed(name, relay)
        await suspend_and_signal(queue)
        functions = Functions(relay, f"glide:{{{name}}}")
        await functions.job_waiters.remove(back.id, "nobody")
        assert (await functions.job_waiters.add_many([back.id], "nobody"))[0].state == "completed"
        await functions.job_waiters.remove_many([back.id], "nobody")
        assert (await functions.jobs.abandon(back.id, "nobody", "")).code == "state completed"
        await functions.schedulers.leave("nobody")
        assert await functions.caller.call("giveNotice") == 0
        await claim_directly(queue, functions)
        await bulk_and_history(queue, functions)
        await operate(queue, relay)
        await read_and_remove(queue)
    assert set(relay.calls) == FUNCTIONS
