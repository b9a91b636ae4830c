"""Watch a queue: every event of a job's life, in order."""

import asyncio

from glidemq_async import EventGap, Job, Queue, QueueEvents, Worker


async def process(job: Job[None, None]) -> None:
    await job.log("working")
    await job.update_progress(50)


async def main() -> None:
    async with (
        Queue[None, None]("watched", "memory://") as queue,
        QueueEvents("watched", queue.storage) as events,
        Worker("watched", process, queue.storage),
    ):
        job = await queue.add("work", None, delay=0.05)
        async for event in events:
            if isinstance(event, EventGap):
                print("missed", event.missed)
                continue
            print(event.kind)
            if event.kind == "completed":
                break
        print(await queue.get_job_logs(job.id))


if __name__ == "__main__":
    asyncio.run(main())
