"""Test without waiting, on a server whose clock the test moves. With pytest, use the fixture `glidemq`."""

import asyncio

from glidemq_async import Backoff, Job, Queue
from glidemq_async.testing import Harness


async def sign_up(queue: Queue[str, str], address: str) -> None:
    await queue.add("welcome", address, attempts=2, backoff=Backoff.fixed(600))
    await queue.add("how is it going", address, delay=7 * 24 * 3600)


async def send(job: Job[str, str]) -> str:
    if job.attempts_made == 0 and job.name == "welcome":
        raise ConnectionError("the mail server is down")
    return f"{job.name}: {job.data}"


async def main() -> None:
    async with Harness() as harness:
        await sign_up(harness.queue("emails"), "ada@example.com")
        await harness.assert_added("emails", "welcome", data="ada@example.com")

        print("now:", [job.return_value for job in await harness.drain("emails", send)])
        await harness.clock.advance(600)
        print("ten minutes later:", [job.return_value for job in await harness.drain("emails", send)])
        await harness.clock.advance(7 * 24 * 3600)
        print("a week later:", [job.return_value for job in await harness.drain("emails", send)])


if __name__ == "__main__":
    asyncio.run(main())
