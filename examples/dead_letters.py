"""Move jobs that fail for good to a separate queue, inspect them, fix the cause, and run them again."""

import asyncio

from glidemq_async import Job, Queue, UnrecoverableError, Worker

addresses = {"ada": "ada@example.com"}


async def send(job: Job[str, str]) -> str:
    if job.data not in addresses:
        raise UnrecoverableError(f"no address for {job.data}")
    return f"sent to {addresses[job.data]}"


async def main() -> None:
    async with (
        Queue[str, str]("emails", "memory://") as emails,
        Queue[str, str]("emails-dead", emails.storage) as dead,
    ):
        jobs = await emails.add_bulk([("welcome", "ada"), ("welcome", "grace")])
        await Worker("emails", send, emails.storage, dead_letter_queue="emails-dead").run(until_empty=True)

        for job in await dead.get_dead_letter_jobs():
            if origin := job.dead_letter:
                print(f"{job.name} of {origin.queue}: {origin.cause}, {origin.reason}")

        addresses["grace"] = "grace@example.com"
        print("replayed:", await dead.replay_dead_letter_jobs(cause="unrecoverable"))
        async with Worker("emails", send, emails.storage):
            for job in jobs:
                print(await job.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
