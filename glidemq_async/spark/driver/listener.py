"""Jobs from what happens to streaming queries: started, progress, idle, terminated."""

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
    """Something that happened to a streaming query; `details` are plain values, by the kind of event."""

    kind: QueryEventKind
    query_id: str
    run_id: str
    details: dict[str, Any]

    @property
    def job_id(self) -> str:
        """The id of its job: the same whenever the same thing is told again."""
        if self.kind == "progress":
            return f"{self.query_id}:progress:{self.details['batch_id']}"
        if self.kind == "idle":
            return f"{self.query_id}:idle:{self.details['timestamp']}"
        return f"{self.query_id}:{self.kind}:{self.run_id}"

    def data(self) -> dict[str, Any]:
        """Return what its job carries, unless `build` makes something else."""
        return {"kind": self.kind, "query_id": self.query_id, "run_id": self.run_id, **self.details}


class QueryListener(StreamingQueryListener):
    """Adds a job for each event of the session's streaming queries: `QueryListener(queue).attach(spark)`.

    Jobs are named `name.kind` ("query.progress") and carry `QueryEvent.data()`, or what `build` (a function of the
    event, called in a thread of the listener) returns; None leaves the event out. `on` says which kinds, `options` what
    else holds for the jobs. Their ids are deterministic, and for `remember` (seconds or timedelta) one and the same
    event makes no second job, even if the first has ended and gone.

    Spark's callback takes microseconds: it leaves the event in a buffer of `capacity` and returns. When that is full,
    "drop" leaves events out and counts them, "block" lets Spark wait, which holds up queries. A server that is away is
    waited for. So events are told at most once: a driver that dies takes along what it had not added. For progress
    that is made up for by `reconcile`, which `attach` calls for each of the `checkpoints`: it adds a job for every
    batch that was committed in the last `remember` and has none, with `reconciled: True` and no numbers.

    For jobs that must not get lost use `foreach_batch`. With Spark Connect the callbacks run in the client's process.
    Raises ValueError or TypeError for bad options.
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
            raise ValueError(f"on must hold some of {', '.join(KINDS)}, got {on!r}")
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
        """Listen to the queries of a session and reconcile the checkpoints; returns the listener itself.

        Blocks for as long as it takes to read the checkpoints. Raises RuntimeError when it listens already.
        """
        if self._session is not None:
            raise RuntimeError("this QueryListener listens to a session already: make one for each")
        spark.streams.addListener(self)
        self._session = spark
        for checkpoint in self._checkpoints:
            self.reconcile(spark, checkpoint)
        return self

    def reconcile(self, spark: SparkSession, checkpoint: str) -> int:
        """Leave an event for each recently committed batch of a checkpoint; those that have a job make no other one.

        Answers how many were left. A checkpoint that does not exist yet has none.
        """
        if "progress" not in self._on:
            return 0
        try:
            query_id, batches = _committed(spark, checkpoint, self._remember)
        except AnalysisException as error:
            _log.info("nothing to reconcile in %s: %s", checkpoint, error.getCondition())
            return 0
        for batch in batches:
            details = {"batch_id": batch, "reconciled": True}
            self._handoff.put(QueryEvent("progress", query_id, "", details))
        return len(batches)

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Listen no more, and add what is left; answers False when that took longer than `timeout` seconds.

        The queue stays open. Raises RuntimeError in the thread of an event loop, which it would hold up: there
        `await asyncio.to_thread(listener.close)`.
        """
        _refuse_in_loop()
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the session may have gone
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
        """What became of the events until now."""
        return self._handoff.stats

    # -- Spark calls these ----------------------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Leave the event."""
        self._leave("started", lambda: _started(event))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Leave the event."""
        self._leave("progress", lambda: _progress(event))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Leave the event."""
        self._leave("idle", lambda: _idle(event))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Leave the event."""
        self._leave("terminated", lambda: _terminated(event))

    def _leave(self, kind: QueryEventKind, event: Callable[[], QueryEvent]) -> None:
        # Reading an event takes longer than Spark should wait.
        if kind in self._on:
            self._handoff.put(event)

    # -- in the thread of the hand-off ----------------------------------------------------------------------------

    def _deliver(self, events: Sequence[QueryEvent | Callable[[], QueryEvent]]) -> Delivered:
        left_out = 0
        inputs: list[tuple[str, Any, JobOptions]] = []
        for each in events:
            try:
                event = each if isinstance(each, QueryEvent) else each()
                data = self._build(event) if self._build is not None else event.data()
            except Exception:  # noqa: BLE001 - one event that cannot be told must not keep the others from it
                _log.exception("an event of a streaming query makes no job")
                continue
            if data is None:
                left_out += 1
            else:
                inputs.append((f"{self._name}.{event.kind}", data, self._options_of(event)))
        jobs = self._queue.sync.add_bulk(inputs)
        added = sum(1 for job in jobs if job.outcome == "added")
        return Delivered(added, len(jobs) - added, left_out)

    def _options_of(self, event: QueryEvent) -> JobOptions:
        once = Deduplication(event.job_id, self._remember, "throttle")
        return merge(self._options, JobOptions(job_id=event.job_id, deduplication=once))


def _refuse_in_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "close was called in the thread of an event loop, and waits for what may need that loop: "
        "await asyncio.to_thread(listener.close)"
    )


def _committed(spark: SparkSession, checkpoint: str, seconds: float) -> tuple[str, list[int]]:
    """The query's id and the batches that were committed so recently. Spark reads wherever its checkpoints lie."""
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
