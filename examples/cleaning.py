"""Clean up: remove waiting jobs and old results, run failed jobs again, and remove a whole queue."""

import asyncio

from glidemq_async import Job, Queue, QueueBusy, Worker

started = asyncio.Event()
service_is_up = asyncio.Event()


async def fetch(job: Job[int, int]) -> int:
    if job.name == "endless":
        started.set()
        await asyncio.Event().wait()
    if not service_is_up.is_set():
        raise ConnectionError("the service is down")
    return job.data


async def main() -> None:
    async with Queue[int, int]("pages", "memory://") as queue:
        await queue.add_bulk([("fetch", page) for page in range(1_000)])
        await queue.add("fetch", 0, delay=3_600)
        print("waiting jobs removed:", await queue.drain())
        print("delayed ones too:", await queue.drain(delayed=True))

        jobs = await queue.add_bulk([("fetch", page) for page in range(3)])
        async with Worker("pages", fetch, queue.storage) as worker:
            await worker.until_empty()
            service_is_up.set()
            print("run again:", await queue.retry_jobs())
            print("results:", [await job.result(timeout=10) for job in jobs])
            print("results of more than an hour ago:", await queue.clean(grace=3_600, limit=1_000))
            print("results of any age:", sorted(await queue.clean(grace=0, limit=1_000)))

            await queue.add("endless", 0)
            await started.wait()
            try:
                await queue.obliterate()
            except QueueBusy as error:
                print("running:", error.running)
            print("removed with the queue:", await queue.obliterate(force=True))


if __name__ == "__main__":
    asyncio.run(main())
