"""Jobs that other workers run. `until_empty` waits for those whose worker may have died."""

from __future__ import annotations

import logging
from typing import Final

from glidemq_async.functions.callers import Functions

# Longer than a worker stays listed, so that workers without a heartbeat are included.
_EVER_MS: Final = 10**12

_log = logging.getLogger(__name__)


class OtherRuns:
    """Distinguishes the jobs of live workers from the jobs of workers that may be dead.

    A live worker renews its leases within 20 seconds, or within a third of its shortest lease. So a worker that has
    renewed since this object first saw it is alive. The jobs of all other workers come back when their leases expire,
    unless their workers renew first.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._first_seen: dict[str, int] = {}
        self._logged = False

    async def may_come_back(self) -> bool:
        """Return whether a worker that may be dead holds a running job. Raises StorageUnavailable."""
        safe = 0
        for worker in await self._functions.worker_list.list(_EVER_MS):
            if worker.last_seen > self._first_seen.setdefault(worker.name, worker.last_seen):
                safe += worker.running
        running = (await self._functions.reading.count_jobs())["active"]
        if running > safe and not self._logged:
            self._logged = True
            text = "queue %s: waiting for %d running jobs of workers that may be dead"
            _log.info(text, self._functions.caller.base, running - safe)
        return running > safe
