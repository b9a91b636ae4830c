"""Use stored results as a cache: the job's id is the key of the cache."""

import asyncio

from glidemq_async import Execution, Job, Queue, Worker


async def measure(job: Job[str, int]) -> int:
    print("measuring", job.data)
    return len(job.data)


def keep_longer(execution: Execution) -> None:
    if execution.state == "completed" and execution.result > 10:
        execution.result_ttl = 24 * 3600


async def length(queue: Queue[str, int], text: str) -> int:
    job = await queue.add("measure", text, job_id=f"length-{text}", result_ttl=1)
    return await job.result(timeout=10)


async def main() -> None:
    async with (
        Queue[str, int]("lengths", "memory://") as queue,
        Worker("lengths", measure, queue.storage, after_execution=keep_longer),
    ):
        for text in ("short", "short", "a long text", "a long text"):
            print(await length(queue, text))
        await asyncio.sleep(1.1)
        print(await length(queue, "short"), await length(queue, "a long text"))
        await queue.update_result_ttl("length-a long text", None)  # back to the retention of the queue


if __name__ == "__main__":
    asyncio.run(main())
