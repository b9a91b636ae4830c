"""The engine of a Spark Connect session: operation tags, and the progress that the server sends with its replies."""

# grpc has no annotations, and the annotations of pyspark are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession

from glidemq_async.errors import ExecutorError
from glidemq_async.spark.driver.engine import Label
from glidemq_async.spark.driver.progress import StageCount


class ConnectEngine:
    """Engine that controls the work of one Connect session. A client cannot set descriptions and pools."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark
        self._counts: dict[str, dict[str, StageCount]] = {}
        self._here = threading.local()
        # Any: pyspark annotates Connect sessions with the class of Classic sessions.
        self._connect: Any = spark

    def open(self) -> None:
        """Register for progress messages."""
        self.check()
        self._connect.registerProgressHandler(self._on_progress)

    def check(self) -> None:
        """Raise ExecutorError if the session was stopped. An unreachable server is not an error: it may return."""
        if self._connect.is_stopped:
            raise ExecutorError(
                "the Spark Connect session of this executor was stopped and cannot run any more jobs; restart the "
                "worker process to create a new session"
            )

    @contextmanager
    def labelled(self, label: Label) -> Generator[None]:
        """Tag the operations of this thread, and remove the tag afterwards."""
        self._counts[label.tag] = {}
        self._here.tag = label.tag
        self._connect.addTag(label.tag)
        try:
            yield
        finally:
            self._here.tag = None
            with suppress(Exception):
                self._connect.clearTags()

    def _on_progress(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Store a progress message. Spark calls this in the thread that waits for the operation."""
        del inflight_tasks, done
        counts = self._counts.get(getattr(self._here, "tag", None) or "")
        if counts is None:
            return
        for stage in stages or ():
            key = f"{operation_id}/{stage.stage_id}"
            # The message does not contain the number of running tasks, so it is 0 here, also after an interruption.
            counts[key] = StageCount(key, stage.num_completed_tasks, stage.num_tasks, 0)

    def cancel(self, label: Label) -> None:
        """Interrupt the operations that have the tag now."""
        self._connect.interruptTag(label.tag)

    def stages(self, label: Label) -> Iterable[StageCount]:
        """Return the latest counts of each stage."""
        return list(self._counts.get(label.tag, {}).values())

    def forget(self, label: Label) -> None:
        """Drop the counts of a label."""
        self._counts.pop(label.tag, None)

    def close(self) -> None:
        """Unregister from progress messages."""
        with suppress(ValueError):
            self._connect.removeProgressHandler(self._on_progress)
