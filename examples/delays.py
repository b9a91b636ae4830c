"""Start a job later, change its delay, or start it now."""

import asyncio

from glidemq_async import Job, Queue, Worker


async def remind(job: Job[str]) -> None:
    print(job.data)


async def main() -> None:
    async with Queue("reminders", "memory://") as queue:
        tea = await queue.add("remind", "tea", delay=60)
        bath = await queue.add("remind", "bath", delay=3600)
        print(tea.state, await queue.count())
        await bath.change_delay(0.2)
        await tea.promote()
        async with Worker("reminders", remind, queue.storage):
            await bath.result(timeout=10)


if __name__ == "__main__":
    asyncio.run(main())
