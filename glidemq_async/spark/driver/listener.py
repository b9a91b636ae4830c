"""`QueryListener`: add a job for each event of streaming queries (started, progress, idle, terminated)."""

# The names of the callbacks are Spark's, and pyspark's own annotations are incomplete.
# ruff: noqa: N802
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, get_args

from pyspark.errors import AnalysisException
from pyspark.sql.streaming.listener import StreamingQueryListener

from glidemq_async.durations import to_ms
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.job_options import JobOptions, merge
from glidemq_async.queues.queue import Queue
from glidemq_async.spark.driver.handoff import Delivered, Handoff, HandoffStats, Overflow
from glidemq_async.spark.driver.progress import rate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

QueryEventKind: TypeAlias = Literal["started", "progress", "idle", "terminated"]
KINDS: Final[tuple[QueryEventKind, ...]] = get_args(QueryEventKind)
WEEK: Final = timedelta(days=7)
CLOSE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """An event of a streaming query. `details` contains plain values that depend on the kind of the event."""

    kind: QueryEventKind
    query_id: str
    run_id: str
    details: dict[str, Any]

    @property
    def job_id(self) -> str:
        """The id of its job. It is the same if the event is reported again."""
        if self.kind == "progress":
            return f"{self.query_id}:progress:{self.details['batch_id']}"
        if self.kind == "idle":
            return f"{self.query_id}:idle:{self.details['timestamp']}"
        return f"{self.query_id}:{self.kind}:{self.run_id}"

    def data(self) -> dict[str, Any]:
        """Return the data of its job, unless the listener has a `build` function."""
        return {"kind": self.kind, "query_id": self.query_id, "run_id": self.run_id, **self.details}


class QueryListener(StreamingQueryListener):
    """Adds a job for each event of the session's streaming queries: `QueryListener(queue).attach(spark)`.

    Jobs have the name `name.kind` ("query.progress") and the data `QueryEvent.data()`, or the result of `build`, a
    function of the event that a thread of the listener calls. If it returns None, the event is skipped. `on` selects
    the kinds of events, and `options` applies to all jobs. Ids are deterministic: for `remember` (seconds or timedelta)
    an event adds no second job, even if the first one has ended and was removed.

    Spark's callback takes microseconds: it puts the event into a buffer of `capacity` events. If the buffer is full,
    `overflow` decides: "drop" drops and counts events, and "block" makes Spark wait, which delays queries. The listener
    waits for a server that is unreachable. An event is reported at most once, because a driver that dies loses its
    buffer. For progress events `reconcile` repairs this. `attach` calls it for each of the `checkpoints`: it adds a job
    for each batch that was committed within `remember` and has none, with `reconciled: True` and without numbers.

    If no job may be lost, use `foreach_batch`. On Spark Connect the callbacks run in the client's process. Raises
    ValueError or TypeError for bad options.
    """

    def __init__(
        self,
        queue: Queue[Any, Any],
        *,
        name: str = "query",
        on: Collection[QueryEventKind] = KINDS,
        build: Callable[[QueryEvent], Any] | None = None,
        options: JobOptions | None = None,
        checkpoints: Iterable[str] = (),
        remember: float | timedelta = WEEK,
        capacity: int = 1000,
        overflow: Overflow = "drop",
    ) -> None:
        unknown = set(on) - set(KINDS)
        if isinstance(on, str) or unknown:
            raise ValueError(f"on must be a collection of {', '.join(KINDS)}, got {on!r}")
        self._queue = queue
        self._name = name
        self._on = frozenset(on)
        self._build = build
        self._options = options or JobOptions()
        self._checkpoints = list(checkpoints)
        self._remember = to_ms("remember", remember, allow_zero=False) / 1000
        self._handoff: Handoff[QueryEvent | Callable[[], QueryEvent]] = Handoff(
            self._deliver, capacity, overflow, "query-listener"
        )
        self._session: SparkSession | None = None

    # -- life -----------------------------------------------------------------------------------------------------

    def attach(self, spark: SparkSession) -> Self:
        """Listen to the queries of a session, reconcile the checkpoints, and return the listener.

        Blocks while it reads the checkpoints. Raises RuntimeError if the listener is attached already.
        """
        if self._session is not None:
            raise RuntimeError("this QueryListener is attached to a session already; create one for each session")
        spark.streams.addListener(self)
        self._session = spark
        for checkpoint in self._checkpoints:
            self.reconcile(spark, checkpoint)
        return self

    def reconcile(self, spark: SparkSession, checkpoint: str) -> int:
        """Report each recently committed batch of a checkpoint, and return their number.

        A batch that has a job adds no second one. A checkpoint that does not exist yet has no batches.
        """
        if "progress" not in self._on:
            return 0
        try:
            # Only batches within `remember`: an older batch may have had a job whose deduplication has expired, and it
            # would get a second one.
            query_id, batches = _committed(spark, checkpoint, self._remember)
        except AnalysisException as error:
            _log.info("nothing to reconcile in %s: %s", checkpoint, error.getCondition())
            return 0
        for batch in batches:
            details = {"batch_id": batch, "reconciled": True}
            self._handoff.put(QueryEvent("progress", query_id, "", details))
        return len(batches)

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Stop listening and add the buffered events. Return False if this takes longer than `timeout` seconds.

        The queue stays open. Raises RuntimeError in the thread of an event loop, which it would block. There call
        `await asyncio.to_thread(listener.close)`.
        """
        _refuse_in_loop()
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the session may be stopped
                session.streams.removeListener(self)
        return self._handoff.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def stats(self) -> HandoffStats:
        """The counts of events so far."""
        return self._handoff.stats

    # -- callbacks of Spark ----------------------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Report the event."""
        self._report("started", lambda: _started(event))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the event."""
        self._report("progress", lambda: _progress(event))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Report the event."""
        self._report("idle", lambda: _idle(event))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Report the event."""
        self._report("terminated", lambda: _terminated(event))

    def _report(self, kind: QueryEventKind, event: Callable[[], QueryEvent]) -> None:
        # The event is read later, in the thread of the handoff: reading it is a series of calls into the JVM, which
        # take longer than Spark should wait.
        if kind in self._on:
            self._handoff.put(event)

    # -- in the thread of the hand-off ----------------------------------------------------------------------------

    def _deliver(self, events: Sequence[QueryEvent | Callable[[], QueryEvent]]) -> Delivered:
        built = [pair for pair in map(self._built, events) if pair is not None]
        inputs = [
            (f"{self._name}.{event.kind}", data, self._options_of(event)) for event, data in built if data is not None
        ]
        # If the server is unreachable, this raises StorageUnavailable and the handoff repeats the entire batch. That is
        # safe, because ids and deduplication make a second add of the same event a duplicate.
        jobs = self._queue.sync.add_bulk(inputs)
        added = sum(1 for job in jobs if job.outcome == "added")
        return Delivered(added, len(jobs) - added, len(built) - len(inputs))

    def _built(self, each: QueryEvent | Callable[[], QueryEvent]) -> tuple[QueryEvent, Any] | None:
        """Return an event and the data of its job, or None after an error."""
        try:
            event = each if isinstance(each, QueryEvent) else each()
            return event, self._build(event) if self._build is not None else event.data()
        except Exception:  # noqa: BLE001 - one bad event must not stop the others
            _log.exception("no job could be built for an event of a streaming query")
            return None

    def _options_of(self, event: QueryEvent) -> JobOptions:
        once = Deduplication(event.job_id, self._remember, "throttle")
        return merge(self._options, JobOptions(job_id=event.job_id, deduplication=once))


def _refuse_in_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "close would block the event loop of this thread, which its jobs may need; call "
        "await asyncio.to_thread(listener.close)"
    )


def _committed(spark: SparkSession, checkpoint: str, seconds: float) -> tuple[str, list[int]]:
    """Return the id of the query and its batches of the last `seconds`.

    Spark can read checkpoints on any file system.
    """
    first = spark.read.text(f"{checkpoint}/metadata").collect()[0]
    query_id = str(json.loads(first.value)["id"])
    commits = spark.read.format("binaryFile").load(f"{checkpoint}/commits")
    recent = commits.where(f"modificationTime >= current_timestamp() - make_dt_interval(0, 0, 0, {seconds})")
    names = (str(row.path).rpartition("/")[2] for row in recent.select("path").collect())
    return query_id, sorted(int(name) for name in names if name.isdecimal())


def _started(event: QueryStartedEvent) -> QueryEvent:
    details = {"name": event.name, "timestamp": event.timestamp}
    return QueryEvent("started", str(event.id), str(event.runId), details)


def _idle(event: QueryIdleEvent) -> QueryEvent:
    return QueryEvent("idle", str(event.id), str(event.runId), {"timestamp": event.timestamp})


def _terminated(event: QueryTerminatedEvent) -> QueryEvent:
    details = {"exception": event.exception, "error_class": event.errorClassOnException}
    return QueryEvent("terminated", str(event.id), str(event.runId), details)


def _progress(event: QueryProgressEvent) -> QueryEvent:
    progress = event.progress
    sources = [
        {"description": source.description, "end": source.endOffset, "latest": source.latestOffset}
        for source in progress.sources
    ]
    details = {
        "name": progress.name,
        "timestamp": progress.timestamp,
        "batch_id": progress.batchId,
        "rows": progress.numInputRows,
        "input_rows_per_second": rate(progress.inputRowsPerSecond),
        "processed_rows_per_second": rate(progress.processedRowsPerSecond),
        "duration_ms": dict(progress.durationMs),
        "event_time": dict(progress.eventTime),
        "sources": sources,
        "metrics": {name: row.asDict(recursive=True) for name, row in progress.observedMetrics.items()},
    }
    return QueryEvent("progress", str(progress.id), str(progress.runId), details)
