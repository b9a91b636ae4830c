"""A streaming query as a long job: it is stopped with the job, and its lag is the job's progress."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict

from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError, LeaseLost
from glidemq_async.jobs.job import Job
from glidemq_async.spark.driver.progress import rate

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS: Final = 0.2
"""How long the job's end may stay unnoticed."""
MOST_DEPTH: Final = 8


class StreamState(TypedDict):
    """How far a query is: the last batch, its rows, and how many rows its sources hold that it has not read.

    `lag` is None where the offsets of a source are no numbers.
    """

    query_id: str
    batch_id: int
    rows: int
    rows_per_second: float | None
    lag: int | None


def run_stream(job: Job[Any, Any], query: StreamingQuery, *, interval: float | timedelta = 1.0) -> StreamState:
    """Wait for the end of a query that was started for this job, and return how far it came.

    Call it at the end of a function of SparkExecutor (or of any executor of threads). Every `interval` seconds the
    query's state becomes `job.progress`. When the job is to end (`job.abort`: revoked, timed out, its worker stops)
    the query is stopped; a job that is handed back goes on elsewhere, where the checkpoint says. A query that fails
    raises its error, and the job's attempts and backoff say whether it is started again. Raises LeaseLost when another
    worker has the job: the query was stopped then.
    """
    seconds = to_ms("interval", interval, allow_zero=False) / 1000
    told: StreamState | None = None
    due = time.monotonic() + seconds
    try:
        while not _ended(query):
            if job.abort.wait_in_thread(LOOK_SECONDS):
                break
            if time.monotonic() >= due:
                told = _tell(job, query, told)
                due = time.monotonic() + seconds
    finally:
        _stop(query)
    if not job.abort.is_set():
        query.awaitTermination()  # raises what the query failed with
        told = _tell(job, query, told)
    return told or _state(query)


def _ended(query: StreamingQuery) -> bool:
    return not query.isActive


def _stop(query: StreamingQuery) -> None:
    if query.isActive:
        # Its batch may be cancelled at the same time, which says nothing that matters any more.
        with suppress(Exception):
            query.stop()


def _tell(job: Job[Any, Any], query: StreamingQuery, told: StreamState | None) -> StreamState:
    state = _state(query)
    if state != told:
        try:
            job.sync.update_progress(state)
        except LeaseLost:
            raise
        except GlideMQError:  # the store is away: the next time will do
            return told or state
    return state


def _state(query: StreamingQuery) -> StreamState:
    progress: Any = query.lastProgress
    found = StreamState(query_id=str(query.id), batch_id=-1, rows=0, rows_per_second=None, lag=None)
    if progress is None:
        return found
    return StreamState(
        query_id=found["query_id"],
        batch_id=int(progress.batchId),
        rows=int(progress.numInputRows),
        rows_per_second=rate(progress.processedRowsPerSecond),
        lag=lag_of([(source.endOffset, source.latestOffset) for source in progress.sources]),
    )


def lag_of(offsets: list[tuple[object, object]]) -> int | None:
    """Return how much lies between (end, latest) of each source, None when one has no numbers.

    Offsets are JSON: a number, or objects with numbers at their ends, as those of Kafka and of `format("glidemq")`.
    """
    total = 0
    for end, latest in offsets:
        between = _between(_parsed(end), _parsed(latest), MOST_DEPTH)
        if between is None:
            return None
        total += between
    return total if offsets else None


def _parsed(offset: object) -> object:
    if isinstance(offset, str):
        with suppress(ValueError):
            return json.loads(offset)
    return offset


def _between(end: Any, latest: Any, depth: int) -> int | None:
    if isinstance(latest, int) and not isinstance(latest, bool):
        return max(0, latest - end) if isinstance(end, int) else None
    if not isinstance(latest, dict) or not depth:
        return None
    # What the end does not name yet, a partition or a queue that is new, is read from its beginning.
    begun = end if isinstance(end, dict) else {} if end is None else None
    if begun is None:
        return None
    # "b" is where the batch begins in offsets of our own, "v" their version.
    names = [name for name in latest if name not in ("b", "v")]
    parts = [_between(begun.get(name, _beginning(latest[name])), latest[name], depth - 1) for name in names]
    numbers = [part for part in parts if part is not None]
    return sum(numbers) if numbers else None


def _beginning(latest: Any) -> object:
    return {} if isinstance(latest, dict) else 0
