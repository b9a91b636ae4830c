"""Jobs that other workers run: whether one of them may come back, because its worker has died."""

from __future__ import annotations

import logging
from typing import Final

from glidemq_async.functions.callers import Functions

# Longer than any worker stays listed: one that fell silent is what is looked for.
_EVER_MS: Final = 10**12

_log = logging.getLogger(__name__)


class OtherRuns:
    """Tells the jobs of workers that live from those of workers that may be dead.

    A worker that lives renews its leases within 20 seconds, or within a third of its shortest lease. So a worker that
    has renewed since it was first seen here lives. The jobs of all others come back when their leases end, unless
    their workers renew first.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._first_seen: dict[str, int] = {}
        self._told = False

    async def may_come_back(self) -> bool:
        """Return whether a running job is in the hands of a worker that may be dead. Raises StorageUnavailable."""
        safe = 0
        for worker in await self._functions.list_workers(_EVER_MS):
            if worker.last_seen > self._first_seen.setdefault(worker.name, worker.last_seen):
                safe += worker.running
        running = (await self._functions.count_jobs())["active"]
        if running > safe and not self._told:
            self._told = True
            text = "queue %s: %d running jobs are in the hands of workers that may be dead; waiting for them"
            _log.info(text, self._functions.base, running - safe)
        return running > safe
