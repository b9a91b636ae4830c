"""Revoke a running job: its handler is cancelled and can clean up."""

import asyncio

from glidemq_async import Job, JobFailed, Queue, Worker

started = asyncio.Event()


async def endless(job: Job[None, None]) -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        print("stopped because:", job.abort.reason)


async def main() -> None:
    async with Queue[None, None]("endless", "memory://") as queue, Worker("endless", endless, queue.storage):
        job = await queue.add("run", None)
        await started.wait()
        await job.revoke()
        try:
            await job.result(timeout=10)
        except JobFailed as error:
            print("failed:", error)


if __name__ == "__main__":
    asyncio.run(main())
