"""Clean up: remove waiting jobs and old results, run failed jobs again, and remove a whole queue."""

import asyncio

from glidemq_async import GlideMQ, QueueBusy

mq = GlideMQ("memory://", queue="pages")
started = asyncio.Event()
service_is_up = asyncio.Event()


@mq.task
async def fetch(page: int) -> int:
    if not service_is_up.is_set():
        raise ConnectionError("the service is down")
    return page


@mq.task
async def endless() -> None:
    started.set()
    await asyncio.Event().wait()


async def main() -> None:
    async with mq:
        queue = mq.queue("pages")
        await fetch.add_many((page,) for page in range(1_000))
        await fetch.options(delay=3_600).add(0)
        print("waiting jobs removed:", await queue.drain())
        print("delayed ones too:", await queue.drain(delayed=True))

        jobs = await fetch.add_many((page,) for page in range(3))
        await mq.run_worker(until_empty=True)
        service_is_up.set()
        print("run again:", await queue.retry_jobs())
        async with mq.worker():
            print("results:", [await job.result(timeout=10) for job in jobs])
            print("results of more than an hour ago:", await queue.clean(grace=3_600, limit=1_000))
            print("results of any age:", sorted(await queue.clean(grace=0, limit=1_000)))

            await endless.add()
            await started.wait()
            try:
                await queue.obliterate()
            except QueueBusy as error:
                print("running:", error.running)
            print("removed with the queue:", await queue.obliterate(force=True))


if __name__ == "__main__":
    asyncio.run(main())
