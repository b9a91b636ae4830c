"""Declare functions as tasks: typed adds, typed results, and a worker."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from glidemq_async import Backoff, GlideMQ, current_job

mq = GlideMQ("memory://")


@dataclass
class Invoice:
    number: int
    due: datetime
    lines: list[str]


@mq.task(queue="emails", attempts=5, backoff=Backoff.exponential(1))
async def send_email(to: str, subject: str = "hi") -> str:
    return f"{subject}, {to} (job {current_job().id})"


@mq.task
def total(invoice: Invoice) -> Invoice:
    """Run in a thread, because this is a plain function."""
    return Invoice(invoice.number, invoice.due, [*invoice.lines, f"{len(invoice.lines)} lines"])


async def main() -> None:
    async with mq, mq.worker(concurrency=10):
        job = await send_email.add("ada@example.com", subject="hello")
        print(await job.result(timeout=10))
        await send_email.options(delay=60, key="tenant-7").add("ada@example.com")
        for job in await send_email.add_many([("a@x",), {"to": "b@x", "subject": "bye"}]):
            print(await job.result(timeout=10))

        due = datetime(2026, 12, 1, tzinfo=UTC)
        invoice = await (await total.add(Invoice(7, due, ["tea", "bread"]))).result(timeout=10)
        print(invoice.number, invoice.lines)

        # Arguments that do not fit the signature are refused before they are sent.
        try:
            await send_email.add(to=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except TypeError as error:
            print(error)
    # Calling a task calls its function directly.
    print(total(Invoice(8, due, [])).lines)


if __name__ == "__main__":
    asyncio.run(main())
