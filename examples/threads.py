"""Run plain functions in threads. They log, report progress, and check whether they must stop."""

import asyncio

from glidemq_async import GlideMQ, QueueEvent, QueueEvents, current_job
from glidemq_async.executors import ThreadExecutor

mq = GlideMQ("memory://")


@mq.task(queue="files")
def copy(names: list[str]) -> int:
    job = current_job()
    for number, name in enumerate(names, 1):
        if job.abort.is_set():
            break
        job.sync.log(f"copied {name}")
        job.sync.update_progress(100 * number // len(names))
    return len(names)


async def main() -> None:
    async with (
        mq,
        QueueEvents("files", mq.storage) as events,
        # The worker claims up to ten jobs, and two of them run at the same time.
        mq.worker(concurrency=10, executor=ThreadExecutor(2)),
    ):
        job = await copy.add(["a.txt", "b.txt"])
        print(await job.result(timeout=10), "files,", await mq.queue("files").get_job_logs(job.id))
        async for event in events:
            if isinstance(event, QueueEvent) and event.kind == "progress":
                print("the progress changed")
            if isinstance(event, QueueEvent) and event.kind == "completed":
                break


if __name__ == "__main__":
    asyncio.run(main())
