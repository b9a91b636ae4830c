"""Run a task on a schedule. Opening the app stores the schedule, and each fire time adds one job."""

import asyncio
from datetime import UTC, datetime

from glidemq_async import GlideMQ, Schedule

mq = GlideMQ("memory://", queue="reports")
beats = asyncio.Semaphore(0)


@mq.cron("0 3 * * *", tz="Europe/Madrid", missed="skip", attempts=3)
async def nightly(region: str = "all") -> None:
    print("nightly report of", region)


@mq.cron(Schedule(every=0.1, limit=3))
async def pulse() -> None:
    print("beat")
    beats.release()


async def main() -> None:
    async with mq, mq.worker():
        for _ in range(3):
            await beats.acquire()
        # You can also add it like any other task.
        await (await nightly.add("Asturias")).result(timeout=10)
        for scheduler in await mq.queue("reports").get_job_schedulers():
            print(scheduler.id, "fired:", scheduler.fired)
        nightly_schedule = Schedule(cron="0 3 * * *", tz="Europe/Madrid")
        print("next:", nightly_schedule.next_after(datetime(2026, 6, 1, tzinfo=UTC)))


if __name__ == "__main__":
    asyncio.run(main())
