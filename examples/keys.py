"""Run the jobs of one key in order, one at a time. Different keys run in parallel and take turns."""

import asyncio

from glidemq_async import GlideMQ, current_job

# A queue in keyed mode refuses jobs without a key. Without `mode` a queue takes jobs of both kinds.
mq = GlideMQ("memory://", queue="bookings", mode="keyed")
running: list[str | None] = []


@mq.task
async def book(number: int) -> None:
    account = current_job().key
    others = running.count(account)
    running.append(account)
    await asyncio.sleep(0.005)
    running.remove(account)
    print(f"{account}: booking {number}, while {others} others of this account ran")


async def main() -> None:
    async with mq:
        for number, account in enumerate(("ada", "ada", "bob")):
            await book.options(key=account).add(number)
        await mq.run_worker(until_empty=True, concurrency=10)


if __name__ == "__main__":
    asyncio.run(main())
