"""Change schedules while the program runs, with `Queue` and `Worker` directly. For fixed schedules see cron_task.py.

A scheduler adds jobs at an interval, by cron, and now. Any process that has the queue open fires it.
"""

import asyncio
from datetime import UTC, datetime

from glidemq_async import Job, Queue, Schedule, Worker


async def main() -> None:
    beats = asyncio.Semaphore(0)

    async def process(job: Job[str, str]) -> str:
        print(job.name, job.data)
        beats.release()
        return job.data

    async with Queue[str, str]("reports", "memory://") as queue, Worker("reports", process, queue.storage):
        # Repeating this at every start of the program is harmless: fire times and history stay.
        for _ in range(2):
            await queue.upsert_job_scheduler("pulse", every=0.1, limit=3, data="beat")
        for _ in range(3):
            await beats.acquire()
        pulse = await queue.get_job_scheduler("pulse")
        print("fired:", pulse.fired if pulse else 0)

        nightly = Schedule(cron="30 2 * * *", tz="Europe/Madrid", missed="fire-once", overlap="skip")
        await queue.upsert_job_scheduler("nightly", nightly, data="totals", attempts=3)
        job = await queue.trigger_job_scheduler("nightly")
        print("triggered:", await job.result(timeout=10))

        # The night on which the clock jumps from two to three.
        print("next:", nightly.next_after(datetime(2026, 3, 28, 12, tzinfo=UTC)))
        print("all:", [each.id for each in await queue.get_job_schedulers()])
        print("removed:", await queue.remove_job_scheduler("nightly"))


if __name__ == "__main__":
    asyncio.run(main())
