"""Run the jobs of one key in order, one at a time. Different keys run in parallel and take turns."""

import asyncio

from glidemq_async import Job, Queue, Worker

running: list[str | None] = []


async def book(job: Job[str]) -> None:
    others = running.count(job.key)
    running.append(job.key)
    await asyncio.sleep(0.005)
    running.remove(job.key)
    print(f"{job.key}: {job.data}, while {others} others of this account ran")


async def main() -> None:
    async with Queue("bookings", "memory://", mode="keyed") as queue:
        for account in ("ada", "ada", "bob"):
            await queue.add("book", f"booking {await queue.count()}", key=account)
        await Worker("bookings", book, queue.storage, concurrency=10).run(until_empty=True)


if __name__ == "__main__":
    asyncio.run(main())
