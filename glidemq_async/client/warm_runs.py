"""The functions of suspended workflows that stay in memory, so that the next run of a job continues them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

from glidemq_async.functions.calling import Record
from glidemq_async.functions.reading import ReadingCalls
from glidemq_async.stored.record import FINAL, claim_of, place_of

DEFAULT_WARM_RUNS: Final = 1_000
REVIEWED: Final = 50
"""The number of warm runs whose jobs a worker looks at with each of its sweeps."""


class WarmRun(Protocol):
    """The function of a suspended run, which waits."""

    @property
    def fence(self) -> int:
        """The fencing token of the suspended run."""
        ...

    async def leave(self) -> None:
        """Cancel the function, and wait until it has ended."""
        ...


class WarmRuns:
    """The warm runs of one worker, at most `most` of them. Beyond that number, the oldest one is cancelled."""

    def __init__(self, most: int = DEFAULT_WARM_RUNS) -> None:
        self.most = most
        self._kept: OrderedDict[str, WarmRun] = OrderedDict()
        self._leaving: set[asyncio.Task[None]] = set()
        self._reviewed = 0

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

    async def review(self, reading: ReadingCalls) -> None:
        """Leave runs that cannot continue, because their jobs have ended or another worker has run them.

        Looks at some of the runs, and at the following ones in the next call.
        """
        if not self._kept:
            return
        if self._reviewed >= len(self._kept):
            self._reviewed = 0
        seen = dict(list(self._kept.items())[self._reviewed : self._reviewed + REVIEWED])
        self._reviewed += REVIEWED
        for (job_id, run), record in zip(seen.items(), await reading.get_heads(list(seen)), strict=True):
            # The run may have continued since, and may have been suspended again.
            if _is_over(record, run.fence) and self._kept.get(job_id) is run:
                self.drop(job_id)

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


def _is_over(record: Record, fence: int) -> bool:
    """Return whether a run of a job with this fencing token cannot be continued."""
    if not record or place_of(record).state in FINAL:
        return True
    claim = claim_of(record)
    return claim is not None and claim.fence != fence
