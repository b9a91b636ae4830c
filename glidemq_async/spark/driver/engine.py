"""What a run asks of Spark, the same for a session in this process (Classic) and for Spark Connect."""

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
    """What the work of one run is called in Spark."""

    tag: str
    """Of no other run: what is cancelled, and whose stages are counted."""
    description: str
    pool: str
    """Of Spark's fair scheduler."""


class Engine(Protocol):
    """One Spark session and how to steer what runs in it. Its calls block: none belongs in an event loop."""

    @property
    def session(self) -> SparkSession:
        """The session."""
        ...

    def open(self) -> None:
        """Get ready for runs; idempotent. Raises as `check` does."""
        ...

    def check(self) -> None:
        """Raise ExecutorError, which says what to do, when nothing can be run in the session any more."""
        ...

    def labelled(self, label: Label) -> AbstractContextManager[None]:
        """Let what this thread does in Spark inside of the block bear a label, with the session active."""
        ...

    def cancel(self, label: Label) -> None:
        """Cancel what runs under a label now; what is submitted later needs another call."""
        ...

    def stages(self, label: Label) -> Iterable[StageCount]:
        """Count the tasks of a label's stages, as far as they are known and not told of for the last time."""
        ...

    def forget(self, label: Label) -> None:
        """Let go of what is kept for a label."""
        ...

    def close(self) -> None:
        """Take back what was registered with the session, which stays open."""
        ...
