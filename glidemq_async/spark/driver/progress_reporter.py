"""Report the progress of a Spark run as the progress of its job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from glidemq_async.errors import GlideMQError, LeaseLost
from glidemq_async.jobs.job import Job
from glidemq_async.spark.driver.progress import Progress

_log = logging.getLogger(__name__)


class ProgressReporter:
    """Reports the progress of one job every `interval` seconds, until its function reports progress itself."""

    def __init__(
        self, job: Job[Any, Any], read_progress: Callable[[], Awaitable[Progress | None]], interval: float | None
    ) -> None:
        self._job = job
        self._read_progress = read_progress
        self._interval = interval
        self._last = self._current()
        self._reported = False
        self._task = asyncio.create_task(self._run(interval)) if interval is not None else None

    def _current(self) -> object:
        with suppress(GlideMQError):
            return self._job.progress
        return None

    async def _run(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            if not await self._report():
                return

    async def _report(self) -> bool:
        """Report a change of the progress. Return False if reporting should end."""
        job = self._job
        try:
            found = await self._read_progress()
            # Compare before each report. If the value is not the one that was written last, the function has reported
            # progress itself, and the two would overwrite each other.
            if self._current() != self._last:  # the function reports progress itself
                return False
            if found is not None:
                await job.update_progress(found)
                self._last, self._reported = self._current(), True
        except LeaseLost:
            return False
        except GlideMQError as error:  # the server is unreachable: the next report follows soon
            _log.debug("the progress of job %s could not be reported: %r", job.id, error)
        except Exception as error:  # noqa: BLE001 - Spark does not answer: the run itself will fail with this
            _log.debug("the progress of job %s could not be read: %r", job.id, error)
        return True

    def stop(self) -> None:
        """Stop reporting."""
        if self._task is not None:
            self._task.cancel()

    async def finish(self) -> None:
        """Report the final progress, if any progress was reported before."""
        self.stop()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._reported:
            await self._report()
