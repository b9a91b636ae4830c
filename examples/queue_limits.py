"""Limit a whole queue, for all its workers together, and change the limits while they run."""

import asyncio

from glidemq_async import Job, Queue, RateLimit, Worker

running: set[str] = set()
highest = [0]


async def call(job: Job) -> None:
    running.add(job.id)
    highest[0] = max(highest[0], len(running))
    await asyncio.sleep(0.01)
    running.remove(job.id)


async def run_eight(queue: Queue) -> None:
    for job in await queue.add_bulk([("call", None)] * 8):
        await job.result(timeout=10)


async def main() -> None:
    async with (
        Queue("partner-api", "memory://") as queue,
        Worker("partner-api", call, queue.storage, concurrency=4),
        Worker("partner-api", call, queue.storage, concurrency=4),
    ):
        await queue.set_global_concurrency(3)
        await run_eight(queue)
        print("highest number of running jobs:", highest[0])
        await queue.set_global_concurrency(None)
        await queue.set_global_rate_limit(RateLimit(4, 0.2))
        begun = asyncio.get_running_loop().time()
        await run_eight(queue)
        print("eight starts at four in 0.2 s:", asyncio.get_running_loop().time() - begun >= 0.19)


if __name__ == "__main__":
    asyncio.run(main())
