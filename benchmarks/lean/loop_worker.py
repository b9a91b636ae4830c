"""The process of an idle bare loop: `python -m benchmarks.lean.loop_worker URL`.

Prints "ready" when it blocks for jobs. A line on stdin ends the process, which then prints the start time of each job
by its entry id. A job with a reply field gets a reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

import msgpack
import uvloop

from benchmarks.lean.loop import GROUP, REPLIES, STREAM, Client, loop_client, read


async def _work(client: Client, started: dict[str, float]) -> None:
    while True:
        pipeline = client.pipeline(transaction=False)
        ids: list[bytes] = []
        for entry_id, fields in await read(client):
            msgpack.unpackb(fields[b"d"])
            started[entry_id.decode()] = time.time()
            ids.append(entry_id)
            if b"r" in fields:
                pipeline.xadd(REPLIES, {b"d": fields[b"d"]})
        pipeline.xack(STREAM, GROUP, *ids)
        pipeline.xdel(STREAM, *ids)
        await pipeline.execute()


async def main(url: str) -> None:
    """Run until the parent writes a line."""
    started: dict[str, float] = {}
    async with loop_client(url) as client:
        work = asyncio.create_task(_work(client, started))
        await asyncio.sleep(0.2)  # the read blocks by then
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    print(json.dumps(started), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
