"""Cases of the function that adds jobs, for each kind of job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack

from glidemq_async.functions.add import AddRequest
from glidemq_async.queues.add_buffer import MAX_JOBS
from tests.server_time.bench import MIB, NIL, Bench, largest

MOST: Final = 1_000
LISTS: Final = 128
LONGEST_LIST: Final = 1_000
"""The length from which a list of a line gets no more jobs at its end."""


async def add(b: Bench, options: Callable[[int], dict[str, Any]], ids: Sequence[str] = (), data: bytes = NIL) -> None:
    """Add 1,000 jobs on a queue with dead workers, in calls as large as a client sends them."""
    await add_packed(b, lambda n: msgpack.packb(given) if (given := options(n)) else b"", ids, data)


async def add_packed(b: Bench, extra: Callable[[int], bytes], ids: Sequence[str] = (), data: bytes = NIL) -> None:
    """Add 1,000 jobs with these encoded options."""
    await b.crowd()
    jobs = [AddRequest(ids[n] if ids else "", "n", data, b"", extra(n)) for n in range(MOST)]
    for start in range(0, MOST, MAX_JOBS):
        some = jobs[start : start + MAX_JOBS]
        assert len((await b.functions.add.jobs(some)).ids) == len(some)


@largest("addPlain")
async def plain(b: Bench) -> None:
    await add(b, lambda _: {})


@largest("addGroups")
async def groups(b: Bench) -> None:
    """Add groups of one job, which cost most."""
    kinds = [b"", msgpack.packb({"lifo": True}), *[msgpack.packb({"priority": n}) for n in (1, 2, 70_000)], b"ka"]
    await add_packed(b, lambda n: kinds[n % len(kinds)])


@largest("addGroups", "keyed")
async def groups_of_keys(b: Bench) -> None:
    await add_packed(b, lambda n: f"k{n}".encode())
    await add_packed(b, lambda n: f"k{n % 7}".encode())


@largest("addGroups", "keyed with limits")
async def groups_of_keys_with_limits(b: Bench) -> None:
    await b.functions.limits.set_key("", rate="1000 60000", concurrency="1000", bucket="1000000 1000000")
    await add_packed(b, lambda n: f"k{n}".encode())


async def fill_lists(b: Bench) -> list[str]:
    """Add jobs of some keys until the lists behind the texts of their lines have their greatest length."""
    keys = [f"k{n}" for n in range(LISTS)]
    while await b.command("LLEN", f"{b.base}:keyq:k0") < LONGEST_LIST:
        await b.functions.add.jobs([AddRequest("", "n", NIL, b"", f"k{key}".encode()) for key in keys * 4])
    await b.crowd()
    return keys


@largest("addGroups", "keyed, the lists of all lines become long")
async def groups_behind_lists(b: Bench) -> None:
    keys = await fill_lists(b)
    await b.functions.add.jobs([AddRequest("", "n", NIL, b"", f"k{key}".encode()) for key in keys])


@largest("addJob", "keyed, with priorities behind long lists")
async def priorities_behind_lists(b: Bench) -> None:
    keys = await fill_lists(b)
    extras = [msgpack.packb({"key": key, "priority": 5}) for key in keys]
    await b.functions.add.jobs([AddRequest("", "n", NIL, b"", extra) for extra in extras])


@largest("addGroups", "payloads of 1 kB")
async def groups_with_data(b: Bench) -> None:
    lifo = msgpack.packb({"lifo": True})
    await add_packed(b, lambda _: lifo, data=b"x" * 1_000)


@largest("addJob", "plain, own ids")
async def own_ids(b: Bench) -> None:
    ids = [f"own{n}" for n in range(MOST)]
    await add(b, lambda _: {}, ids)
    await add(b, lambda _: {}, ids)
    await add(b, lambda _: {}, [str(10 * n + 9_000) for n in range(MOST)])
    await add(b, lambda _: {})


@largest("addPlain", "payloads of 1 kB")
async def with_data(b: Bench) -> None:
    await add(b, lambda _: {}, data=b"x" * 1_000)


@largest("addPlain", "payloads of 1 MB")
async def with_large_data(b: Bench) -> None:
    await b.add(2, b"x" * MIB)


@largest("addJob", "delayed")
async def delayed(b: Bench) -> None:
    await add(b, lambda n: {"delay": 60_000 + n})


@largest("addJob", "prioritized")
async def prioritized(b: Bench) -> None:
    await add(b, lambda n: {"priority": 1 + n % 5, "ttl": 60_000})


@largest("addJob", "awaited, LIFO")
async def awaited(b: Bench) -> None:
    await add(b, lambda n: {"lifo": True, "reply": f"channel{n % 7}"})


@largest("addJob", "keyed")
async def keyed(b: Bench) -> None:
    await add(b, lambda n: {"key": f"k{n}"})


@largest("addJob", "keyed with limits")
async def keyed_with_limits(b: Bench) -> None:
    await b.functions.limits.set_key("", rate="1000 60000", concurrency="1000", bucket="1000000 1000000")
    await add(b, lambda n: {"key": f"k{n}", "priority": n % 3})


@largest("addPlain", "limits of the queue, 300 consumers")
async def under_limits(b: Bench) -> None:
    await b.add(300)
    for number in range(300):
        await b.claim(1, consumer=f"worker{number}")
    await b.functions.limits.set(rate="100000 60000", concurrency="100000")
    await add(b, lambda _: {})


@largest("addJob", "duplicates")
async def duplicates(b: Bench) -> None:
    async def twice(mode: str) -> None:
        for _ in range(2):
            await add(b, lambda n: {"dedup": {"id": f"{mode}{n}", "mode": mode, "ttl": 60_000}})

    for mode in ("simple", "debounce", "throttle", "keep_last"):
        await twice(mode)


@largest("addJob", "replaced, keyed with limits")
async def replaced(b: Bench) -> None:
    await b.functions.limits.set_key("", rate="1000 60000", concurrency="1000", bucket="1000000 1000000")
    for _ in range(2):
        await add(b, lambda n: {"key": f"k{n % 700}", "dedup": {"id": f"d{n}", "mode": "debounce", "ttl": 60_000}})
