"""`foreach_batch`: add jobs for each micro-batch of a streaming query, each job once."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.durations import to_ms
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.job_options import JobOptions, merge
from glidemq_async.queues.base import JobInput
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.names import check_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_RUNS: Final = 1000

WEEK: Final = timedelta(days=7)
QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
"""Spark runs all jobs of one run of a query in a job group whose id is the run's id."""


def foreach_batch(
    queue: Queue[Any, Any] | str,
    build: Callable[[DataFrame, int], Iterable[JobInput[Any]] | None],
    *,
    url: str | None = None,
    prefix: str = DEFAULT_PREFIX,
    key: str | None = None,
    remember: float | timedelta = WEEK,
) -> BatchJobs:
    """Return a function for `writeStream.foreachBatch` that adds the jobs which `build` creates for each micro-batch.

    `build(frame, batch_id)` returns a list of (name, data) or (name, data, JobOptions), as `add_bulk` takes them, or
    None. Use it for few jobs per batch, such as a summary or an alert. For a job per row write to `format("glidemq")`.

    The batch ends when all its jobs are stored, so no job is lost. Spark repeats a batch whose end it has not recorded.
    Ids are therefore deterministic: `<key>:<batch_id>` for the first job of a batch and `<key>:<batch_id>:<k>` for the
    others. For `remember` (seconds or a timedelta) a repeated batch adds none of them again, even if they have ended
    and were removed. `build` must create the same jobs in the same order each time. A job id from `build` is kept.

    The default of `key` is the id of the query, which is stored in its checkpoint. A key must not contain ":". Two
    functions that add to one queue from one query need different keys, because their jobs would have the same ids. The
    first batch of the second function raises ValueError, except on Spark Connect, which does not distinguish runs.

    On Spark Connect the function runs in a process next to the server. Pass the name of the queue, a `url` that this
    process can reach, and a `key`. Raises ValueError or TypeError for bad options.
    """
    return BatchJobs(queue, build, url=url, prefix=prefix, key=key, remember=remember)


class BatchJobs:
    """Function that adds the jobs of micro-batches, from `foreach_batch`. `close` closes a queue that it has opened."""

    def __init__(
        self,
        queue: Queue[Any, Any] | str,
        build: Callable[[DataFrame, int], Iterable[JobInput[Any]] | None],
        *,
        url: str | None,
        prefix: str,
        key: str | None,
        remember: float | timedelta,
    ) -> None:
        if not callable(build):
            raise TypeError(f"build must be a function of (frame, batch_id), got {build!r}")
        if isinstance(queue, str) == (url is None):
            raise TypeError("foreach_batch takes an open Queue, or the name of one together with url=")
        self._name = queue if isinstance(queue, str) else queue.name
        self._queue = None if isinstance(queue, str) else queue
        self._own = isinstance(queue, str)
        self._build = build
        self._url = url
        self._prefix = prefix
        self._key = None if key is None else _key(key)
        self.mark = uuid.uuid4().hex
        """Identity of this function. Pickled copies have the same mark."""
        self._remember = to_ms("remember", remember, allow_zero=False) / 1000

    def __repr__(self) -> str:
        return f"<foreach_batch for queue {self._name!r}>"

    def __getstate__(self) -> dict[str, Any]:
        if not self._own:
            raise TypeError(
                f"{self!r} cannot be pickled with an open Queue, but Spark Connect runs it in another process; pass "
                "the queue's name and url= instead"
            )
        return {**self.__dict__, "_queue": None}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Add the jobs of one micro-batch. An error fails the batch, and Spark repeats it."""
        found = self._build(frame, batch_id)
        inputs = [] if found is None else list(found)
        if not inputs:
            return
        # Spark runs a batch again if the driver dies before it has recorded the end, even days later. The job id alone
        # is not enough then: it is free again once the job was removed. The deduplication of `_input` remembers it for
        # `remember`.
        key = self._key or _query_id(frame)
        base = f"{key}:{batch_id}"
        jobs = [self._input(each, base if k == 0 else f"{base}:{k}") for k, each in enumerate(inputs)]
        run = _property(frame, RUN_ID)
        if run is None or all(rest and rest[0].job_id for _, _, *rest in inputs):
            self._opened().sync.add_bulk(jobs)
            return
        ids = (run, self._url or "", self._prefix, self._name, key)
        self._refuse_another(ids, batch_id)
        self._opened().sync.add_bulk(jobs)
        if len(_last_batches) >= _MOST_RUNS:
            _last_batches.clear()
        _last_batches[ids] = batch_id, self.mark

    def _refuse_another(self, ids: tuple[str, ...], batch_id: int) -> None:
        # Two functions with the same id prefix would silently lose jobs: the ids of the second function exist already,
        # so its jobs count as duplicates. A repeated batch of one function has the same mark and is allowed.
        batch, mark = _last_batches.get(ids, (-1, ""))
        if batch == batch_id and mark != self.mark:
            raise ValueError(
                f"two functions of foreach_batch add to queue {self._name!r} in one query with ids {ids[-1]}:<batch>, "
                "so the jobs of the second function would count as duplicates; pass a different key= to each"
            )

    def _input(self, given: JobInput[Any], job_id: str) -> tuple[str, Any, JobOptions]:
        name, data, *rest = given
        options: JobOptions = rest[0] if rest else JobOptions()
        if options.job_id is None:
            once = Deduplication(job_id, self._remember, "throttle")
            options = merge(JobOptions(job_id=job_id, deduplication=once), options)
        return name, data, options

    def _opened(self) -> Queue[Any, Any]:
        if self._queue is None:
            self._queue = Queue(self._name, self._url, prefix=self._prefix)
        return self._queue

    def close(self) -> None:
        """Close the queue if this object has opened it. The next batch opens it again."""
        if self._own and self._queue is not None:
            self._queue.sync.close()
            self._queue = None


_last_batches: Final[dict[tuple[str, ...], tuple[int, str]]] = {}
"""The last batch of each run and id prefix, and the mark of the function that added its jobs."""


def _key(key: str) -> str:
    if ":" in check_id("key", key):
        raise ValueError(
            f"key must not contain ':', got {key!r}: the job of key 'a:1' and batch 2 would have the id of key 'a', "
            "batch 1, job 2"
        )
    return key


def _property(frame: DataFrame, name: str) -> str | None:
    spark = frame.sparkSession
    return spark.sparkContext.getLocalProperty(name) if hasattr(spark, "_jsparkSession") else None


def _query_id(frame: DataFrame) -> str:
    found = _property(frame, QUERY_ID)
    if not found:
        raise ValueError(
            "the id of the query is unknown here, because Spark Connect does not pass it; pass key= to foreach_batch, "
            "with a name that no other query uses"
        )
    return found
