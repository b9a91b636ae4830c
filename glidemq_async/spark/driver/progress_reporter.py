"""Telling how far a run is: what Spark counts becomes the progress of the job."""

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
    """Tells the progress of one job every `interval` seconds, as long as nobody else tells it something."""

    def __init__(
        self, job: Job[Any, Any], ask: Callable[[], Awaitable[Progress | None]], interval: float | None
    ) -> None:
        self._job = job
        self._ask = ask
        self._interval = interval
        self._seen = self._shown()
        self._told = False
        self._task = asyncio.create_task(self._run(interval)) if interval is not None else None

    def _shown(self) -> object:
        with suppress(GlideMQError):
            return self._job.progress
        return None

    async def _run(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            if not await self._tell():
                return

    async def _tell(self) -> bool:
        """Tell what has changed; answers whether it makes sense to come again."""
        job = self._job
        try:
            found = await self._ask()
            if self._shown() != self._seen:  # the function tells its own
                return False
            if found is not None:
                await job.update_progress(found)
                self._seen, self._told = self._shown(), True
        except LeaseLost:
            return False
        except GlideMQError as error:  # the store is away: the next time will do
            _log.debug("the progress of job %s could not be told: %r", job.id, error)
        except Exception as error:  # noqa: BLE001 - Spark does not answer: the run itself will say so
            _log.debug("the progress of job %s could not be read: %r", job.id, error)
        return True

    def stop(self) -> None:
        """Tell nothing any more."""
        if self._task is not None:
            self._task.cancel()

    async def finish(self) -> None:
        """Tell once more, how far it was when the function returned, if anything was told before."""
        self.stop()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._told:
            await self._tell()
