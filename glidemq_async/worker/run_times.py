"""The durations of runs, which settle calls report to the server for the metrics of the queue."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async.functions.outcomes import Completed, Failed, Outcome
from glidemq_async.worker.runs import Run


class RunTimes:
    """The duration of completed and of failed runs that the server has not counted yet.

    A call reports whole milliseconds. The rest is added to a later call, so that short jobs count.
    """

    def __init__(self) -> None:
        self._seconds: dict[type[Outcome], float] = {Completed: 0.0, Failed: 0.0}
        self._with_call = self._seconds
        """The durations with the runs of the last call. They are not counted if the server refuses the call."""
        self._reported = (0, 0)

    def report(self, batch: Sequence[Run], *, are_completed: bool = False) -> tuple[int, int]:
        """Return the milliseconds of completed and of failed runs for a call with these runs.

        `are_completed`: all of them have completed.
        """
        seconds = self._with_call = self._seconds.copy()
        if are_completed:
            seconds[Completed] += sum([run.seconds for run in batch])
            batch = ()
        for run in batch:
            if (kind := type(run.outcome)) in seconds and not _is_revoked(run):
                seconds[kind] += run.seconds
        # Runs that were reported with an earlier call and settled later can leave a negative rest.
        self._reported = max(0, int(seconds[Completed] * 1000)), max(0, int(seconds[Failed] * 1000))
        return self._reported

    def counted(self, settled: Sequence[Run], unsettled: Sequence[Run]) -> None:
        """Note which runs of the last call the server has settled. The others belong to a later call."""
        seconds = self._seconds = self._with_call
        # The server counts what a call reports, the unsettled runs included, if the call ends a run of that kind.
        for kind, reported in zip(seconds, self._reported, strict=True):
            if reported and any(type(run.outcome) is kind and not _is_revoked(run) for run in settled):
                seconds[kind] -= reported / 1000
        for run in unsettled:
            if (kind := type(run.outcome)) in seconds and not _is_revoked(run):
                seconds[kind] -= run.seconds


def _is_revoked(run: Run) -> bool:
    """Return whether the job of a run was revoked. Metrics do not count it as failed, and so not its duration."""
    return isinstance(run.outcome, Failed) and run.outcome.cause == "revoked"
