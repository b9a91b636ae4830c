"""Inspect a queue: counts, a search, workers, and metrics."""

import asyncio

from glidemq_async import Job, Queue, Worker

both_run = asyncio.Barrier(3)
done = asyncio.Event()


async def convert(job: Job[dict[str, int | str], None]) -> None:
    if job.data["kind"] == "broken":
        raise ValueError("not an image")
    if not done.is_set():
        await both_run.wait()
    await done.wait()


async def main() -> None:
    async with Queue[dict[str, int | str], None]("images", "memory://") as queue:
        await queue.add("convert", {"kind": "broken", "tenant": 7})
        jobs = await queue.add_bulk([("convert", {"kind": "photo", "tenant": tenant}) for tenant in (7, 8, 7, 9)])
        async with Worker("images", convert, queue.storage, concurrency=2, name="converter"):
            await both_run.wait()
            counts = await queue.get_job_counts()
            print({state: count for state, count in counts.items() if count})
            for worker in await queue.get_workers():
                print(worker.name[:9], "runs", worker.running, "of", worker.concurrency)
            for job in await queue.search_jobs(state="waiting", data={"tenant": 7}):
                print("waits for tenant 7:", job.id)
            for job in await queue.search_jobs(name="convert", data={"kind": "broken"}):
                print(job.id, job.state, job.failed_reason)
            done.set()
            for job in jobs:
                await job.result(timeout=10)
        print("completed in the last 24 hours:", (await queue.get_metrics("completed")).count)
        print("failed:", (await queue.get_metrics("failed")).count)


if __name__ == "__main__":
    asyncio.run(main())
