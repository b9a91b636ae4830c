"""A client that opens a queue and is killed before a step of its migration: `killed_client URL QUEUE STEP`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from itertools import count
from typing import Any

from glidemq_async import Queue
from glidemq_async._internal import failpoints


async def main(url: str, name: str, last: int) -> None:
    """Open the queue. This process ends before the step of this number."""
    steps = count()

    def die() -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.arm("migrate.before_step", die)
    await Queue[Any, Any](name, url).connect()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
