"""Store one job for several adds: simple, throttled and debounced deduplication, and a custom job id."""

import asyncio

from glidemq_async import Deduplication, GlideMQ

mq = GlideMQ("memory://", queue="search")


@mq.task
async def index(page: str) -> str:
    return f"indexed {page}"


async def main() -> None:
    async with mq:
        while_not_ended = index.options(deduplication=Deduplication("page-7"))
        first = await while_not_ended.add("page 7")
        again = await while_not_ended.add("page 7")
        print(again.outcome, again.id == first.id)

        at_most_each_hour = index.options(deduplication=Deduplication("sitemap", ttl=3600, mode="throttle"))
        print((await at_most_each_hour.add("sitemap")).outcome)
        print((await at_most_each_hour.add("sitemap")).outcome)

        last_of_a_burst = index.options(deduplication=Deduplication("draft-3", ttl=0.1, mode="debounce"))
        await last_of_a_burst.add("d")
        await last_of_a_burst.add("dr")
        typed = await last_of_a_burst.add("draft")

        async with mq.worker():
            print(await typed.result(timeout=10))
            once = index.options(job_id="page-8-v1")
            await (await once.add("page 8")).result(timeout=10)
            known = await once.add("page 8")
            print(known.outcome, known.return_value)


if __name__ == "__main__":
    asyncio.run(main())
