"""Metrics for Prometheus: counters and histograms of adds and runs, and the depth of queues at each scrape."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from typing_extensions import override

from glidemq_async._internal.http_endpoint import HttpEndpoint, Page
from glidemq_async._internal.waits import together
from glidemq_async.instrumentation import (
    Addition,
    Instrumentation,
    QueueDepth,
    ReadDepth,
    RunJob,
    RunOutcome,
    RunReport,
    WorkerPart,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Prometheus"]

#: In seconds.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
#: Seconds that a scrape waits for the depth of the queues.
_DEPTH_SECONDS: Final = 2.0
#: Scrapes within this time share one reading of the queues.
_FRESH_SECONDS: Final = 1.0
_OTHER: Final = "other"

ReadCounts: TypeAlias = "Callable[[], Awaitable[Mapping[Any, int]]]"
"""A function that reads the number of jobs of a queue in each state."""

_log = logging.getLogger(__name__)


class Prometheus(Instrumentation):
    """Counts the adds and runs of its queues and workers, and exports the figures to Prometheus.

    With `port` it serves `/metrics` on `host` while one of its workers runs. `port=0` chooses a free port, which
    `endpoint.port` returns. Without `port`, mount `page` in your service, or export `registry` with prometheus_client;
    the registry shows the queue depths of the last `refresh`. Each process counts separately. The processes of
    `glidemq worker --processes` share the port, and a scrape shows all of them.

    `glidemq_jobs` is the depth of the workers' queues by state, `glidemq_oldest_waiting_seconds` the age of their
    oldest ready job, and `glidemq_workers` the number of their live workers. They are read at each scrape; `watch` adds
    other queues.
    `most_names` limits the job names in labels: further names are counted as "other".

    Needs the extra `prometheus`. Raises ImportError without it, and TypeError or ValueError for an invalid port.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
        most_names: int = 200,
    ) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise ImportError(
                "Prometheus needs the package prometheus-client: pip install 'glidemq-async[prometheus]'"
            ) from None
        self._client = prometheus_client
        self.registry = prometheus_client.CollectorRegistry() if registry is None else registry
        #: Serves /metrics if a port was given. Other services of the program can add pages to it.
        self.pages: dict[str, Callable[[], Awaitable[Page]]] = {"/metrics": self.page}
        self.endpoint = None if port is None else HttpEndpoint(self.pages, host=host, port=port, purpose="metrics")
        self._most_names = most_names
        self._names: set[str] = set()
        self._parts: dict[str, WorkerPart] = {}
        self._watched: dict[str, ReadDepth | ReadCounts] = {}
        self._refreshing = asyncio.Lock()
        self._refreshed = float("-inf")
        self._make_metrics()

    def _make_metrics(self) -> None:
        counter, gauge, histogram = self._client.Counter, self._client.Gauge, self._client.Histogram
        options: Any = {"namespace": "glidemq", "registry": self.registry}
        self._added = counter("jobs_added", "Added jobs by outcome.", ["queue", "job", "outcome"], **options)
        self._refused = counter("adds_failed", "Jobs whose add failed.", ["queue", "job", "error"], **options)
        self._started = counter("runs_started", "Runs that were started.", ["queue", "job"], **options)
        self._ended = counter("runs_ended", "Runs by stored outcome.", ["queue", "job", "outcome"], **options)
        self._duration = histogram(
            "run_duration_seconds", "Duration of runs.", ["queue", "job", "outcome"], buckets=_BUCKETS, **options
        )
        self._wait = histogram(
            "job_wait_seconds",
            "Time that jobs waited for a worker after they could start.",
            ["queue", "job"],
            buckets=_BUCKETS,
            **options,
        )
        self._depth = gauge("jobs", "Jobs in the queue, by state.", ["queue", "state"], **options)
        self._oldest = gauge(
            "oldest_waiting_seconds", "Age of the oldest job that is ready, 0 without one.", ["queue"], **options
        )
        self._workers = gauge("workers", "Live workers of the queue, in all processes.", ["queue"], **options)
        self._running = gauge("jobs_running", "Jobs that the workers of this process run.", ["queue"], **options)
        self._blind = counter("depth_errors", "Scrapes that could not read a queue.", ["queue"], **options)

    # -- what happens ---------------------------------------------------------------------------------------------

    @override
    def after_add(self, token: Any, additions: Sequence[Addition], error: BaseException | None) -> None:
        """Count added jobs."""
        for addition in additions:
            job = self._label(addition.name)
            if error is None:
                self._added.labels(addition.queue, job, addition.outcome).inc()
            else:
                self._refused.labels(addition.queue, job, type(error).__name__).inc()

    @override
    def before_run(self, job: RunJob) -> object:
        """Count a run, and how long its job waited."""
        label = self._label(job.name)
        self._started.labels(job.queue, label).inc()
        if (waited := job.waited) is not None:
            self._wait.labels(job.queue, label).observe(waited)
        return None

    @override
    def after_run(self, token: Any, job: RunJob, report: RunReport) -> None:
        """Note how long a run took."""
        self._duration.labels(job.queue, self._label(job.name), report.outcome).observe(report.seconds)

    @override
    def settled(self, job: RunJob, outcome: RunOutcome) -> None:
        """Count a stored outcome."""
        self._ended.labels(job.queue, self._label(job.name), outcome).inc()

    def _label(self, name: str) -> str:
        # Each new label value creates time series in Prometheus. Names may be generated, so their number is bounded.
        if name in self._names:
            return name
        if len(self._names) >= self._most_names:
            return _OTHER
        self._names.add(name)
        return name

    # -- depth ----------------------------------------------------------------------------------------------------

    def watch(self, queue: str, read: ReadDepth | ReadCounts) -> None:
        """Export the depth of another queue, for example `watch(queue.name, queue.get_depth)`.

        A function that returns only counts by state, for example `queue.get_job_counts`, exports only `glidemq_jobs`.
        """
        self._watched[queue] = read

    async def refresh(self) -> None:
        """Read the depth of the queues and the running jobs. Never raises; unreadable queues are left out."""
        # Several scrapers may come together. The first one reads the queues, and the others use its result.
        async with self._refreshing:
            if time.monotonic() - self._refreshed >= _FRESH_SECONDS:
                await self._look_at_all()
        # A worker that has closed must not stay in the gauge with its last value.
        self._running.clear()
        for part in self._parts.values():
            self._running.labels(part.queue).inc(part.running())

    async def _look_at_all(self) -> None:
        reading = self._watched | {part.queue: part.depth for part in self._parts.values()}
        for gauge in (self._depth, self._oldest, self._workers):
            gauge.clear()
        await together(self._look(queue, read) for queue, read in reading.items())
        self._refreshed = time.monotonic()

    async def _look(self, queue: str, read: ReadDepth | ReadCounts) -> None:
        try:
            async with asyncio.timeout(_DEPTH_SECONDS):
                found = await read()
        except Exception as error:  # noqa: BLE001 - an error of one queue must not hide all other figures
            _log.warning("the depth of queue %s cannot be read: %r", queue, error)
            self._blind.labels(queue).inc()
            return
        if isinstance(found, QueueDepth):
            self._oldest.labels(queue).set(found.oldest_waiting_seconds or 0)
            self._workers.labels(queue).set(found.workers)
            found = found.counts
        for state, number in found.items():
            self._depth.labels(queue, state).set(number)

    async def page(self) -> Page:
        """Return the page that Prometheus scrapes; mount it in your service."""
        await self.refresh()
        return Page(self._client.generate_latest(self.registry), self._client.CONTENT_TYPE_LATEST)

    # -- the life of workers --------------------------------------------------------------------------------------

    @override
    async def worker_started(self, worker: WorkerPart) -> None:
        """Watch the worker's queue, and start serving. Raises OSError when the port is in use."""
        if self.endpoint is not None:
            await self.endpoint.start()
        self._parts[worker.name] = worker

    @override
    async def worker_stopped(self, worker: WorkerPart) -> None:
        """Forget the worker. The last one closes the port."""
        self._parts.pop(worker.name, None)
        if self.endpoint is not None and not self._parts:
            await self.endpoint.close()
