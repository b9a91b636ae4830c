"""Reading a queue's events: rows a second, for entries as singles, busy workers and bulk calls write them."""

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

from benchmarks.spark.part import Ground, Row
from benchmarks.spark.writing import empty
from glidemq_async import Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.spark import register

TASKS: Final = 2
ROUNDS: Final = 3
#: Events per entry.
ENTRIES: Final = {"one to an entry": 1, "eight to an entry": 8, "a hundred to an entry": 100}


def _added(rows: int, n: int) -> Iterator[dict[str, str | int]]:
    """Entries of n events each, as the functions write them."""
    for seq in range(0, rows, n):
        words = "\x1f".join(f"order-{seq + i:08}\x1fsend-mail" for i in range(min(n, rows - seq)))
        yield {"seq": seq, "n": min(n, rows - seq), "t": time.time_ns() // 1_000_000, "e": f"added\x1f{words}"}


def write_entries(ground: Ground, queue: str, entries: Iterable[Mapping[str, str | int]], total: int) -> None:
    """Open a queue and give it these entries, past the cap that would trim them."""
    asyncio.run(_open(ground.url, queue))
    rows = iter(entries)
    # The types of redis-py leave its replies open.
    client: Any = redis.Redis(unix_socket_path=ground.socket)
    with client:
        while chunk := list(islice(rows, 1_000)):
            pipe = client.pipeline(transaction=False)
            for fields in chunk:
                pipe.xadd(f"glide:{{{queue}}}:events", {key: str(value) for key, value in fields.items()})
            pipe.execute()
        client.hset(f"glide:{{{queue}}}:meta", "events", str(total))


async def _open(url: str, queue: str) -> None:
    async with Queue[object, object](queue, url) as opened:
        await Functions(opened.storage, f"glide:{{{queue}}}").locate_events()


def events(ground: Ground) -> list[Row]:
    """All events in two tasks, after one read that warms up."""
    empty(ground)
    register(ground.spark)
    rows = ground.rows * 3
    return [Row(f"events read, {name}", _rate(ground, rows, n), "rows/s", ">=", 100_000) for name, n in ENTRIES.items()]


def _rate(ground: Ground, rows: int, n: int) -> float:
    queue = f"events-{n}"
    write_entries(ground, queue, _added(rows, n), rows)
    seconds: list[float] = []
    for _ in range(ROUNDS + 1):
        reader = ground.spark.read.format("glidemq").options(url=ground.url, subscribe=queue, minPartitions=str(TASKS))
        began = time.perf_counter()
        reader.load().write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    return rows / median(seconds[1:])


MEASURES: Final = (events,)
