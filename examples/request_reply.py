"""Add a job and wait for its result. An error of the task is raised as JobFailed."""

import asyncio

from glidemq_async import GlideMQ, JobFailed

mq = GlideMQ("memory://", queue="calculator")


@mq.task
async def divide(dividend: float, divisor: float) -> float:
    return dividend / divisor


async def main() -> None:
    async with mq, mq.worker():
        job = await divide.add(22.0, 7.0)
        print(await job.result(timeout=10))
        try:
            await (await divide.add(1.0, 0.0)).result(timeout=10)
        except JobFailed as error:
            print(error.error_type)


if __name__ == "__main__":
    asyncio.run(main())
