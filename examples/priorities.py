"""Run urgent jobs first: priority 0 before 1 before 2. Jobs of one priority run in order of arrival."""

import asyncio

from glidemq_async import Job, Queue, Worker


async def show(job: Job[str]) -> None:
    print(job.data)


async def main() -> None:
    async with Queue("mail", "memory://") as queue:
        await queue.add("send", "newsletter", priority=9)
        late = await queue.add("send", "monthly report", priority=9)
        await queue.add("send", "invoice", priority=2)
        await queue.add("send", "password reset")
        await late.change_priority(1)
        await Worker("mail", show, queue.storage).run(until_empty=True)


if __name__ == "__main__":
    asyncio.run(main())
