"""Start a job later, change its delay, or start it now."""

import asyncio

from glidemq_async import GlideMQ

mq = GlideMQ("memory://", queue="reminders")


@mq.task
async def remind(text: str) -> None:
    print(text)


async def main() -> None:
    async with mq:
        tea = await remind.options(delay=60).add("tea")
        bath = await remind.options(delay=3600).add("bath")
        print(tea.state, await mq.queue("reminders").count())
        await bath.change_delay(0.2)
        await tea.promote()
        async with mq.worker():
            await bath.result(timeout=10)


if __name__ == "__main__":
    asyncio.run(main())
