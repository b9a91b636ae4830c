"""Limit a key: concurrency, a sliding window, a token bucket with costs, and a pause."""

import asyncio
from datetime import datetime, timedelta

from glidemq_async import GlideMQ, RateLimit, TokenBucket, current_job

mq = GlideMQ("memory://", queue="crawler")
started: dict[str, list[datetime]] = {}


@mq.task
async def fetch(page: int) -> None:
    job = current_job()
    if job.key and job.processed_at:
        started.setdefault(job.key, []).append(job.processed_at)


async def main() -> None:
    async with mq:
        queue = mq.queue("crawler")
        # The default for sites without a limit. The queue stores limits; an add never changes them.
        await queue.set_key_limits(None, concurrency=2)
        await queue.set_key_limits("slow.example", concurrency=5, rate_limit=RateLimit(2, 0.3))
        await queue.set_key_limits("api.example", concurrency=5, token_bucket=TokenBucket(capacity=10, refill_rate=20))
        await queue.pause_key("down.example", 3600)
        jobs = [await fetch.options(key="slow.example").add(page) for page in range(3)]
        jobs += [await fetch.options(key="api.example", cost=8).add(page) for page in range(2)]
        await fetch.options(key="down.example").add(0)
        async with mq.worker(concurrency=10):
            for job in jobs:
                await job.result(timeout=10)
        window = timedelta(seconds=0.3)
        first, second, third = started["slow.example"]
        print("the third start waits for the window:", third - first >= window > second - first)
        one, two = started["api.example"]
        print("16 tokens of 10 take a while:", two - one >= window)
        print("paused:", [job.key for job in await queue.get_jobs("rate-limited")])


if __name__ == "__main__":
    asyncio.run(main())
