"""Process many jobs in one call, with `Queue` and `Worker` directly, because tasks run one job in each call.

Each batch is one bulk insert. A bad row fails alone.
"""

import asyncio

from glidemq_async import BatchOptions, Job, JobFailed, Queue, Worker

table: list[int] = []


async def insert(jobs: list[Job[int, int]]) -> list[int | BaseException]:
    rows = [job.data for job in jobs if job.data >= 0]
    print("inserting", rows)
    table.extend(rows)
    return [job.data if job.data >= 0 else ValueError("a negative row") for job in jobs]


async def main() -> None:
    batch = BatchOptions(size=4, wait=60)
    async with Queue[int, int]("rows", "memory://") as queue, Worker("rows", insert, queue.storage, batch=batch):
        jobs = await queue.add_bulk([("insert", row) for row in (1, 2, -3, 4)])
        for job in jobs:
            try:
                print("stored", await job.result(timeout=10))
            except JobFailed as error:
                print("failed:", error.message)


if __name__ == "__main__":
    asyncio.run(main())
