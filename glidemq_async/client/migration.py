"""The migration of a queue that an older version of this library has created."""

from __future__ import annotations

import logging
import time
from typing import Final

from glidemq_async._internal import failpoints
from glidemq_async.errors import OldWorkersRunning
from glidemq_async.functions.callers import Functions

log: Final = logging.getLogger("glidemq_async.migration")


async def migrate(functions: Functions, queue: str) -> None:
    """Convert the stored data of a queue to the present layout. Raises OldWorkersRunning.

    Several clients may do this at the same time. The next client that opens the queue continues an interrupted one.
    """
    # Each step is one short function call, so other queues of the server are served between two steps. The server
    # refuses all other calls to this queue from the first step until the last one.
    began, steps, is_done = time.monotonic(), 0, False
    while not is_done:
        if failpoints.armed:
            failpoints.hit("migrate.before_step")
        step = await functions.migration.step()
        if step.workers:
            raise OldWorkersRunning(queue, step.workers, step.seen_ms_ago / 1000)
        if not steps and not step.is_done:
            log.info("migrating queue %r to the present layout", queue)
        is_done, steps = step.is_done, steps + 1
    log.info("queue %r has the present layout; %d steps in %.1f s", queue, steps, time.monotonic() - began)
