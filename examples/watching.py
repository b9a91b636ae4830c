"""Watch a queue: every event of a job's life, in order."""

import asyncio

from glidemq_async import EventGap, GlideMQ, QueueEvents, current_job

mq = GlideMQ("memory://", queue="watched")


@mq.task
async def work() -> None:
    job = current_job()
    await job.log("working")
    await job.update_progress(50)


async def main() -> None:
    async with mq, QueueEvents("watched", mq.storage) as events, mq.worker():
        job = await work.options(delay=0.05).add()
        async for event in events:
            if isinstance(event, EventGap):
                print("missed", event.missed)
                continue
            print(event.kind)
            if event.kind == "completed":
                break
        print(await mq.queue("watched").get_job_logs(job.id))


if __name__ == "__main__":
    asyncio.run(main())
