"""Bulk work of users, one step at a time. A user may also be interrupted and begin again."""

from __future__ import annotations

from typing import cast

import hypothesis.strategies as st

from tests.model.choices import DELIVERY, action
from tests.model.cleaning import Cleaning, Draining, Promoting, Retrying, Sifting
from tests.model.compare import same
from tests.model.driver import Delivery, Snapshot, run
from tests.model.machine_base import BaseMachine
from tests.model.parts import FINAL, READY, Final, State

STEPS = st.sampled_from([1, 2, 5])
"""The largest number of jobs in one step."""
FRESH = st.sampled_from([True, False, False, False])
FINAL_STATE = st.sampled_from(FINAL)
UNSTARTED = st.sampled_from((*READY, "delayed", "suspended"))


class CleaningActions(BaseMachine):
    """Draining, cleaning, promoting and retrying."""

    def __init__(self) -> None:
        super().__init__()
        self.draining: Draining | None = None
        self.cleaning: Cleaning | None = None
        self.sifting: Sifting | None = None
        self.promoting: Promoting | None = None
        self.retrying: Retrying | None = None

    @action(3, count=STEPS, delivery=DELIVERY)
    def continue_walks(self, count: int, delivery: Delivery) -> None:
        """Make the next step of each walk that has begun."""
        if self.draining is not None:
            self.drain(False, False, count, delivery)
        if self.cleaning is not None:
            self.clean(False, "completed", 0, 0, count, delivery)
        if self.sifting is not None:
            self.clean_unstarted(False, "waiting", 0, 0, count, delivery)
        if self.promoting is not None:
            self.promote_jobs(False, 0, count, delivery)
        if self.retrying is not None:
            self.retry_jobs(False, "completed", 0, count, delivery)

    def bulk_step(self, function: str, delivery: Delivery, *args: str | int) -> tuple[str, object]:
        """Return the next cursor and the jobs of the step."""
        self.driver.delivery, self.dirty = delivery, True
        cursor, done = cast("tuple[bytes, object]", run(self.functions.caller.once(function, args)))
        return cursor.decode(), done

    def snapshot(self) -> Snapshot:
        self.wakeups.ask()
        return self.driver.snapshot()

    @action(1, fresh=FRESH, delayed=st.booleans(), count=STEPS, delivery=DELIVERY)
    def drain(self, fresh: bool, delayed: bool, count: int, delivery: Delivery) -> None:
        # The queue does not know in which key's line a job without a record waits. The job leaves `keyed` only at its
        # claim.
        if any(job.record_lost for job in self.model.having("key-waiting")):
            return
        # A drained job may let its deduplication successor start. The same step may drain the successor too.
        if self.model.successors:
            return
        loop = self.draining
        if fresh or loop is None:
            loop = self.model.begin_draining(delayed)
        cursor, removed = self.bulk_step("drainJobs", delivery, loop.cursor, int(loop.delayed), count)
        seen = self.snapshot()
        located = seen.waiting().union((id_ for id_, _ in seen.scheduled), self.driver.suspended())
        gone = [job for job in self.model.having(*READY, "delayed", "suspended") if job.id not in located]
        same("number of drained jobs", removed, len(gone))
        assert len(gone) <= count, f"{len(gone)} were drained in a step of {count}"
        self.model.drain(loop, gone, cursor)
        self.draining = loop if cursor else None
        self.compare_all(seen)

    @action(1, fresh=FRESH, state=FINAL_STATE, grace=st.sampled_from([0, 0, 7_000, 28_000]),
            limit=st.sampled_from([1, 3, 1_000]), count=STEPS, delivery=DELIVERY)  # fmt: skip
    def clean(self, fresh: bool, state: Final, grace: int, limit: int, count: int, delivery: Delivery) -> None:
        loop = self.cleaning
        if fresh or loop is None:
            loop = self.model.begin_cleaning(state, grace, limit)
        cursor, ids = self.bulk_step("cleanJobs", delivery, loop.cursor, loop.state, grace, limit, count)
        cleaned = [id_.decode() for id_ in cast("list[bytes]", ids)]
        assert len(cleaned) <= count, f"{cleaned} were cleaned in a step of {count}"
        self.model.clean(loop, cleaned, cursor)
        self.cleaning = loop if cursor else None

    @action(1, fresh=FRESH, state=UNSTARTED, grace=st.sampled_from([0, 0, 0, 7_000, 28_000]),
            limit=st.sampled_from([1, 3, 1_000]), count=STEPS, delivery=DELIVERY)  # fmt: skip
    def clean_unstarted(
        self, fresh: bool, state: State, grace: int, limit: int, count: int, delivery: Delivery
    ) -> None:
        # See `drain` for both conditions.
        if any(job.record_lost for job in self.model.having("key-waiting")) or self.model.successors:
            return
        loop = self.sifting
        if fresh or loop is None:
            loop = self.model.begin_sifting(state, grace, limit, self.comparer.added)
        cursor, ids = self.bulk_step("cleanUnstarted", delivery, loop.cursor, loop.state, grace, limit, count)
        cleaned = [id_.decode() for id_ in cast("list[bytes]", ids)]
        assert len(cleaned) <= count, f"{cleaned} were cleaned in a step of {count}"
        self.model.sift(loop, cleaned, cursor, self.comparer.added)
        self.sifting = loop if cursor else None

    @action(1, fresh=FRESH, limit=st.sampled_from([1, 3, -1, -1]), count=STEPS, delivery=DELIVERY)
    def promote_jobs(self, fresh: bool, limit: int, count: int, delivery: Delivery) -> None:
        loop = self.promoting
        if fresh or loop is None:
            loop = self.model.begin_promoting(None if limit < 0 else limit)
        cursor, promoted = self.bulk_step("promoteJobs", delivery, loop.cursor, limit, count)
        seen = self.snapshot()
        there = {id_ for id_, _ in seen.scheduled}
        gone = [job for job in self.model.scheduled() if job.id not in there]
        assert len(gone) <= count, f"{len(gone)} were promoted in a step of {count}"
        self.model.promote_all(loop, gone, cast("int", promoted), cursor)
        self.promoting = loop if cursor else None
        self.compare_all(seen)

    @action(1, fresh=FRESH, state=FINAL_STATE, limit=st.sampled_from([1, 3, -1, -1]), count=STEPS, delivery=DELIVERY)
    def retry_jobs(self, fresh: bool, state: Final, limit: int, count: int, delivery: Delivery) -> None:
        loop = self.retrying
        if fresh or loop is None:
            loop = self.model.begin_retrying(state, None if limit < 0 else limit)
        cursor, started = self.bulk_step("retryJobs", delivery, loop.cursor, loop.state, limit, count)
        seen = self.snapshot()
        there = {id_ for id_, _ in (seen.completed if loop.state == "completed" else seen.failed)}
        gone = [job for job in self.model.ended(loop.state) if job.id not in there]
        self.model.retry_all(loop, gone, cast("int", started), cursor)
        self.retrying = loop if cursor else None
        self.compare_all(seen)
