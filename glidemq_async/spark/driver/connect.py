"""A session of Spark Connect: operation tags, and the progress that the server sends with its answers."""

# grpc has no annotations, those of pyspark are incomplete.
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
    """Steers the work of one Connect session. Descriptions and pools are the server's business and not set."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark
        self._counts: dict[str, dict[str, StageCount]] = {}
        self._here = threading.local()
        # Of a class that pyspark shows as another one.
        self._connect: Any = spark

    def open(self) -> None:
        """Hear of progress from now on."""
        self.check()
        self._connect.registerProgressHandler(self._on_progress)

    def check(self) -> None:
        """Raise ExecutorError when the session was stopped. A server that is away may come back: that is retried."""
        if self._connect.is_stopped:
            raise ExecutorError(
                "the Spark Connect session of this executor was stopped, and nothing can be run in it any more: start "
                "the worker's process again, which makes a new session"
            )

    @contextmanager
    def labelled(self, label: Label) -> Generator[None]:
        """Tag the operations of this thread; the tag is taken away afterwards."""
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
        """What the server says while a thread waits for it; called in that thread."""
        del inflight_tasks, done
        counts = self._counts.get(getattr(self._here, "tag", None) or "")
        if counts is None:
            return
        for stage in stages or ():
            key = f"{operation_id}/{stage.stage_id}"
            # Which tasks run is not told, least of all once the operation is interrupted.
            counts[key] = StageCount(key, stage.num_completed_tasks, stage.num_tasks, 0)

    def cancel(self, label: Label) -> None:
        """Interrupt the operations that bear the tag now."""
        self._connect.interruptTag(label.tag)

    def stages(self, label: Label) -> Iterable[StageCount]:
        """Return what the server has said last of each stage."""
        return list(self._counts.get(label.tag, {}).values())

    def forget(self, label: Label) -> None:
        """Let go of the counts."""
        self._counts.pop(label.tag, None)

    def close(self) -> None:
        """Hear of no progress any more."""
        with suppress(ValueError):
            self._connect.removeProgressHandler(self._on_progress)
