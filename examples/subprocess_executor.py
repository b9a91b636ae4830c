"""Run tasks in child processes. A job that crashes or hangs affects no other job."""

import asyncio
import os
import time

from glidemq_async import GlideMQ, JobFailed, current_job
from glidemq_async.executors import SubprocessExecutor

mq = GlideMQ("memory://")
# `executor="subprocess"` has the default options. With capture_output, the log of a job contains its output.
processes = SubprocessExecutor(2, capture_output=True, grace=0.5)


@mq.task(queue="images", executor=processes, timeout=2)
def convert(name: str) -> str:
    print("converting", name)
    if name == "bad.png":
        os.abort()
    if name == "endless.png":
        time.sleep(60)
    current_job().sync.update_progress(100)
    return name.replace(".png", ".webp")


async def main() -> None:
    async with mq, mq.worker(concurrency=2):
        jobs = [await convert.add(name) for name in ("ada.png", "bad.png", "endless.png")]
        for job in jobs:
            try:
                print(await job.result(timeout=20))
            except JobFailed as error:
                print(error)
        print(await mq.queue("images").get_job_logs(jobs[0].id))


if __name__ == "__main__":
    asyncio.run(main())
