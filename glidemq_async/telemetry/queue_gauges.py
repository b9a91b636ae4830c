"""Observable gauges of OpenTelemetry for queues: jobs by state, the age of the oldest ready job, and workers.

The SDK calls the gauges when it collects the metrics, in a separate thread. The reading then runs in the event loop
of the queue. Nothing is read between two collections.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from glidemq_async.instrumentation import QueueDepth, ReadDepth, WorkerPart

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_READ_SECONDS: Final = 2.0
"""Seconds after which the reading of a queue is given up."""
_WAIT_SECONDS: Final = 2.5
"""Seconds that a collection waits for an event loop. A loop that is blocked for longer is left out."""
_FRESH_SECONDS: Final = 1.0
"""Seconds within which collections, and the gauges of one collection, share a reading."""

_log = logging.getLogger(__name__)


class _Source(NamedTuple):
    loop: asyncio.AbstractEventLoop
    read: ReadDepth


class QueueGauges:
    """The gauges of the queues of this process. `watch` and `add_worker` run in the event loop of the queue."""

    def __init__(self, meter: Meter, system: str) -> None:
        from opentelemetry.metrics import Observation

        self._observation = Observation
        self._system = system
        self._workers: dict[str, tuple[str, _Source]] = {}
        self._watched: dict[str, _Source] = {}
        self._depths: dict[str, QueueDepth] = {}
        self._readings: dict[str, Future[QueueDepth | None]] = {}
        self._read_at = float("-inf")
        # Several readers of the SDK may collect at the same time.
        self._lock = threading.Lock()
        meter.create_observable_gauge("glidemq.queue.jobs", [self._jobs], "{job}", "Jobs in the queue, by state.")
        meter.create_observable_gauge(
            "glidemq.queue.oldest.age", [self._ages], "s", "Age of the oldest job that is ready, 0 without one."
        )
        meter.create_observable_gauge(
            "glidemq.queue.workers", [self._alive], "{worker}", "Live workers of the queue, in all processes."
        )

    def add_worker(self, worker: WorkerPart) -> None:
        """Read the queue of a worker, until `remove_worker`."""
        self._workers[worker.name] = worker.queue, _Source(asyncio.get_running_loop(), worker.depth)

    def remove_worker(self, worker: WorkerPart) -> None:
        """Forget a worker. Its queue is read as long as another worker, or `watch`, has named it."""
        self._workers.pop(worker.name, None)
        if worker.queue not in self._sources():
            reading = self._readings.pop(worker.queue, None)
            if reading is not None:
                reading.cancel()

    def watch(self, queue: str, read: ReadDepth) -> None:
        """Read another queue. Raises RuntimeError outside of an event loop."""
        self._watched[queue] = _Source(asyncio.get_running_loop(), read)

    # -- what the SDK calls -------------------------------------------------------------------------------------------

    def _jobs(self, _options: CallbackOptions) -> Iterable[Observation]:
        for queue, depth in self._collected():
            for state, number in depth.counts.items():
                yield self._observation(number, self._attributes(queue) | {"glidemq.job.state": state})

    def _ages(self, _options: CallbackOptions) -> Iterable[Observation]:
        for queue, depth in self._collected():
            yield self._observation(depth.oldest_waiting_seconds or 0.0, self._attributes(queue))

    def _alive(self, _options: CallbackOptions) -> Iterable[Observation]:
        for queue, depth in self._collected():
            yield self._observation(depth.workers, self._attributes(queue))

    def _attributes(self, queue: str) -> dict[str, Any]:
        return {"messaging.system": self._system, "messaging.destination.name": queue}

    # -- reading ------------------------------------------------------------------------------------------------------

    def _collected(self) -> list[tuple[str, QueueDepth]]:
        here = _running_loop()
        # A collection in another thread holds the lock while it waits for the event loop, so the loop must not wait for
        # the lock.
        if self._lock.acquire(blocking=here is None):
            try:
                if time.monotonic() - self._read_at >= _FRESH_SECONDS:
                    self._depths = self._read_all(here)
                    self._read_at = time.monotonic()
            finally:
                self._lock.release()
        return list(self._depths.items())

    def _sources(self) -> dict[str, _Source]:
        return dict(self._workers.values()) | self._watched

    def _read_all(self, here: asyncio.AbstractEventLoop | None) -> dict[str, QueueDepth]:
        """Read the queues. One that cannot be read in time is left out, because old figures look like present ones."""
        sources = self._sources()
        self._readings = {queue: reading for queue, reading in self._readings.items() if queue in sources}
        # A program may collect in the event loop itself, for example when it flushes the metrics at its end. The loop
        # cannot reply then, so such a collection returns the figures of the previous one.
        earlier = {queue: self._readings[queue] for queue in self._readings if sources[queue].loop is here}
        for queue, source in sources.items():
            if queue not in self._readings or self._readings[queue].done():
                self._readings[queue] = _start(queue, source)
        wait([reading for queue, reading in self._readings.items() if sources[queue].loop is not here], _WAIT_SECONDS)
        read = {queue: _result(reading) for queue, reading in (self._readings | earlier).items()}
        return {queue: depth for queue, depth in read.items() if depth is not None}


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def _start(queue: str, source: _Source) -> Future[QueueDepth | None]:
    if source.loop.is_running():
        reading = _read(queue, source.read)
        try:
            return asyncio.run_coroutine_threadsafe(reading, source.loop)
        except RuntimeError:  # the loop was closed at this moment
            reading.close()
    nothing: Future[QueueDepth | None] = Future()
    nothing.set_result(None)
    return nothing


async def _read(queue: str, read: ReadDepth) -> QueueDepth | None:
    try:
        async with asyncio.timeout(_READ_SECONDS):
            return await read()
    except Exception as error:  # noqa: BLE001 - an error of one queue must not hide all other figures
        _log.warning("the depth of queue %s cannot be read: %r", queue, error)
        return None


def _result(reading: Future[QueueDepth | None]) -> QueueDepth | None:
    return reading.result() if reading.done() and not reading.cancelled() else None
