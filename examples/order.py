"""An order with payment, approval and compensation, as one function that survives crashes and deployments.

The customer pays, a person approves the order within three days, and the parcel is sent. If nobody approves, or the
parcel cannot be sent, the payment is refunded. While the run waits for the person it holds no slot of the worker.
"""

import asyncio
from dataclasses import dataclass

from glidemq_async import GlideMQ, StepFailed, workflows

mq = GlideMQ()


@dataclass(frozen=True)
class Order:
    number: str
    cents: int


@mq.signal
@dataclass
class Approved:
    by: str


@mq.signal
@dataclass
class Rejected:
    by: str
    reason: str


@mq.step(attempts=3)
async def charge(order: Order, token: str) -> str:
    print(f"{order.number}: {order.cents / 100:.2f} charged")
    return f"payment {order.number}"


@mq.step(attempts=5)
async def refund(payment: str) -> None:
    print(f"{payment} refunded")


@mq.step(attempts=2)
async def send_parcel(order: Order) -> str:
    if order.cents > 50_000:
        raise ValueError("the parcel is too heavy")
    return f"parcel {order.number}"


@mq.workflow(queue="orders", attempts=10)
async def fulfil(order: Order) -> str:
    # The token is recorded, so a repeated run passes the same one, and the payment service recognizes a repetition.
    payment = await charge(order, str(await workflows.uuid4()))
    try:
        answer = await workflows.receive(Approved, Rejected, timeout="3d")
    except TimeoutError:
        await refund(payment)
        return "nobody answered, refunded"
    if isinstance(answer, Rejected):
        await refund(payment)
        return f"rejected by {answer.by} ({answer.reason}), refunded"
    try:
        return await send_parcel(order)
    except StepFailed as failure:
        await refund(payment)
        return f"{failure.message}, refunded"


async def main() -> None:
    """Run three orders with different endings."""
    answers = {
        Order("small", 1_000): Approved(by="ada"),
        Order("large", 90_000): Approved(by="ada"),
        Order("doubtful", 2_000): Rejected(by="eve", reason="unknown address"),
    }
    async with mq, mq.worker():
        for order, answer in answers.items():
            run = await fulfil.start(order)
            await run.send(answer)
            print(f"{order.number}: {await run.result(30)}")


if __name__ == "__main__":
    asyncio.run(main())
