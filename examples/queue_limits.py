"""Limit a whole queue, for all its workers together, and change the limits while they run."""

import asyncio

from glidemq_async import GlideMQ, RateLimit, current_job

mq = GlideMQ("memory://", queue="partner-api")
running: set[str] = set()
highest = [0]


@mq.task
async def call() -> None:
    job_id = current_job().id
    running.add(job_id)
    highest[0] = max(highest[0], len(running))
    await asyncio.sleep(0.01)
    running.remove(job_id)


async def run_eight() -> None:
    for job in await call.add_many([()] * 8):
        await job.result(timeout=10)


async def main() -> None:
    async with mq, mq.worker(concurrency=4), mq.worker(concurrency=4):
        queue = mq.queue("partner-api")
        await queue.set_global_concurrency(3)
        await run_eight()
        print("highest number of running jobs:", highest[0])
        await queue.set_global_concurrency(None)
        await queue.set_global_rate_limit(RateLimit(4, 0.2))
        begun = asyncio.get_running_loop().time()
        await run_eight()
        print("eight starts at four in 0.2 s:", asyncio.get_running_loop().time() - begun >= 0.19)


if __name__ == "__main__":
    asyncio.run(main())
