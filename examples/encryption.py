"""Encrypt payloads, rotate the key while jobs wait, and refuse payloads of a removed key."""

import asyncio

from glidemq_async import Codec, Compression, Encryption, Job, JobFailed, Queue, Worker, generate_key

# Keep them in a secret store: a key decrypts every payload that was written with it.
OLD, NEW = generate_key(), generate_key()


async def greet(job: Job[dict[str, str], str]) -> str:
    return f"dear {job.data['name']}"


def codecs(keys: dict[str, bytes]) -> list[Codec]:
    return [Compression(threshold=500), Encryption(keys)]


async def main() -> None:
    async with Queue[dict[str, str], str]("letters", "memory://", codecs=codecs({"2025": OLD})) as before:
        first = await before.add("greet", {"name": "Ada"})
        print("stored:", first.data_size, "bytes")

        # The new key encrypts new payloads. The old one still decrypts waiting jobs.
        both = codecs({"2026": NEW, "2025": OLD})
        async with (
            Queue[dict[str, str], str]("letters", before.storage, codecs=both) as queue,
            Worker("letters", greet, before.storage, codecs=both),
        ):
            found = await queue.get_job(first.id)
            assert found is not None
            print(await found.result(timeout=10))
            print(await queue.add_and_wait("greet", {"name": "Grace"}, wait_timeout=10))

        # Without the old key its payloads cannot be read: such a job fails without a retry, and can be replayed.
        late = await before.add("greet", {"name": "Alan"}, attempts=3)
        async with Worker("letters", greet, before.storage, codecs=codecs({"2026": NEW})):
            try:
                await late.result(timeout=10)
            except JobFailed as error:
                print(error.error_type)
        await late.refresh()
        print(late.failure_cause, "after", late.attempts_made, "run")


if __name__ == "__main__":
    asyncio.run(main())
