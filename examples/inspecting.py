"""Inspect a queue: counts, a search, failures, and metrics."""

import asyncio

from glidemq_async import GlideMQ, JobFailed

mq = GlideMQ("memory://", queue="images")


@mq.task
async def convert(kind: str, tenant: int) -> str:
    if kind == "broken":
        raise ValueError("not an image")
    return f"{kind} of tenant {tenant}"


async def main() -> None:
    async with mq:
        queue = mq.queue("images")
        jobs = await convert.add_many([("photo", 7), ("photo", 8), ("broken", 7)])
        await convert.options(delay=3600).add("photo", 9)
        print("before:", {state: count for state, count in (await queue.get_job_counts()).items() if count})

        async with mq.worker(concurrency=2, name="converter"):
            for worker in await queue.get_workers():
                print("worker:", worker.name[:9], "with", worker.concurrency, "slots")
            for job in jobs:
                try:
                    print(job.id, await job.result(timeout=10))
                except JobFailed as error:
                    print(job.id, "failed:", error)

        print("after:", {state: count for state, count in (await queue.get_job_counts()).items() if count})
        for job in await queue.search_jobs("failed", name="convert"):
            print("failed:", job.id, job.failed_reason)
        print("completed in the last 24 hours:", (await queue.get_metrics("completed")).count)


if __name__ == "__main__":
    asyncio.run(main())
