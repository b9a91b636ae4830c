"""Encrypt payloads, rotate the key while jobs wait, and refuse payloads of a removed key."""

import asyncio

from glidemq_async import Compression, Encryption, GlideMQ, JobFailed, generate_key
from glidemq_async.storage import StorageLike

# Keep them in a secret store: a key decrypts every payload that was written with it.
OLD, NEW = generate_key(), generate_key()


async def greet(name: str) -> str:
    return f"dear {name}"


def app(storage: StorageLike, keys: dict[str, bytes]) -> GlideMQ:
    """The app of one release. The first key encrypts; all keys decrypt."""
    return GlideMQ(storage, queue="letters", codecs=[Compression(threshold=500), Encryption(keys)])


async def main() -> None:
    async with app("memory://", {"2025": OLD}) as before:
        old_greet = before.task(greet)
        first = await old_greet.add("Ada")
        print("stored:", first.data_size, "bytes")

        # The new key encrypts new payloads. The old one still decrypts waiting jobs.
        both = app(before.storage, {"2026": NEW, "2025": OLD})
        new_greet = both.task(greet)
        async with both, both.worker():
            print(await new_greet.result(first.id, timeout=10))
            print(await (await new_greet.add("Grace")).result(timeout=10))

        # Without the old key its payloads cannot be read: such a job fails without a retry, and can be replayed.
        late = await old_greet.options(attempts=3).add("Alan")
        after = app(before.storage, {"2026": NEW})
        after.task(greet)
        async with after, after.worker():
            try:
                await late.result(timeout=10)
            except JobFailed as error:
                print(error.error_type)
        await late.refresh()
        print(late.failure_cause, "after", late.attempts_made, "run")


if __name__ == "__main__":
    asyncio.run(main())
