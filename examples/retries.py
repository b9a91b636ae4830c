"""Retry failures with growing delays, and fail jobs for good that cannot succeed."""

import asyncio

from glidemq_async import Backoff, GlideMQ, JobFailed, UnrecoverableError, current_job

mq = GlideMQ("memory://", queue="pages")


@mq.task(attempts=5, backoff=Backoff.exponential(0.05, max=1, jitter=0.2))
async def fetch(page: str) -> str:
    if page == "gone":
        raise UnrecoverableError("there is no such page")
    if current_job().attempts_made < 2:
        raise ConnectionError("try again")
    return f"{page} after {current_job().attempts_made + 1} runs"


async def main() -> None:
    async with mq, mq.worker():
        print(await (await fetch.add("page")).result(timeout=10))
        job = await fetch.add("gone")
        try:
            await job.result(timeout=10)
        except JobFailed as error:
            await job.refresh()
            print(error.message, "- runs:", job.attempts_made)


if __name__ == "__main__":
    asyncio.run(main())
