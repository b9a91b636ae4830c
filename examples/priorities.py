"""Run urgent jobs first: priority 0 before 1 before 2. Jobs of one priority run in order of arrival."""

import asyncio

from glidemq_async import GlideMQ

mq = GlideMQ("memory://", queue="mail")


@mq.task
async def send(letter: str) -> None:
    print(letter)


async def main() -> None:
    async with mq:
        await send.options(priority=9).add("newsletter")
        late = await send.options(priority=9).add("monthly report")
        await send.options(priority=2).add("invoice")
        await send.add("password reset")
        await late.change_priority(1)
        await mq.run_worker(until_empty=True)


if __name__ == "__main__":
    asyncio.run(main())
