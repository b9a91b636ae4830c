"""Store one job for several adds: simple, throttled and debounced deduplication, and a custom job id."""

import asyncio

from glidemq_async import Deduplication, Job, Queue, Worker


async def index(job: Job[str]) -> str:
    return f"indexed {job.data}"


async def main() -> None:
    async with Queue("search", "memory://") as queue:
        while_not_ended = Deduplication("page-7")
        first = await queue.add("index", "page 7", deduplication=while_not_ended)
        again = await queue.add("index", "page 7", deduplication=while_not_ended)
        print(again.outcome, again.id == first.id)

        at_most_each_hour = Deduplication("sitemap", ttl=3600, mode="throttle")
        print((await queue.add("index", "sitemap", deduplication=at_most_each_hour)).outcome)
        print((await queue.add("index", "sitemap", deduplication=at_most_each_hour)).outcome)

        last_of_a_burst = Deduplication("draft-3", ttl=0.1, mode="debounce")
        await queue.add("index", "d", deduplication=last_of_a_burst)
        await queue.add("index", "dr", deduplication=last_of_a_burst)
        typed = await queue.add("index", "draft", deduplication=last_of_a_burst)

        async with Worker("search", index, queue.storage):
            print(await typed.result(timeout=10))
            once = await queue.add("index", "page 8", job_id="page-8-v1")
            await once.result(timeout=10)
            known = await queue.add("index", "page 8", job_id="page-8-v1")
            print(known.outcome, known.return_value)


if __name__ == "__main__":
    asyncio.run(main())
