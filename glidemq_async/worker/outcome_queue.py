"""The runs that have ended, from the end of a run until the store has its outcome."""

from __future__ import annotations

from typing import Final

from glidemq_async.functions.outcomes import Completed, Failed, Retry
from glidemq_async.functions.settle import group_kind
from glidemq_async.worker.runs import Run

MAX_SETTLED: Final = 500
"""Maximum number of runs that one call settles. A call blocks the server for all clients, so it must stay short."""
MAX_BYTES: Final = 1024 * 1024
"""Size of the outcomes in bytes at which a call is full."""


class OutcomeQueue:
    """Keeps every outcome until the server has replied to the call that contains it.

    An outcome is either waiting for the next call or in the current call. If it were in neither for a moment, the lease
    thread could miss it and not renew its lease. The lease would expire while the call is in flight, another worker
    would run the job again, and the server would refuse the finished result. Therefore one assignment of `_lists` moves
    outcomes from one list to the other.
    """

    def __init__(self) -> None:
        self._lists: tuple[list[Run], list[Run]] = ([], [])
        """The outcomes in the current call, and the outcomes that wait for the next one."""
        self.uniform: tuple[Completed, int] | None = None
        """If the runs of the current call are plain jobs of one claim with one outcome: it, and when they began."""
        self._separate = 0
        """Number of outcomes to send in separate calls, after a call with all of them was refused."""
        self._max_settled = MAX_SETTLED
        """Maximum number of outcomes in the next call, adapted to the number that the last call has settled."""

    def __bool__(self) -> bool:
        """Return whether an outcome waits for the next call."""
        return bool(self._lists[1])

    @property
    def has_call(self) -> bool:
        """True if the current call contains an outcome."""
        return bool(self._lists[0])

    @property
    def unconfirmed(self) -> list[Run]:
        """The runs whose outcome the store may not have yet. Safe in any thread."""
        in_call, waiting = self._lists
        return in_call + waiting

    def add(self, runs: list[Run]) -> None:
        """Add the outcomes of runs that have ended."""
        self._lists[1].extend(runs)

    def take_batch(self) -> list[Run]:
        """Return the outcomes of the next call."""
        _, waiting = self._lists
        self.uniform = None
        if waiting and not self._separate and len(waiting) <= self._max_settled:
            self.uniform = _uniform(waiting)
        if self.uniform is not None:
            self._lists = waiting, []
            return waiting
        count = self._batch_size(waiting)
        batch, rest = (waiting, []) if count == len(waiting) else (waiting[:count], waiting[count:])
        batch = _in_groups(batch)
        self._lists = batch, rest
        return batch

    def _batch_size(self, waiting: list[Run]) -> int:
        if self._separate and waiting:
            self._separate -= 1
            return 1
        size, count, most = 0, 0, self._max_settled
        for run in waiting:
            outcome = run.outcome
            # A completed run does not need a call of a function here. This loop passes over every run.
            size += len(outcome.result) if isinstance(outcome, Completed) else _weight(run)
            if count == most or (size > MAX_BYTES and count):
                break  # a large outcome is sent alone
            count += 1
        return count

    def confirm(self, settled: int) -> None:
        """Drop the first outcomes of the call, which are settled. The others return to the front of the queue."""
        in_call, waiting = self._lists
        complete = settled == len(in_call)
        self._max_settled = min(2 * self._max_settled, MAX_SETTLED) if complete else settled
        self._lists = [], waiting if complete else in_call[settled:] + waiting

    def put_back(self) -> None:
        """Return the outcomes of a failed call to the front of the queue."""
        in_call, waiting = self._lists
        self._lists = [], in_call + waiting

    def separate(self) -> Run | None:
        """Send the outcomes of a call that was refused as malformed one by one. Return the culprit if it was alone.

        The culprit is dropped. Its lease is no longer renewed, so the sweep reclaims the job.
        """
        in_call, _ = self._lists
        if len(in_call) == 1:
            self.confirm(1)
            return in_call[0]
        self._separate = len(in_call)
        self.put_back()
        return None


def _uniform(runs: list[Run]) -> tuple[Completed, int] | None:
    """Return the outcome and the start (server ms) that all of these plain jobs have, None if they differ.

    The runs of the most frequent batch have the result None. They need no sorting, and no sum of their sizes.
    """
    outcome, since = runs[0].outcome, runs[0].plain_since
    if since is None or not isinstance(outcome, Completed) or len(outcome.result) * len(runs) > MAX_BYTES:
        return None
    differ = [run for run in runs if run.outcome is not outcome or run.plain_since != since]
    return None if differ else (outcome, since)


# The server settles the groups of completed jobs of a call before its other runs, and a call may end early. It reports
# how many runs it has settled. The batch has the order of the arguments, so these are its first ones.
def _in_groups(batch: list[Run]) -> list[Run]:
    groups = dict[object, list[Run]]()
    for run in batch:
        outcome = run.outcome
        kind = group_kind(run.entry, run.job.key, outcome, run.plain_since)
        group: object = None
        if kind is not None and isinstance(outcome, Completed):
            group = kind, outcome.retention
        groups.setdefault(group, []).append(run)
    if len(groups) == 1:
        return batch
    others = groups.pop(None, [])
    return [*(run for group in groups.values() for run in group), *others]


def _weight(run: Run) -> int:
    outcome = run.outcome
    if isinstance(outcome, Failed):
        # The data of a failed job may be copied to a dead-letter queue.
        return len(outcome.error) + run.job.data_size
    return len(outcome.error) if isinstance(outcome, Retry) else 0
