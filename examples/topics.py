"""A topic with three subscriptions: invoices, an audit log, and a replay of the last messages."""

import asyncio
from typing import Any

from glidemq_async import GlideMQ, current_job

mq = GlideMQ("memory://")


@mq.subscribe("orders", "order.paid.*", name="invoices", attempts=5)
async def invoice(order: dict[str, Any]) -> None:
    print("invoice for order", order["id"])


@mq.subscribe("orders", ">", "!order.test.>", name="audit")
async def audit(order: dict[str, Any]) -> None:
    print("audit:", current_job().headers["subject"], order["id"])


async def main() -> None:
    async with mq:
        orders = mq.topic("orders")
        first = await orders.publish("order.paid.eu", {"id": 1})
        await orders.publish_many([("order.sent.eu", {"id": 1}), ("order.test.eu", {"id": 2})])
        await mq.run_worker(["orders.invoices"], until_empty=True)
        await mq.run_worker(["orders.audit"], until_empty=True)

        await orders.subscription("invoices").replay(first)
        await mq.run_worker(["orders.invoices"], until_empty=True)

        for one in (await orders.info()).subscriptions:
            print(f"{one.name}: {one.jobs} jobs, {one.lag} unread")


asyncio.run(main())
