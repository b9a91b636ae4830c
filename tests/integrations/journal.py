"""The worker of an example service in a separate process, which notes every run: `... journal MODULE FILE`."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from typing_extensions import override

from glidemq_async import GlideMQ, Middleware, Task
from tests.support.helpers import AnyJob


class Journal(Middleware):
    """Writes a line for each run, before the run can count as ended."""

    def __init__(self, path: str) -> None:
        self._noted = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @override
    async def before_run(self, task: Task[..., Any], job: AnyJob) -> None:
        os.write(self._noted, f"{job.id}\n".encode())


async def main(path: str, journal: str) -> None:
    """Work until a signal comes."""
    example = Path(path)
    sys.path.insert(0, str(example.parent))
    mq: GlideMQ = import_module(example.stem).mq
    mq.add_middleware(Journal(journal))
    await mq.run_worker(concurrency=100)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
