"""A fake engine: it replaces a Spark session, and a test controls its replies."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from glidemq_async.errors import ExecutorError
from glidemq_async.spark.driver.engine import Label
from glidemq_async.spark.driver.progress import StageCount


class FakeEngine:
    """An engine without Spark. Its work is `act`, which blocks until it is cancelled and then raises."""

    def __init__(self) -> None:
        self.session: Any = object()
        self.gone = False
        self.cancels = 0
        self.counts: list[StageCount] = []
        self.labels: list[Label] = []
        self.submitted = threading.Event()
        self._cancelled = threading.Event()

    def open(self) -> None:
        self.check()

    def check(self) -> None:
        if self.gone:
            raise ExecutorError("the session of the test has gone")

    @contextmanager
    def labelled(self, label: Label) -> Generator[None]:
        self.labels.append(label)
        yield

    def act(self) -> None:
        """Do work until a cancellation. As in Spark, a cancellation before the start has no effect."""
        self._cancelled.clear()
        self.submitted.set()
        if not self._cancelled.wait(20):
            raise AssertionError("nobody cancelled it")
        raise RuntimeError("SPARK_JOB_CANCELLED")

    def cancel(self, label: Label) -> None:
        del label
        self.cancels += 1
        self._cancelled.set()

    def stages(self, label: Label) -> Iterable[StageCount]:
        del label
        return list(self.counts)

    def forget(self, label: Label) -> None: ...

    def close(self) -> None: ...
