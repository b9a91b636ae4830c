"""Test without waiting, on a server whose clock the test moves. With pytest, use the fixture `glidemq`."""

import asyncio

from glidemq_async import Backoff, GlideMQ, current_job
from glidemq_async.testing import Harness

mq = GlideMQ(queue="emails")


@mq.task(attempts=2, backoff=Backoff.fixed(600))
async def welcome(address: str) -> str:
    if current_job().attempts_made == 0:
        raise ConnectionError("the mail server is down")
    return f"welcome: {address}"


@mq.task
async def ask_for_feedback(address: str) -> str:
    return f"how is it going: {address}"


async def sign_up(address: str) -> None:
    await welcome.add(address)
    await ask_for_feedback.options(delay=7 * 24 * 3600).add(address)


async def main() -> None:
    async with Harness() as harness:
        harness.use(mq)
        await sign_up("ada@example.com")
        await harness.assert_added("emails", "welcome")

        print("now:", [job.return_value for job in await harness.drain(mq)])
        await harness.clock.advance(600)
        print("ten minutes later:", [job.return_value for job in await harness.drain(mq)])
        await harness.clock.advance(7 * 24 * 3600)
        print("a week later:", [job.return_value for job in await harness.drain(mq)])


if __name__ == "__main__":
    asyncio.run(main())
