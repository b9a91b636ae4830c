"""The functions of suspended workflows that stay in memory, so that the next run of a job continues them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

DEFAULT_WARM_RUNS: Final = 1_000


class WarmRun(Protocol):
    """The function of a suspended run, which waits."""

    async def leave(self) -> None:
        """Cancel the function, and wait until it has ended."""
        ...


class WarmRuns:
    """The warm runs of one worker, at most `most` of them. The one that was suspended first is left first."""

    def __init__(self, most: int = DEFAULT_WARM_RUNS) -> None:
        self.most = most
        self._kept: OrderedDict[str, WarmRun] = OrderedDict()
        self._leaving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, job_id: str, run: WarmRun) -> None:
        """Keep the run of a job that is being suspended."""
        self.drop(job_id)
        self._kept[job_id] = run
        while len(self._kept) > self.most:
            self.leave(self._kept.popitem(last=False)[1])

    def take(self, job_id: str) -> WarmRun | None:
        """Return the warm run of a job, which is not kept any more."""
        return self._kept.pop(job_id, None)

    def drop(self, job_id: str) -> None:
        """Leave the warm run of a job, if there is one."""
        run = self.take(job_id)
        if run is not None:
            self.leave(run)

    async def close(self) -> None:
        """Leave all warm runs, and wait until their functions have ended. Idempotent."""
        for job_id in list(self._kept):
            self.drop(job_id)
        while self._leaving:
            await asyncio.wait(self._leaving)

    def leave(self, run: WarmRun) -> None:
        """Cancel a run that was taken. `close` waits for its end."""
        task = asyncio.create_task(run.leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
