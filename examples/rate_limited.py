"""React to a service that replies "429, come back in 0.2 s": the key pauses, and no attempt counts."""

import asyncio

from glidemq_async import Job, Queue, RateLimited, Worker

refusals = iter([True])


async def call(job: Job[str]) -> str:
    if next(refusals, False):
        raise RateLimited(0.2)
    return f"{job.data} after {job.attempts_made} failures"


async def main() -> None:
    async with (
        Queue("geocoding", "memory://") as queue,
        Worker("geocoding", call, queue.storage, concurrency=5),
    ):
        jobs = [await queue.add("call", address, key="osm") for address in ("Oak Street 1", "Elm Street 2")]
        for job in jobs:
            print(await job.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
