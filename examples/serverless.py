"""A function for AWS Lambda and similar runtimes that adds a job for each event.

The runtime freezes the process between two events, and calls the handler in a new event loop each time. The pool keeps
one producer with an open connection for the whole life of the process.
"""

import asyncio
import os
import tempfile
from typing import Any

from glidemq_async import Job, Worker, serverless_pool


async def place(order: dict[str, Any]) -> dict[str, Any]:
    orders = serverless_pool.get_producer("orders")  # the storage is $GLIDEMQ_URL
    job = await orders.add("ship", order, job_id=f"order-{order['number']}", attempts=5)
    return {"statusCode": 202, "body": f"{job.id}: {job.outcome}"}


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Accept one order. An event that the runtime delivers twice has the same id, so it adds one job."""
    return asyncio.run(place(event["order"]))


async def ship(job: Job[Any, Any]) -> None:
    print("shipped", job.data["item"])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["GLIDEMQ_URL"] = f"file://{directory}"  # in production redis://...
        for number, item in ((1, "tea"), (2, "milk"), (2, "milk")):
            print(handler({"order": {"number": number, "item": item}}, None)["body"])
        asyncio.run(Worker("orders", ship).run(until_empty=True))  # a worker is a separate, long-lived process


if __name__ == "__main__":
    main()
