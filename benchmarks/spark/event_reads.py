"""Measure the read rate of events, for entries of the sizes that single adds, busy workers and bulk adds write."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from statistics import median
from typing import Any, Final

import redis

from benchmarks.spark.bulk_writes import empty
from benchmarks.spark.setup import Row, Setup
from glidemq_async import Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.spark import register

TASKS: Final = 2
ROUNDS: Final = 3
#: Events per entry.
ENTRIES: Final = {"one to an entry": 1, "eight to an entry": 8, "a hundred to an entry": 100}


def _added(rows: int, n: int) -> Iterator[dict[str, str | int]]:
    """Yield entries of n events each, in the form that the server functions write."""
    for seq in range(0, rows, n):
        words = "\x1f".join(f"order-{seq + i:08}\x1fsend-mail" for i in range(min(n, rows - seq)))
        yield {"seq": seq, "n": min(n, rows - seq), "t": time.time_ns() // 1_000_000, "e": f"added\x1f{words}"}


def write_entries(setup: Setup, queue: str, entries: Iterable[Mapping[str, str | int]], total: int) -> None:
    """Write entries to the event stream of a queue directly, so that no limit trims them."""
    asyncio.run(_open(setup.url, queue))
    rows = iter(entries)
    # Any: the types of redis-py do not describe its replies.
    client: Any = redis.Redis.from_url(setup.url)
    with client:
        while chunk := list(islice(rows, 1_000)):
            pipe = client.pipeline(transaction=False)
            for fields in chunk:
                pipe.xadd(f"glide:{{{queue}}}:events", {key: str(value) for key, value in fields.items()})
            pipe.execute()
        client.hset(f"glide:{{{queue}}}:meta2", "events", str(total))


async def _open(url: str, queue: str) -> None:
    async with Queue[object, object](queue, url) as opened:
        await Functions(opened.storage, f"glide:{{{queue}}}").history.locate()


def events(setup: Setup) -> list[Row]:
    """Measure reads of all events in two tasks, after one read as warm-up."""
    empty(setup)
    register(setup.spark)
    rows = setup.rows * 3
    return [Row(f"events read, {name}", _rate(setup, rows, n), "rows/s", ">=", 100_000) for name, n in ENTRIES.items()]


def _rate(setup: Setup, rows: int, n: int) -> float:
    queue = f"events-{n}"
    write_entries(setup, queue, _added(rows, n), rows)
    seconds: list[float] = []
    for _ in range(ROUNDS + 1):
        reader = setup.spark.read.format("glidemq").options(url=setup.url, subscribe=queue, minPartitions=str(TASKS))
        began = time.perf_counter()
        reader.load().write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    return rows / median(seconds[1:])


MEASURES: Final = (events,)
