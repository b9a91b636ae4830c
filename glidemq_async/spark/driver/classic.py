"""The engine of a Classic session, whose driver is a local JVM: job groups, tags and the status tracker."""

# py4j has no annotations, and the annotations of pyspark are incomplete.
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
    """Engine that controls the work of one session through its SparkContext."""

    def __init__(self, spark: SparkSession, *, interrupt: bool) -> None:
        self.session = spark
        self._context = spark.sparkContext
        self._interrupt = interrupt
        self._counted: dict[str, set[int]] = {}
        """The ended Spark jobs of each tag that were counted after their end."""
        self._lock = threading.Lock()

    def open(self) -> None:
        """Check that the session can run Spark jobs."""
        self.check()

    def check(self) -> None:
        """Raise ExecutorError if the context was stopped or its JVM has died."""
        # It is None after a stop from Python, although the annotation excludes this.
        java: Any = self._context._jsc  # noqa: SLF001
        why = "it was stopped"
        try:
            if java is not None and not java.sc().isStopped():
                return
        except Exception as error:  # noqa: BLE001 - any error of py4j means that the JVM is gone
            why = f"its JVM does not answer ({type(error).__name__})"
        raise ExecutorError(
            f"Spark application {self._context.appName!r} cannot run any more jobs: {why}. "
            "Restart the worker process to create a new session"
        )

    @contextmanager
    def labelled(self, label: Label) -> Generator[None]:
        """Set group, tag, description and pool for this thread and activate the session; clear all of it afterwards."""
        context = self._context
        use_session(self.session)
        context.setJobGroup(label.tag, label.description, interruptOnCancel=self._interrupt)
        context.addJobTag(label.tag)
        context.setLocalProperty(POOL, label.pool)
        try:
            yield
        finally:
            # The thread ends with its run, but threads of the JVM inherit its properties and live longer. A property
            # that stays set would make the tag of this run cancel Spark jobs of later runs.
            with suppress(Exception):
                context.clearJobTags()
                # None removes a property, although the annotation excludes it.
                unset: Any = None
                for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", POOL):
                    context.setLocalProperty(name, unset)

    def cancel(self, label: Label) -> None:
        """Cancel the Spark jobs that have the tag now."""
        self._context.cancelJobsWithTag(label.tag)

    def stages(self, label: Label) -> Iterable[StageCount]:
        """Count the tasks of the group's jobs. A job that has ended is counted one more time, and then not again."""
        # Several threads use the engine, one per run. A tag belongs to one run, so only the dict needs the lock.
        with self._lock:
            counted = self._counted.setdefault(label.tag, set())
        tracker = self._context.statusTracker()
        found: dict[int | str, StageCount] = {}
        for number in tracker.getJobIdsForGroup(label.tag):
            job = None if number in counted else tracker.getJobInfo(number)
            if job is None:
                continue
            counts = [count for stage in job.stageIds if (count := self._stage(tracker, stage))]
            found |= {count.stage: count for count in counts}
            if str(job.status) in ENDED and not any(count.active for count in counts):
                counted.add(number)
        return found.values()

    @staticmethod
    def _stage(tracker: Any, stage: int) -> StageCount | None:
        info = tracker.getStageInfo(stage)
        if info is None:  # not submitted yet, or skipped: its number of tasks is unknown
            return None
        return StageCount(stage, info.numCompletedTasks, info.numTasks, info.numActiveTasks)

    def forget(self, label: Label) -> None:
        """Forget which of the group's jobs were counted."""
        with self._lock, suppress(KeyError):
            del self._counted[label.tag]

    def close(self) -> None:
        """Do nothing: this engine registers nothing with the session."""
