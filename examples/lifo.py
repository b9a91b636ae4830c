"""Run the newest job first, for example the page that a user is looking at."""

import asyncio

from glidemq_async import GlideMQ

mq = GlideMQ("memory://", queue="previews")


@mq.task(lifo=True)
async def render(page: str) -> None:
    print(page)


async def main() -> None:
    async with mq:
        for page in ["page 1", "page 2", "page 3"]:
            await render.add(page)
        await mq.run_worker(until_empty=True)


if __name__ == "__main__":
    asyncio.run(main())
