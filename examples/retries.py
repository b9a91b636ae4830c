"""Retry failures with growing delays, and fail jobs for good that cannot succeed."""

import asyncio

from glidemq_async import Backoff, Job, JobFailed, Queue, UnrecoverableError, Worker


async def fetch(job: Job[str, str]) -> str:
    if job.data == "gone":
        raise UnrecoverableError("there is no such page")
    if job.attempts_made < 2:
        raise ConnectionError("try again")
    return f"{job.data} after {job.attempts_made + 1} runs"


async def main() -> None:
    async with Queue[str, str]("pages", "memory://") as queue, Worker("pages", fetch, queue.storage):
        backoff = Backoff.exponential(0.05, max=1, jitter=0.2)
        job = await queue.add("fetch", "page", attempts=5, backoff=backoff)
        print(await job.result(timeout=10))
        job = await queue.add("fetch", "gone", attempts=5, backoff=backoff)
        try:
            await job.result(timeout=10)
        except JobFailed as error:
            await job.refresh()
            print(error.message, "- runs:", job.attempts_made)


if __name__ == "__main__":
    asyncio.run(main())
