"""An order whose payment is not repeated when its job runs again, and is refunded when it cannot be shipped."""

import asyncio
from dataclasses import dataclass

from glidemq_async import GlideMQ, StepFailed, current_job, workflows

mq = GlideMQ("memory://", queue="orders")


@dataclass
class Receipt:
    order: str
    cents: int
    payment: str


@mq.step
async def pay(order: str, cents: int, token: str) -> Receipt:
    print("pay", order, cents)
    return Receipt(order, cents, token)


@mq.step
async def reserve(item: str) -> str:
    print("reserve", item)
    return item


@mq.step(attempts=2)
async def ship(order: str) -> str:
    if order == "order-2":
        raise ConnectionError("no carrier")
    print("ship", order)
    return f"parcel of {order}"


@mq.step
async def refund(receipt: Receipt) -> None:
    print("refund", receipt.order, receipt.cents)


@mq.workflow(attempts=3)
async def fulfil(order: str, items: list[str]) -> str:
    token = await workflows.uuid4()  # the same in each run, as an idempotency key of the payment
    receipt = await pay(order, 1_000, str(token))
    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(reserve(item))
    if current_job().fence == 1:
        raise RuntimeError("the worker breaks here")
    try:
        return await ship(order)
    except StepFailed as failure:
        await refund(receipt)
        return f"refunded because of {failure.error_type}: {failure.message}"


async def main() -> None:
    async with mq, mq.worker():
        run = await fulfil.start("order-1", ["book", "pen"], id="order-1")
        print(await run.result(timeout=10))
        run = await fulfil.start("order-2", ["book", "pen"], id="order-2")
        print(await run.result(timeout=10))
        steps = await run.steps()
        print(", ".join(f"{step.name} {step.status}" for step in steps if step.name in ("pay", "ship", "refund")))


if __name__ == "__main__":
    asyncio.run(main())
