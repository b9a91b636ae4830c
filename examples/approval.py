"""An order that waits for an approval without occupying a worker. The answer may come before, or days later."""

import asyncio

from glidemq_async import GlideMQ, QueueEvents, current_job

mq = GlideMQ("memory://")


@mq.task(queue="orders")
async def checkout(order: str, cents: int) -> str:
    job = current_job()
    if cents < 10_000:
        return f"{order}: shipped"
    if job.resumed_by is None:
        await job.suspend(f"{order} costs {cents / 100:.2f}", timeout=3 * 24 * 3600, signals=["approved", "rejected"])
    if job.resumed_by == "timeout":
        return f"{order}: nobody answered"
    answer = job.signals[0]
    return f"{order}: {answer.name} by {answer.data}"


async def main() -> None:
    async with mq, mq.worker(concurrency=1, handle_signals=False), QueueEvents("orders", mq.storage) as events:
        large = await checkout.add("a piano", 250_000)
        async for event in events:
            if getattr(event, "kind", "") == "suspended":
                break
        await large.refresh()
        assert large.suspension is not None
        print(f"{large.state}: {large.suspension.reason}")

        # The only slot of the worker is free.
        print(await (await checkout.add("a book", 2_000)).result(timeout=10))

        await mq.queue("orders").signal(large.id, "approved", "ada")
        print(await large.result(timeout=10))

        # A signal that comes early is kept.
        early = await checkout.add("a boat", 900_000)
        await early.signal("rejected", "bob")
        print(await early.result(timeout=10))


asyncio.run(main())
