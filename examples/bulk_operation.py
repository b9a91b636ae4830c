"""Fix the cause of failures, and retry the failed jobs at a rate: preview, start, progress."""

import asyncio

from glidemq_async import GlideMQ
from glidemq_async.ops import Ops

mq = GlideMQ("memory://", queue="emails")
addresses = {"ada": "ada@example.com"}


@mq.task
async def welcome(user: str) -> str:
    return f"sent to {addresses[user]}"


async def main() -> None:
    async with mq, Ops.of(mq) as ops:
        await welcome.add_many([("ada",), ("grace",), ("alan",)])
        await mq.run_worker(until_empty=True)

        addresses.update(grace="grace@example.com", alan="alan@example.com")
        preview = await ops.preview("retry", "queue:emails state:failed", reason="addresses were added")
        print("failed:", preview.count)

        async with ops.worker(), mq.worker():
            await ops.start(preview.operation_id, preview.ticket, rate=50)
            ended = await ops.wait_operation(preview.operation_id, timeout=30)
        print(f"{ended.state}: {ended.done} retried")


if __name__ == "__main__":
    asyncio.run(main())
