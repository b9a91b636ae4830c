"""Use stored results as a cache: the job's id is the key of the cache."""

import asyncio

from glidemq_async import Execution, GlideMQ

mq = GlideMQ("memory://", queue="lengths")


@mq.task
async def measure(text: str) -> int:
    print("measuring", text)
    return len(text)


def keep_longer(execution: Execution) -> None:
    if execution.state == "completed" and execution.result > 10:
        execution.result_ttl = 24 * 3600


async def length(text: str) -> int:
    job = await measure.options(job_id=f"length-{text}", result_ttl=1).add(text)
    return await job.result(timeout=10)


async def main() -> None:
    async with mq, mq.worker(after_execution=keep_longer):
        for text in ("short", "short", "a long text", "a long text"):
            print(await length(text))
        await asyncio.sleep(1.1)
        print(await length("short"), await length("a long text"))
        # Back to the retention of the queue.
        await mq.queue("lengths").update_result_ttl("length-a long text", None)


if __name__ == "__main__":
    asyncio.run(main())
