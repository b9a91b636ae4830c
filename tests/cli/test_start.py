"""The time from the start of `glidemq worker` to its first job, and the modules that it imports for that."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from pathlib import Path

import pytest

from glidemq_async import Queue
from tests.cli.running import Running, worker
from tests.support.helpers import soon
from tests.support.machine_speed import BARE_SECONDS, bare_start
from tests.support.servers import Server, standalone

APP = """
from glidemq_async import GlideMQ

mq = GlideMQ()


@mq.task(queue="q")
async def double(number: int) -> int:
    return 2 * number
"""
NOTES_MODULES = """
import atexit
import sys
from pathlib import Path

atexit.register(lambda: Path("modules").write_text(" ".join(sys.modules)))
"""
UNNEEDED = {
    "croniter",
    "dateutil",
    "glidemq_async.cli.bulk_commands",
    "glidemq_async.cli.change_commands",
    "glidemq_async.cli.doctor.command",
    "glidemq_async.cli.events_command",
    "glidemq_async.cli.inspect_commands",
    "glidemq_async.cli.pipeline",
    "glidemq_async.cli.signal_commands",
    "glidemq_async.cli.worker.supervised",
    "glidemq_async.demo",
    "glidemq_async.executors.subprocess",
    "glidemq_async.payloads.codecs.sealing",
    "glidemq_async.storage.embedded.file",
    "glidemq_async.storage.redis.cluster",
    "glidemq_async.storage.redis.sentinel",
    "opentelemetry.sdk.metrics",
    "redis.asyncio.client",
    "redis.asyncio.cluster",
    "redis.client",
    "redis.cluster",
    "redis.commands",
    "rich.console",
    "watchfiles",
}
WANTED = 0.5
"""Seconds, on a processor of the usual speed."""
TRIES = 20
"""One try within the limit is sufficient: the others depend on the load of the machine."""


def waited(running: Running) -> float:
    """Return the seconds during which the command and its worker were ready to run but had no processor."""
    pids = {running.pid, *(line["worker_pid"] for line in running.lines if "worker_pid" in line)}
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
async def test_the_first_job_is_done_within_half_a_second(
    tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    # As in an installation: compiled once, by the first try.
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))
    found: list[float] = []
    wanted, bare = WANTED, math.inf
    async with standalone(unix=True) as server, Queue[object, int]("q", server.url) as queue:
        while len(found) < TRIES and min(found, default=wanted) >= wanted:
            job = await queue.add("double", {"a": [21], "k": {}})
            began = time.perf_counter()
            async with worker(*options, cwd=tmp_path, url=server.url, compiled=True) as running:
                assert await soon(job.result(), 40) == 42
                took = time.perf_counter() - began
                await running.working()
                found.append(took - waited(running))
                running.send(signal.SIGTERM)
                assert await running.code() == 0
            bare = min(bare, await asyncio.to_thread(bare_start))
            wanted = WANTED * max(1.0, bare / BARE_SECONDS)
    assert min(found) < wanted, (wanted, sorted(found))


async def test_a_worker_imports_only_what_it_needs(tmp_path: Path, server: Server) -> None:
    (tmp_path / "jobs.py").write_text(APP + NOTES_MODULES)
    async with worker(cwd=tmp_path, url=server.url) as running:
        await running.working()
        running.send(signal.SIGTERM)
        assert await running.code() == 0
    imported = set((tmp_path / "modules").read_text().split())
    assert "redis.asyncio.connection" in imported
    assert sorted(imported & UNNEEDED) == []
