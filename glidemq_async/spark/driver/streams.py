"""`run_stream`: run a streaming query as a long job, with the lag of the query as progress."""

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

CHECK_SECONDS: Final = 0.2
"""Maximum delay in seconds between a change of `job.abort` and the stop of the query."""
MOST_DEPTH: Final = 8


class StreamState(TypedDict):
    """State of a query: its last batch, the rows of that batch, and the number of unread rows of its sources.

    `lag` is None if the offsets of a source are not numbers.
    """

    query_id: str
    batch_id: int
    rows: int
    rows_per_second: float | None
    lag: int | None


def run_stream(job: Job[Any, Any], query: StreamingQuery, *, interval: float | timedelta = 1.0) -> StreamState:
    """Wait for the end of a query that was started for this job, and return its last state.

    Call this at the end of a handler in SparkExecutor, or in any executor that uses threads. Every `interval` seconds
    the state of the query becomes `job.progress`. When `job.abort` is set (revocation, timeout, shutdown of the
    worker), the query is stopped. A released job continues in another worker from the checkpoint. If the query fails,
    its error is raised, and the job's attempts and backoff decide about another start. Raises LeaseLost, with the query
    stopped, if another worker has claimed the job.
    """
    seconds = to_ms("interval", interval, allow_zero=False) / 1000
    reported: StreamState | None = None
    due = time.monotonic() + seconds
    try:
        while not _ended(query):
            if job.abort.wait_in_thread(CHECK_SECONDS):
                break
            if time.monotonic() >= due:
                reported = _report(job, query, reported)
                due = time.monotonic() + seconds
    finally:
        # Stop the query in every case, also on LeaseLost: another worker may start it from the same checkpoint, which
        # only one run may use.
        _stop(query)
    # After an abort the outcome of the job is decided, and the error of the stopped query would only hide it.
    if not job.abort.is_set():
        query.awaitTermination()  # raises the error of the query
        reported = _report(job, query, reported)
    return reported or _state(query)


def _ended(query: StreamingQuery) -> bool:
    return not query.isActive


def _stop(query: StreamingQuery) -> None:
    if query.isActive:
        # The batch may be cancelled at the same time. Its error is irrelevant here.
        with suppress(Exception):
            query.stop()


def _report(job: Job[Any, Any], query: StreamingQuery, reported: StreamState | None) -> StreamState:
    state = _state(query)
    if state != reported:
        try:
            job.sync.update_progress(state)
        except LeaseLost:
            raise
        except GlideMQError:  # the server is unreachable: the next report follows soon
            return reported or state
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
    """Return the number of rows between the `(end, latest)` pairs of all sources, or None if an offset has no numbers.

    Offsets are JSON: a number, or nested objects of numbers, as in Kafka and `format("glidemq")`.
    """
    total = 0
    for end, latest in offsets:
        distance = _distance(_parsed(end), _parsed(latest), MOST_DEPTH)
        if distance is None:
            return None
        total += distance
    return total if offsets else None


def _parsed(offset: object) -> object:
    if isinstance(offset, str):
        with suppress(ValueError):
            return json.loads(offset)
    return offset


def _distance(end: Any, latest: Any, depth: int) -> int | None:
    if isinstance(latest, int) and not isinstance(latest, bool):
        return max(0, latest - end) if isinstance(end, int) else None
    if not isinstance(latest, dict) or not depth:
        return None
    # A new partition or queue is missing in the end. It is read from its beginning.
    begun = end if isinstance(end, dict) else {} if end is None else None
    if begun is None:
        return None
    # In offsets of `format("glidemq")`, "b" contains the begins of the batch and "v" the version.
    names = [name for name in latest if name not in ("b", "v")]
    parts = [_distance(begun.get(name, _beginning(latest[name])), latest[name], depth - 1) for name in names]
    numbers = [part for part in parts if part is not None]
    return sum(numbers) if numbers else None


def _beginning(latest: Any) -> object:
    return {} if isinstance(latest, dict) else 0
