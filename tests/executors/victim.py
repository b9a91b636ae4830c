"""A worker in a separate process, which a test kills: `python -m tests.executors.victim <start method> <note>`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from glidemq_async import Queue, Worker
from glidemq_async.executors import SubprocessExecutor
from tests.executors import handlers


async def main(method: Any, note: str) -> None:
    async with Queue[Any, Any]("q", "memory://") as queue:
        executor = SubprocessExecutor(1, start_method=method)
        async with Worker("q", handlers.start_others, queue.storage, executor=executor):
            await queue.add("n", note)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
