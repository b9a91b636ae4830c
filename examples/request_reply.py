"""Add a job and wait for its result. An error of the handler is raised as JobFailed."""

import asyncio

from glidemq_async import Job, JobFailed, Queue, Worker


async def divide(job: Job[list[float], float]) -> float:
    dividend, divisor = job.data
    return dividend / divisor


async def main() -> None:
    async with (
        Queue[list[float], float]("calculator", "memory://") as queue,
        Worker("calculator", divide, queue.storage, concurrency=10),
    ):
        print(await queue.add_and_wait("divide", [22.0, 7.0], wait_timeout=10))
        try:
            await queue.add_and_wait("divide", [1.0, 0.0], wait_timeout=10)
        except JobFailed as error:
            print(error.error_type)


if __name__ == "__main__":
    asyncio.run(main())
