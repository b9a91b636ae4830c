"""A server that is killed while its disk stalls keeps what "fsync" confirmed, and only that for certain.

With an append-only file that is synced every second, the server delays its writes during a sync, up to two seconds, and
still replies. On a disk that syncs in time this interval is too short for a test.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from glidemq_async import Queue
from tests.support.servers import Server, eventually, standalone

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux can stop a single thread"),
]

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
WALL = 0x40000000


@contextmanager
def stalled_disk(pid: int) -> Generator[None]:
    """Stop the thread of a server that syncs the append-only file."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    thread = next(int(p.name) for p in Path(f"/proc/{pid}/task").iterdir() if "bio_aof" in (p / "comm").read_text())
    if libc.ptrace(PTRACE_ATTACH, thread, None, None):
        raise OSError(ctypes.get_errno(), f"thread {thread} of the server cannot be stopped")
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        if libc.ptrace(PTRACE_DETACH, thread, None, None):
            # The server was killed while its thread was stopped. It ends only after the tracer has waited for it.
            os.waitpid(thread, WALL)


@asynccontextmanager
async def everysec() -> AsyncGenerator[Server]:
    async with standalone("--appendonly", "yes", "--appendfsync", "everysec", unix=True) as server:
        yield server


async def sync_is_under_way(server: Server) -> bool:
    await server.command("SET", "unrelated", "write")
    return (await server.info("persistence"))["aof_pending_bio_fsync"] == "1"


async def test_a_server_killed_on_a_stalled_disk_keeps_what_fsync_confirmed() -> None:
    async with everysec() as server, Queue[int, None]("stall", server.url) as queue:
        assert server.process is not None
        sure = [await queue.add("n", number, durability="fsync") for number in range(5)]
        with stalled_disk(server.process.pid):
            await eventually(lambda: sync_is_under_way(server), "the server must wait for its disk")
            hoped = await queue.add_bulk(("n", number) for number in range(100))
            unconfirmed = asyncio.create_task(queue.add("n", 0, durability="fsync"))
            done, _ = await asyncio.wait([unconfirmed], timeout=0.3)
            assert not done, "nothing may be confirmed while the disk stalls"
            os.kill(server.process.pid, signal.SIGKILL)
        server.kill()
        await server.start()
        # The client repeats the unanswered call on the new server, which confirms it.
        sure.append(await unconfirmed)
        assert all([await queue.get_job(job.id) for job in sure])
        assert not all([await queue.get_job(job.id) for job in hoped if job.id != sure[-1].id])
        assert await queue.check() == []
