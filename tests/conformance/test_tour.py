"""One tour through every function of the library, on every kind of storage."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from glidemq_async import Queue, RetryLater
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.loader import source
from glidemq_async.storage import Storage
from tests.relay import Relay
from tests.workbench import AnyJob, AnyQueue, Gate, echo, ended, history, listening, until, worker_of

FUNCTIONS = frozenset(re.findall(r"register\('(\w+)'", source())) - {"version"}


class Recorder(Relay):
    """A relay whose clones write into the same list, so that the calls of the lease thread are seen too."""

    def clone(self) -> Storage:
        twin = Recorder(super().clone())
        twin.calls = self.calls
        return twin


async def bury_and_replay(queue: AnyQueue, dead_name: str, storage: Storage) -> None:
    """Let a job fail for good, move it to a queue of its own, and run it again, there and here."""

    async def fail(job: AnyJob) -> None:
        raise ValueError("no")

    async with Queue[Any, Any](dead_name, storage) as dead:
        await worker_of(queue, echo, dead_letter_queue=dead_name).run(until_empty=True)
        assert await queue.get_dead_letter_queue() == dead_name
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
        await asyncio.sleep(0.05)
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
        gated = Gate()
        async with worker_of(queue, gated, shutdown_timeout=0):
            back = await queue.add("back")
            await gated.running()
        assert await back.get_state() == "waiting"
        async with worker_of(queue, echo):
            await ended(back)
        await queue.upsert_job_scheduler("s", every=0.05, limit=1)
        async with listening(queue) as events:
            await events.next()
        await queue.trigger_job_scheduler("s")
        assert len(await queue.get_job_schedulers()) == 1
        assert await queue.remove_job_scheduler("s")
        await bury_and_replay(queue, f"{name}-dead", relay)
        functions = Functions(relay, f"glide:{{{name}}}")
        await functions.forget_reply(back.id, "nobody")
        await functions.leave_schedules("nobody")
    assert set(relay.calls) == FUNCTIONS
