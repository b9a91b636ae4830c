"""Use `Queue` and `Worker` directly, without an app: the smallest complete program. For tasks see tasks.py."""

import asyncio

from glidemq_async import Job, Queue, Worker


async def process(job: Job[int, int]) -> int:
    return job.data * job.data


async def main() -> None:
    async with Queue[int, int]("squares", "memory://") as queue:
        jobs = await queue.add_bulk([("square", n) for n in range(5)])
        async with Worker("squares", process, queue.storage, concurrency=10):
            print([await job.result(timeout=10) for job in jobs])


if __name__ == "__main__":
    asyncio.run(main())
