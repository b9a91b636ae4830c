"""Add a job and wait for its result. An error of the task is raised as JobFailed."""

import asyncio

from glidemq_async import GlideMQ, JobFailed

mq = GlideMQ("memory://", queue="calculator")


@mq.task
async def divide(dividend: float, divisor: float) -> float:
    return dividend / divisor


async def main() -> None:
    async with mq, mq.worker():
        print(await divide.add_and_wait(22.0, 7.0))
        try:
            await divide.wait_options(wait_timeout=10).add_and_wait(1.0, 0.0)
        except JobFailed as error:
            print(error.error_type)


if __name__ == "__main__":
    asyncio.run(main())
