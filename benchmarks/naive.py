"""The reference for server time: the naive library of naive.lua, called in batches of 100."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgpack

from glidemq_async.storage.redis.wire import Reply, as_list

from .bench import PAYLOAD, RESULT, Bench, expect
from .draining import together
from .meter import CostMeter, Rows
from .server import ask

BATCH: Final = 100
BASE: Final = "naive:{bench}"


async def _call(bench: Bench, function: str, *args: str | bytes | int) -> list[Reply]:
    return as_list(await ask(bench.wire, "FCALL", f"glidemq_bench_{function}", 1, BASE, *args)) or []


async def naive(bench: Bench, jobs: int) -> Rows:
    """Add, claim and complete jobs in batches of 100."""
    source = (Path(__file__).parent / "naive.lua").read_text(encoding="utf-8")
    await ask(bench.wire, "FUNCTION", "LOAD", "REPLACE", source)
    await ask(bench.wire, "XGROUP", "CREATE", f"{BASE}:stream", "workers", "0", "MKSTREAM")
    jobs -= jobs % BATCH
    data, result = msgpack.packb(PAYLOAD), msgpack.packb(RESULT)
    async with CostMeter(bench.wire) as adding:
        for _ in range(jobs // BATCH):
            await _call(bench, "add", *[data] * BATCH)
    done = 0
    async with CostMeter(bench.wire) as working:
        while claimed := await _call(bench, "claim", BATCH):
            ended: list[bytes] = []
            for job in claimed:
                job_id, entry, *_ = as_list(job) or []
                assert isinstance(job_id, bytes)
                assert isinstance(entry, bytes)
                ended += (job_id, entry, result)
            await _call(bench, "complete", *ended)
            done += len(claimed)
    expect("naive", done, jobs)
    parts = {"  naive add": adding.metrics(jobs), "  naive claim + complete": working.metrics(jobs)}
    return {"naive whole life": together(*parts.values())} | parts
