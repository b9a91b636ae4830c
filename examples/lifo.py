"""Run the newest job first, for example the page that a user is looking at."""

import asyncio

from glidemq_async import Job, Queue, Worker


async def render(job: Job[str]) -> None:
    print(job.data)


async def main() -> None:
    async with Queue("previews", "memory://") as queue:
        for page in ["page 1", "page 2", "page 3"]:
            await queue.add("render", page, lifo=True)
        await Worker("previews", render, queue.storage).run(until_empty=True)


if __name__ == "__main__":
    asyncio.run(main())
