"""Draws the pictures of docs/tui.md: `python -m tests.tui.screenshots docs/images`."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from pathlib import Path
from typing import Any, cast

from textual.pilot import Pilot
from textual.widgets import DataTable, Input

from glidemq_async import Job, Queue, UnrecoverableError, Worker
from glidemq_async.ops.actor import Actor
from glidemq_async.ops.core import Ops
from glidemq_async.storage import MemoryStorage
from glidemq_async.tui.app import Top
from glidemq_async.tui.source import TopSource

SIZE = (80, 24)
QUEUES = {"emails": ("send_receipt", 38), "images": ("resize", 112), "invoices": ("render", 7), "reports": ("total", 3)}


async def work(job: Job[Any, Any]) -> None:
    """Fail some of the jobs, and run the others for ever if they say so."""
    if job.data.get("hold"):
        await asyncio.Event().wait()
    if job.data["number"] % 9 == 4:
        raise UnrecoverableError("TimeoutError: no reply from smtp.example.com:587")


async def fill(storage: MemoryStorage) -> None:
    """Store jobs of all kinds, and let some of them end."""
    for name, (task, count) in QUEUES.items():
        async with Queue[Any, Any](name, storage) as queue:
            await queue.add_bulk([(task, {"number": number}) for number in range(count)])
            async with Worker(name, work, storage=storage, concurrency=20) as worker:
                await worker.run(until_empty=True)
            await queue.add_bulk([(task, {"number": number, "hold": True}) for number in range(count // 4)])
            await queue.add(task, {"number": 0}, delay=3_600)
            if name == "invoices":
                await queue.pause()


async def draw(directory: Path) -> None:
    """Write the pictures."""
    async with MemoryStorage() as storage, Ops(storage, actor=Actor("tui", "ada")) as ops:
        await fill(storage)
        workers = [Worker(name, work, storage=storage, concurrency=2) for name in QUEUES if name != "images"]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await asyncio.sleep(1)
        top = Top(TopSource(ops))
        async with top.run_test(size=SIZE) as pilot:
            await filled(pilot)
            save(top, directory / "top-queues.svg")
            await pilot.press("colon")
            top.query_one("#prompt", Input).value = ":failures"
            await pilot.press("enter")
            await filled(pilot)
            save(top, directory / "top-failures.svg")
            await pilot.press("colon")
            top.query_one("#prompt", Input).value = ":jobs state:failed queue:emails"
            await pilot.press("enter")
            await filled(pilot)
            await pilot.press("w", "space", "space", "r")
            await pilot.press(*"the mail server is back")
            await pilot.pause()
            save(top, directory / "top-retry.svg")
        for worker in workers:
            worker.stop(immediately=True)
        await asyncio.gather(*running)


def save(top: Top, path: Path) -> None:
    """Write a picture that loads nothing from elsewhere: a browser uses its own font with a fixed width."""
    picture = re.sub(r"@font-face \{.*?\}", "", top.export_screenshot(), flags=re.DOTALL)
    picture = re.sub(r"<!--.*?-->", "", picture, flags=re.DOTALL)
    path.write_text("\n".join(line.rstrip() for line in picture.splitlines() if line.strip()) + "\n")


async def filled(pilot: Pilot[Any]) -> None:
    """Wait until the table has rows."""
    table = cast("DataTable[object]", pilot.app.query_one("#table", DataTable))
    while not table.row_count:
        await pilot.pause(0.02)
    await pilot.pause(0.2)


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    asyncio.run(draw(Path(sys.argv[1])))
