"""Cases of the functions that write, read and end streams of chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from glidemq_async.client.run_writer import MAX_ITEMS
from glidemq_async.functions.lease import Held
from glidemq_async.functions.streaming import ChunkGroup
from tests.server_time.bench import AT_ONCE, MIB, Bench, largest

CHUNK = b"x" * 1_000
LIMITS = (10_000, 8 * MIB, 3_600_000)


async def append(b: Bench, groups: Sequence[ChunkGroup]) -> None:
    """Append chunks in as many calls as the server needs."""
    b.functions.caller.consumer = "bench"
    while groups:
        statuses = await b.functions.streaming.append(groups)
        assert {*statuses} == {"ok"}
        groups = groups[len(statuses) :]


async def stream(b: Bench, held: Sequence[Held], chunks: Sequence[bytes] = (CHUNK,)) -> None:
    """Stream chunks from each of these runs."""
    step = MAX_ITEMS // len(chunks)
    for start in range(0, len(held), step):
        await append(b, [ChunkGroup(run.id, run.entry, *LIMITS, chunks) for run in held[start : start + step]])


@largest("addChunks")
async def add_chunks(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await stream(b, held)
    await stream(b, held[:1], [CHUNK] * 250)


@largest("addChunks", "large chunks")
async def add_large_chunks(b: Bench) -> None:
    await b.add(1)
    held = await b.claim(1)
    for _ in range(20):
        await stream(b, held, [b"x" * MIB])


@largest("addChunks", "one large chunk after many small ones")
async def trim_many(b: Bench) -> None:
    await b.add(1)
    (run,) = await b.claim(1)
    for _ in range(40):
        await append(b, [ChunkGroup(run.id, run.entry, 10_000, MIB, 60_000, [b"x" * 100] * 250)])
    await append(b, [ChunkGroup(run.id, run.entry, 10_000, MIB, 60_000, [b"x" * MIB])])
    for _ in range(40):
        await append(b, [ChunkGroup(run.id, run.entry, 10_000, MIB, 60_000, [b"x" * 100] * 250)])
    await append(b, [ChunkGroup(run.id, run.entry, 1, MIB, 60_000, [b"x"])])


@largest("readChunks")
async def read_chunks(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await stream(b, held[:1], [b"x" * (MIB // 4)] * 8)
    await stream(b, held[1:2], [CHUNK] * 250)
    await stream(b, held[2:], [b"x" * 10])
    for wanted in ([held[0]], [held[1]], held[2 : 2 + AT_ONCE], held[:AT_ONCE]):
        at = 0
        while at < len(wanted):
            at += len(await b.functions.streaming.read([(run.id, "0-0") for run in wanted[at:]]))


@largest("readUpdates")
async def read_updates(b: Bench) -> None:
    ids = await b.add(b.many, key="k")
    ids += await b.add(b.many)
    for kind in ("progress", "log"):
        assert await b.functions.updates.write(ids[0], "", kind, b"x" * MIB) == "ok"
    for _ in range(1_000):
        await b.functions.updates.write(ids[1], "", "log", b"x" * 1_000)
    for wanted in (ids[:1], ids[1:2], ids[2 : 2 + AT_ONCE], ids[-AT_ONCE:]):
        at = 0
        while at < len(wanted):
            at += len(await b.functions.watching.read([(job_id, 0) for job_id in wanted[at:]]))


@largest("followChunks")
async def follow_chunks(b: Bench) -> None:
    ids = await b.add(b.many, b"x" * 100)
    ids += await b.add(1, b"x" * MIB)
    await b.crowd()
    for job_id in (ids[0], ids[-1], ids[-1]):
        assert await b.functions.streaming.follow(job_id, 60_000) == "open"


@largest("checkChunks")
async def check_chunks(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await stream(b, held)
    for start in range(0, len(held), 200):
        assert not await b.functions.check_marks.chunks([run.id for run in held[start : start + 200]])


@largest("settleAndClaim", "streams that end")
async def end_streams(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await stream(b, held)
    await b.settle(held, "c", "-1 -1")


@largest("settleAndClaim", "streams that end, in groups that began at different times")
async def end_groups_of_streams(b: Bench) -> None:
    for _ in range(b.many // 100):
        await b.add(100, reply="channel")
    held: list[Held] = []
    while claimed := await b.claim(127):
        held += claimed
        await asyncio.sleep(0.002)
    await stream(b, held)
    await b.settle(held, "c", "-1 -1", b"x" * 1_000)


@largest("settleAndClaim", "streams that fail with large errors")
async def fail_streams(b: Bench) -> None:
    await b.add(500)
    held = await b.claim(500)
    await stream(b, held)
    await b.settle(held, "f", "-1 -1;retries_exhausted;broken", b"x" * 20_000)


@largest("obliterateQueue", "streams")
async def remove_streams(b: Bench) -> None:
    await b.add(b.many)
    await stream(b, await b.claim(b.many))
    cursor = "go"
    while cursor:
        names = ["meta2", "events", "idle", "streamed"]
        cursor = (await b.functions.obliterate.step("" if cursor == "go" else cursor, names, force=True)).cursor
