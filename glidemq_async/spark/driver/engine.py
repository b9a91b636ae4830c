"""`Engine`: the interface through which a run uses a Spark session, for Classic sessions and for Spark Connect."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from glidemq_async.spark.driver.progress import StageCount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Label:
    """The names of one run's work in Spark."""

    tag: str
    """The unique tag of the run, by which its work is cancelled and its stages are counted."""
    description: str
    pool: str
    """The pool of Spark's fair scheduler."""


class Engine(Protocol):
    """One Spark session and the control of the work in it. All methods block, so do not call them in an event loop."""

    @property
    def session(self) -> SparkSession:
        """The session."""
        ...

    def open(self) -> None:
        """Prepare for runs. Idempotent. Raises the same errors as `check`."""
        ...

    def check(self) -> None:
        """Raise ExecutorError if the session cannot run any more Spark jobs."""
        ...

    def labelled(self, label: Label) -> AbstractContextManager[None]:
        """Label the Spark work of this thread during the block, and activate the session."""
        ...

    def cancel(self, label: Label) -> None:
        """Cancel the running work of a label. Work that is submitted later needs another call."""
        ...

    def stages(self, label: Label) -> Iterable[StageCount]:
        """Count the tasks of a label's stages. A stage that has ended may be missing after it was returned once."""
        ...

    def forget(self, label: Label) -> None:
        """Drop all state of a label."""
        ...

    def close(self) -> None:
        """Remove the registrations with the session. The session stays open."""
        ...
