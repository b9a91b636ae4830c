"""React to a service that replies "429, come back in 0.2 s": the key pauses, and no attempt counts."""

import asyncio

from glidemq_async import GlideMQ, RateLimited, current_job

mq = GlideMQ("memory://", queue="geocoding")
refusals = iter([True])


@mq.task(key="osm")
async def locate(address: str) -> str:
    if next(refusals, False):
        raise RateLimited(0.2)
    return f"{address} after {current_job().attempts_made} failures"


async def main() -> None:
    async with mq, mq.worker(concurrency=5):
        for job in await locate.add_many([("Oak Street 1",), ("Elm Street 2",)]):
            print(await job.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
