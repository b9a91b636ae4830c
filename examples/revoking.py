"""Revoke a running job: its task is cancelled and can clean up."""

import asyncio

from glidemq_async import GlideMQ, JobFailed, current_job

mq = GlideMQ("memory://")
started = asyncio.Event()


@mq.task
async def endless() -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        print("stopped because:", current_job().abort.reason)


async def main() -> None:
    async with mq, mq.worker():
        job = await endless.add()
        await started.wait()
        await job.revoke()
        try:
            await job.result(timeout=10)
        except JobFailed as error:
            print("failed:", error)


if __name__ == "__main__":
    asyncio.run(main())
