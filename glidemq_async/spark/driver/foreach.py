"""Jobs from the micro-batches of a streaming query, each exactly once: what `foreachBatch` is given."""

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
#: Spark runs all jobs of one run of a query in a group named after the run.
RUN_ID: Final = "spark.jobGroup.id"


def foreach_batch(
    queue: Queue[Any, Any] | str,
    build: Callable[[DataFrame, int], Iterable[JobInput[Any]] | None],
    *,
    url: str | None = None,
    prefix: str = DEFAULT_PREFIX,
    key: str | None = None,
    remember: float | timedelta = WEEK,
) -> BatchJobs:
    """Return a function for `writeStream.foreachBatch` that adds the jobs which `build` makes of each micro-batch.

    `build(frame, batch_id)` returns (name, data) or (name, data, JobOptions) for each job, as `add_bulk` takes them, or
    None. It is for few jobs per batch, a summary, an alarm, "this partition is there": a job per row is what
    `format("glidemq")` writes.

    Spark repeats a batch whose end it has not noted, so ids are deterministic: `<key>:<batch_id>` for the first job of
    a batch, `<key>:<batch_id>:<k>` for the others, and a repeated batch adds none, for `remember` (seconds or a
    timedelta) even if its jobs have ended and gone. This holds as long as `build` makes the same jobs in the same
    order. A job id that `build` gives itself stays. Only when all jobs are stored does the batch end: none is lost.

    `key` is the id of the query by default, which stays the same for its checkpoint; it holds no ":". Two functions
    that would make the same ids, for they add to one queue from one query under one key, are refused in their first
    batch (not on Spark Connect, which does not tell runs apart). With Spark Connect the function
    runs in a process beside the server: `queue` must be a name then, with the `url` of a server that it can reach, and
    `key` one of your own. Raises ValueError or TypeError for bad options.
    """
    return BatchJobs(queue, build, url=url, prefix=prefix, key=key, remember=remember)


class BatchJobs:
    """Adds the jobs of micro-batches; made by `foreach_batch`. `close` lets go of a queue that it opened itself."""

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
        """What tells this function from others; its copies have it too."""
        self._remember = to_ms("remember", remember, allow_zero=False) / 1000

    def __repr__(self) -> str:
        return f"<foreach_batch for queue {self._name!r}>"

    def __getstate__(self) -> dict[str, Any]:
        if not self._own:
            raise TypeError(
                f"{self!r} goes to another process, as Spark Connect asks for, and an open Queue cannot: pass the "
                "queue's name and url="
            )
        return {**self.__dict__, "_queue": None}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Add the jobs of one micro-batch; what is raised fails the batch, and Spark repeats it."""
        found = self._build(frame, batch_id)
        inputs = [] if found is None else list(found)
        if not inputs:
            return
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
        if len(_newest) >= _MOST_RUNS:
            _newest.clear()
        _newest[ids] = batch_id, self.mark

    def _refuse_another(self, ids: tuple[str, ...], batch_id: int) -> None:
        batch, mark = _newest.get(ids, (-1, ""))
        if batch == batch_id and mark != self.mark:
            raise ValueError(
                f"two functions of foreach_batch add to queue {self._name!r} in one query with ids {ids[-1]}:<batch>; "
                "the jobs of the second would be taken for those of the first: give each a key= of its own"
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
        """Close the queue if it was opened here; it would be opened again."""
        if self._own and self._queue is not None:
            self._queue.sync.close()
            self._queue = None


#: The last batch of each run and kind of ids, and the function that made its jobs.
_newest: Final[dict[tuple[str, ...], tuple[int, str]]] = {}


def _key(key: str) -> str:
    if ":" in check_id("key", key):
        raise ValueError(
            f"key must not hold a ':', got {key!r}: key 'a:1' and batch 2 would be key 'a', batch 1, job 2"
        )
    return key


def _property(frame: DataFrame, name: str) -> str | None:
    spark = frame.sparkSession
    return spark.sparkContext.getLocalProperty(name) if hasattr(spark, "_jsparkSession") else None


def _query_id(frame: DataFrame) -> str:
    found = _property(frame, QUERY_ID)
    if not found:
        raise ValueError(
            "the id of the query is not known here (Spark Connect does not tell it): pass key= to foreach_batch, a "
            "name of your own that no other query has"
        )
    return found
