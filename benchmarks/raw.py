"""The reference for rates: bare streams loops in the same process model, without records, events or results.

`raw` is the usual loop with redis-py: pipelines of 100 XADD; XREADGROUP COUNT 100 and a pipeline of one XACK per
job. `raw, batched` acknowledges and deletes a batch with one XACK and one XDEL. `raw, bare connection` does the same
over the library's own connection class, which parses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgpack
from redis.asyncio import Redis

from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import as_list

from .bench import PAYLOAD, Bench, expect
from .meter import CostMeter, Rows
from .server import REPLY_SECONDS, ask

BATCH: Final = 100
STREAM: Final = "raw:{bench}:stream"
GROUP: Final = "workers"
DRAINING: Final = ("xreadgroup", "xack", "xdel")
DATA: Final = msgpack.packb(PAYLOAD)
_CLIENT: Final[Any] = Redis


async def _create_group(bench: Bench) -> None:
    await ask(bench.wire, "XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")


# The types of redis-py do not define the types of replies.
async def _client_fill(client: Any, jobs: int) -> None:
    for start in range(0, jobs, BATCH):
        pipeline = client.pipeline(transaction=False)
        for _ in range(min(BATCH, jobs - start)):
            pipeline.xadd(STREAM, {"name": "job", "data": DATA})
        await pipeline.execute()


async def _client_drain(client: Any, batched: bool) -> int:
    done = 0
    while streams := await client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=BATCH):
        ids = [entry_id for entry_id, _ in streams[0][1]]
        pipeline = client.pipeline(transaction=False)
        if batched:
            pipeline.xack(STREAM, GROUP, *ids)
            pipeline.xdel(STREAM, *ids)
        else:
            for entry_id in ids:
                pipeline.xack(STREAM, GROUP, entry_id)
        await pipeline.execute()
        done += len(ids)
    return done


async def _with_client(bench: Bench, jobs: int, batched: bool) -> tuple[CostMeter, CostMeter]:
    await _create_group(bench)
    client = _CLIENT.from_url(bench.url, protocol=2)
    try:
        async with CostMeter(bench.wire, ["xadd"]) as adding:
            await _client_fill(client, jobs)
        async with CostMeter(bench.wire, DRAINING) as draining:
            done = await _client_drain(client, batched)
    finally:
        await client.aclose()
    expect("raw", done, jobs)
    return adding, draining


async def raw(bench: Bench, jobs: int) -> Rows:
    """Drain with redis-py, one XACK per job."""
    adding, draining = await _with_client(bench, jobs, batched=False)
    return {"raw add": adding.metrics(jobs), "raw drain": draining.metrics(jobs)}


async def raw_batched(bench: Bench, jobs: int) -> Rows:
    """Drain with redis-py, one XACK and one XDEL per batch."""
    _, draining = await _with_client(bench, jobs, batched=True)
    return {"raw drain, batched": draining.metrics(jobs)}


async def _bare_fill(bench: Bench, jobs: int) -> None:
    command = pack("XADD", STREAM, "*", "name", "job", "data", DATA)
    loop = asyncio.get_running_loop()
    for start in range(0, jobs, BATCH):
        deadline = loop.time() + REPLY_SECONDS
        for reply in [bench.wire.send(command, deadline) for _ in range(min(BATCH, jobs - start))]:
            await reply


async def _bare_take(bench: Bench) -> Sequence[bytes]:
    reply = await ask(bench.wire, "XREADGROUP", "GROUP", GROUP, "one", "COUNT", BATCH, "STREAMS", STREAM, ">")
    streams = as_list(reply)
    if not streams:
        return []
    entries = as_list((as_list(streams[0]) or [])[1]) or []
    return [entry_id for entry in entries if isinstance(entry_id := (as_list(entry) or [])[0], bytes)]


async def _bare_drain(bench: Bench) -> int:
    loop = asyncio.get_running_loop()
    done = 0
    while ids := await _bare_take(bench):
        deadline = loop.time() + REPLY_SECONDS
        replies = [
            bench.wire.send(pack("XACK", STREAM, GROUP, *ids), deadline),
            bench.wire.send(pack("XDEL", STREAM, *ids), deadline),
        ]
        for reply in replies:
            await reply
        done += len(ids)
    return done


async def raw_bare(bench: Bench, jobs: int) -> Rows:
    """Drain over the bare connection, one XACK and one XDEL per batch."""
    await _create_group(bench)
    async with CostMeter(bench.wire, ["xadd"]) as adding:
        await _bare_fill(bench, jobs)
    async with CostMeter(bench.wire, DRAINING) as draining:
        done = await _bare_drain(bench)
    expect("raw, bare connection", done, jobs)
    return {
        "raw add, bare connection": adding.metrics(jobs),
        "raw drain, bare connection": draining.metrics(jobs),
    }
