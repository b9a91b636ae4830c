"""A session whose driver is a JVM beside this process: job groups, tags and the status tracker."""

# py4j has no annotations, those of pyspark are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark.sql import SparkSession

from glidemq_async.errors import ExecutorError
from glidemq_async.spark.driver.engine import Label
from glidemq_async.spark.driver.progress import StageCount
from glidemq_async.spark.driver.session import use_session

POOL: Final = "spark.scheduler.pool"
ENDED: Final = frozenset({"SUCCEEDED", "FAILED"})


class ClassicEngine:
    """Steers the work of one session by its SparkContext."""

    def __init__(self, spark: SparkSession, *, interrupt: bool) -> None:
        self.session = spark
        self._context = spark.sparkContext
        self._interrupt = interrupt
        self._told: dict[str, set[int]] = {}
        """By tag: the Spark jobs that have ended and were counted since."""
        self._lock = threading.Lock()

    def open(self) -> None:
        """Check that the session can run something."""
        self.check()

    def check(self) -> None:
        """Raise ExecutorError when the context was stopped or its JVM has gone."""
        # None once it was stopped from Python, whatever its annotation says.
        java: Any = self._context._jsc  # noqa: SLF001
        why = "it was stopped"
        try:
            if java is not None and not java.sc().isStopped():
                return
        except Exception as error:  # noqa: BLE001 - whatever py4j raises, nobody answers there
            why = f"its JVM does not answer ({type(error).__name__})"
        raise ExecutorError(
            f"Spark application {self._context.appName!r} cannot run anything any more: {why}. "
            "Start the worker's process again, which makes a new session"
        )

    @contextmanager
    def labelled(self, label: Label) -> Generator[None]:
        """Set group, tag, description and pool for this thread, with the session active; clear them afterwards."""
        context = self._context
        use_session(self.session)
        context.setJobGroup(label.tag, label.description, interruptOnCancel=self._interrupt)
        context.addJobTag(label.tag)
        context.setLocalProperty(POOL, label.pool)
        try:
            yield
        finally:
            # The thread ends with its run. What it set is inherited by threads of the JVM that live longer.
            with suppress(Exception):
                context.clearJobTags()
                # None takes a property away, whatever the annotation says.
                unset: Any = None
                for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", POOL):
                    context.setLocalProperty(name, unset)

    def cancel(self, label: Label) -> None:
        """Cancel the Spark jobs that bear the tag now."""
        self._context.cancelJobsWithTag(label.tag)

    def stages(self, label: Label) -> Iterable[StageCount]:
        """Count the tasks of the group's jobs; those of a job that has ended once more, and then no longer."""
        with self._lock:
            told = self._told.setdefault(label.tag, set())
        tracker = self._context.statusTracker()
        found: dict[int | str, StageCount] = {}
        for number in tracker.getJobIdsForGroup(label.tag):
            job = None if number in told else tracker.getJobInfo(number)
            if job is None:
                continue
            counts = [count for stage in job.stageIds if (count := self._stage(tracker, stage))]
            found |= {count.stage: count for count in counts}
            if str(job.status) in ENDED and not any(count.active for count in counts):
                told.add(number)
        return found.values()

    @staticmethod
    def _stage(tracker: Any, stage: int) -> StageCount | None:
        info = tracker.getStageInfo(stage)
        if info is None:  # not submitted, or skipped: nobody knows its tasks
            return None
        return StageCount(stage, info.numCompletedTasks, info.numTasks, info.numActiveTasks)

    def forget(self, label: Label) -> None:
        """Forget which of the group's jobs were counted."""
        with self._lock, suppress(KeyError):
            del self._told[label.tag]

    def close(self) -> None:
        """Nothing was registered."""
