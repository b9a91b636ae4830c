"""The bare loop: a stream, a consumer group and redis-py, without records, events, results or recovery."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import msgpack
from redis.asyncio import Redis

from benchmarks.bench import PAYLOAD, Bench, expect
from benchmarks.meter import CostMeter, Rows
from benchmarks.server import used_bytes

STREAM: Final = "loop:{bench}:jobs"
REPLIES: Final = "loop:{bench}:replies"
GROUP: Final = "workers"
PIPELINE: Final = 500
COUNT: Final = 100
BLOCK_MS: Final = 5_000

# The types of redis-py do not define the types of replies.
Client: TypeAlias = Any
Entries: TypeAlias = list[tuple[bytes, dict[bytes, bytes]]]
_CLIENT: Final[Any] = Redis


@asynccontextmanager
async def loop_client(url: str) -> AsyncGenerator[Client]:
    """A connected client of redis-py, which parses with hiredis."""
    client: Client = _CLIENT.from_url(url)
    try:
        await client.ping()
        yield client
    finally:
        await client.aclose()


async def create_group(client: Client) -> None:
    """Create the stream and its consumer group."""
    await client.xgroup_create(STREAM, GROUP, "0", mkstream=True)


def entry() -> dict[bytes, bytes]:
    """Return the fields of one job."""
    return {b"d": msgpack.packb(PAYLOAD)}


async def read(client: Client) -> Entries:
    """Claim a batch; wait for it if no job waits."""
    return entries_of(await client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=COUNT, block=BLOCK_MS))


def entries_of(streams: list[Any] | dict[bytes, Any]) -> Entries:
    """Return the entries of one stream. redis-py returns a list with RESP2 and a dictionary with RESP3."""
    found: Entries = streams[0][1] if isinstance(streams, list) else next(iter(streams.values()))[0]
    return found


async def loop_awaited(bench: Bench, jobs: int) -> Rows:
    """Add with one awaited XADD after the other."""
    async with loop_client(bench.url) as client:
        await create_group(client)
        latencies: list[float] = []
        async with CostMeter(bench.wire, ["xadd"]) as meter:
            for _ in range(jobs):
                started = time.perf_counter()
                await client.xadd(STREAM, entry())
                latencies.append(time.perf_counter() - started)
    return {"loop, awaited adds": meter.metrics(jobs, latencies)}


async def loop(bench: Bench, jobs: int) -> Rows:
    """Add in pipelines of 500; then claim batches of 100 and end each one with one XACK and one XDEL."""
    async with loop_client(bench.url) as client:
        await create_group(client)
        before = await used_bytes(bench.wire)
        async with CostMeter(bench.wire, ["xadd"]) as adding:
            await _fill(client, jobs)
        stored = await used_bytes(bench.wire) - before
        async with CostMeter(bench.wire, ["xreadgroup", "xack", "xdel"]) as draining:
            done = await _drain(client, jobs)
    expect("loop, drain", done, jobs)
    return {
        "loop, adds in pipelines": adding.metrics(jobs) | {"bytes": stored / jobs},
        "loop, drain": draining.metrics(jobs),
    }


async def _fill(client: Client, jobs: int) -> None:
    for start in range(0, jobs, PIPELINE):
        pipeline = client.pipeline(transaction=False)
        for _ in range(min(PIPELINE, jobs - start)):
            pipeline.xadd(STREAM, entry())
        await pipeline.execute()


async def _drain(client: Client, jobs: int) -> int:
    done = 0

    async def handler(_data: object) -> None:
        nonlocal done
        done += 1

    while done < jobs:
        ids: list[bytes] = []
        for entry_id, fields in await read(client):
            await handler(msgpack.unpackb(fields[b"d"]))
            ids.append(entry_id)
        pipeline = client.pipeline(transaction=False)
        pipeline.xack(STREAM, GROUP, *ids)
        pipeline.xdel(STREAM, *ids)
        await pipeline.execute()
    return done
