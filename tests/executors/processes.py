"""Checks whether processes live, and waits for their ends."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

PATIENCE = 20.0


def lives(pid: int) -> bool:
    """Return whether a process runs. A dead process without a wait does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(*pids: int) -> None:
    """Wait until none of the processes runs."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            await _readable(descriptor, pid)
        finally:
            os.close(descriptor)


async def _readable(descriptor: int, pid: int) -> None:
    """Wait for the end of a process. Its descriptor becomes readable then, reaped or not."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    except TimeoutError:
        raise AssertionError(f"still running: {pid}") from None
    finally:
        loop.remove_reader(descriptor)


async def noted(path: Path) -> list[int]:
    """Wait for the process ids that a job writes into a file."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"nobody wrote {path}"
        await asyncio.sleep(0.01)
    return [int(word) for word in path.read_text().split()]
