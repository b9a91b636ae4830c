"""Run jobs in child processes. Their output is logged, and a job that crashes or hangs affects no other job."""

import asyncio
import os
import time

from glidemq_async import Job, JobFailed, Queue, Worker
from glidemq_async.executors import SubprocessExecutor


def convert(job: Job[str, str]) -> str:
    print("converting", job.data)
    if job.data == "bad.png":
        os.abort()
    if job.data == "endless.png":
        time.sleep(60)
    job.sync.update_progress(100)
    return job.data.replace(".png", ".webp")


async def main() -> None:
    executor = SubprocessExecutor(2, capture_output=True, grace=0.5)
    async with (
        Queue[str, str]("images", "memory://") as queue,
        Worker("images", convert, queue.storage, concurrency=2, executor=executor),
    ):
        jobs = [await queue.add("convert", name, timeout=2) for name in ("ada.png", "bad.png", "endless.png")]
        for job in jobs:
            try:
                print(await job.result(timeout=20))
            except JobFailed as error:
                print(error)
        print(await queue.get_job_logs(jobs[0].id))


if __name__ == "__main__":
    asyncio.run(main())
