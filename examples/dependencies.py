"""Inject dependencies into tasks, per job or per worker, and replace them in a test."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from glidemq_async import Depends, GlideMQ


@asynccontextmanager
async def lifespan(app: GlideMQ[dict[str, str]]) -> AsyncGenerator[dict[str, str]]:
    print("worker starts with", len(app.tasks), "task")
    yield {"dsn": "db://prod"}
    print("worker has stopped")


mq = GlideMQ("memory://", lifespan=lifespan)


async def pool() -> AsyncGenerator[str]:
    """Provide one pool for the whole worker."""
    print("connect to", mq.state["dsn"])
    yield "pool"
    print("disconnect")


async def session(connections: str = Depends(pool, scope="worker")) -> AsyncGenerator[str]:
    """Provide one value per job. The code after the yield runs when the job has ended."""
    yield f"session of {connections}"
    print("commit")


@mq.task
async def rename(user: int, name: str, db: str = Depends(session)) -> str:
    return f"user {user} is {name}, by a {db}"


async def main() -> None:
    async with mq:
        jobs = await rename.add_many([(1, "Ada"), (2, "Bob")])
        await mq.run_worker(concurrency=1, until_empty=True)
        for job in jobs:
            print(await job.result(timeout=10))

        with mq.override(session, lambda: "fake"):
            job = await rename.add(3, "Eve")
            await mq.run_worker(until_empty=True)
            print(await job.result(timeout=10))
    # Calling a task calls its function. Dependencies are then ordinary arguments.
    print(await rename(4, "Dan", db="mock"))


if __name__ == "__main__":
    asyncio.run(main())
