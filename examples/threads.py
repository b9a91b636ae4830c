"""Run plain functions in threads. They log, report progress, and check whether they must stop."""

import asyncio

from glidemq_async import Job, Queue, QueueEvent, QueueEvents, Worker
from glidemq_async.executors import ThreadExecutor


def copy(job: Job[list[str], int]) -> int:
    for number, name in enumerate(job.data, 1):
        if job.abort.is_set():
            break
        job.sync.log(f"copied {name}")
        job.sync.update_progress(100 * number // len(job.data))
    return len(job.data)


async def main() -> None:
    async with (
        Queue[list[str], int]("files", "memory://") as queue,
        QueueEvents("files", queue.storage) as events,
        # The worker claims up to ten jobs, and two of them run at the same time.
        Worker("files", copy, queue.storage, concurrency=10, executor=ThreadExecutor(2)),
    ):
        job = await queue.add("copy", ["a.txt", "b.txt"])
        print(await job.result(timeout=10), "files,", await queue.get_job_logs(job.id))
        async for event in events:
            if isinstance(event, QueueEvent) and event.kind == "progress":
                print("progress told")
            if isinstance(event, QueueEvent) and event.kind == "completed":
                break


if __name__ == "__main__":
    asyncio.run(main())
