"""Move jobs that fail for good to a separate queue, inspect them, fix the cause, and run them again."""

import asyncio

from glidemq_async import GlideMQ, UnrecoverableError

mq = GlideMQ("memory://", queue="emails")
addresses = {"ada": "ada@example.com"}


@mq.task
async def welcome(user: str) -> str:
    if user not in addresses:
        raise UnrecoverableError(f"no address for {user}")
    return f"sent to {addresses[user]}"


async def main() -> None:
    async with mq:
        jobs = await welcome.add_many([("ada",), ("grace",)])
        await mq.run_worker(until_empty=True, dead_letter_queue="emails-dead")

        dead = mq.queue("emails-dead")
        for job in await dead.get_dead_letter_jobs():
            if origin := job.dead_letter:
                print(f"{job.name} of {origin.queue}: {origin.cause}, {origin.reason}")

        addresses["grace"] = "grace@example.com"
        print("replayed:", await dead.replay_dead_letter_jobs(cause="unrecoverable"))
        async with mq.worker():
            for job in jobs:
                print(await job.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
