"""Spans and metrics by the messaging conventions of OpenTelemetry, linked from the add of a job to its run.

The conventions are not stable yet (status "development"). A test compares the names with their newest package.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from typing_extensions import override

from glidemq_async.instrumentation import Addition, Instrumentation, ReadDepth, RunJob, RunReport, WorkerPart
from glidemq_async.telemetry.queue_gauges import QueueGauges

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["OpenTelemetry"]

_SCOPE: Final = "glidemq_async"
_SYSTEM: Final = "glidemq"
_FAILURES: Final = frozenset({"failed", "retrying"})
#: The maximum size in bytes of the baggage that a job carries. Larger baggage is left out.
_MOST_BAGGAGE: Final = 4096
#: The context fields of a job. These are the W3C names; other propagators add more.
_BAGGAGE: Final = "baggage"
#: Bucket bounds in seconds. The conventions advise the small ones; the large ones are for long jobs.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800, 3600)


class _Adding(NamedTuple):
    send: Span
    creates: list[Span]
    token: Token[Context]
    began: float


class _Running(NamedTuple):
    span: Span
    token: Token[Context]


class OpenTelemetry(Instrumentation):
    """Records spans and metrics with the given providers, or with the global ones of the program.

    - `add` is a span `send <queue>`; its context travels in the job's headers (traceparent, tracestate, baggage), by
      the program's propagator. `add_bulk` is a span `send <queue>` with a span `create <queue>` per job, whose
      contexts travel.
    - Each run is a span `process <queue>` with a link to the span of the add. It is also a child of that span. With
      `parent=False` each run begins a new trace and keeps only the link. The span of a failed run has an error.
    - Each executed step of a run is a span `step <name>` in the span of its run. Recorded steps have none.
    - The depth of the workers' queues, the age of their oldest ready job and the number of their workers are observable
      gauges, read when the SDK collects them. `watch` adds other queues.

    Needs the extra `otel`, and an SDK that exports the spans. Raises ImportError without the extra.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        parent: bool = True,
    ) -> None:
        try:
            from opentelemetry import context, metrics, propagate, trace
        except ImportError:
            raise ImportError("OpenTelemetry needs its API: pip install 'glidemq-async[otel]'") from None
        self._trace = trace
        self._context = context
        self._propagate = propagate
        self._nothing = context.Context()
        self._parent = parent
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were added.")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Runs that were started."
        )
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of adds.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._process = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of runs.", explicit_bucket_boundaries_advisory=_BUCKETS
        )
        self._waited = meter.create_histogram(
            "glidemq.job.wait.duration",
            "s",
            "Time that jobs waited for a worker after they could start.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._gauges = QueueGauges(meter, _SYSTEM)

    # -- queues ---------------------------------------------------------------------------------------------------

    def watch(self, queue: str, read: ReadDepth) -> None:
        """Export the depth of another queue, for example `watch(queue.name, queue.get_depth)`.

        Call it in the event loop of the queue. Raises RuntimeError outside of one.
        """
        self._gauges.watch(queue, read)

    @override
    async def worker_started(self, worker: WorkerPart) -> None:
        """Export the depth of the worker's queue."""
        self._gauges.add_worker(worker)

    @override
    async def worker_stopped(self, worker: WorkerPart) -> None:
        """Forget the worker."""
        self._gauges.remove_worker(worker)

    # -- adds -----------------------------------------------------------------------------------------------------

    @override
    def before_add(self, additions: Sequence[Addition]) -> object:
        """Start the span of the add, and put its context into the headers of the jobs."""
        began = time.perf_counter()
        send, inside, creates = self._send_one(additions[0]) if len(additions) == 1 else self._send_many(additions)
        # Attached to the task that adds, so that spans of the connection, if any, become children of this one.
        # `after_add` detaches it in the same task.
        return _Adding(send, creates, self._context.attach(inside), began)

    def _send_one(self, addition: Addition) -> tuple[Span, Context, list[Span]]:
        # A single message needs no separate `create` span, because the `send` span creates it.
        send = self._tracer.start_span(
            f"send {addition.queue}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_attributes(addition.queue, "send", addition.name),
        )
        return send, self._inject(addition, send), []

    def _send_many(self, additions: Sequence[Addition]) -> tuple[Span, Context, list[Span]]:
        queue = additions[0].queue
        creates = [self._create(addition) for addition in additions]
        send = self._tracer.start_span(
            f"send {queue}",
            kind=self._trace.SpanKind.CLIENT,
            attributes={**_attributes(queue, "send"), "messaging.batch.message_count": len(additions)},
            links=[self._trace.Link(span.get_span_context()) for span in creates],
        )
        return send, self._trace.set_span_in_context(send), creates

    def _create(self, addition: Addition) -> Span:
        span = self._tracer.start_span(
            f"create {addition.queue}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_attributes(addition.queue, "create", addition.name),
        )
        self._inject(addition, span)
        return span

    def _inject(self, addition: Addition, span: Span) -> Context:
        """Put the context of a span into the headers of a job, and return the context."""
        inside = self._trace.set_span_in_context(span)
        found: dict[str, str] = {}
        self._propagate.inject(found, context=inside)
        # Baggage comes from the callers of a service and is stored with every job. Its size must not decide if a job
        # can be added.
        if len(found.get(_BAGGAGE, "").encode()) > _MOST_BAGGAGE:
            del found[_BAGGAGE]
        addition.headers.update(found)
        return inside

    @override
    def after_add(self, token: Any, additions: Sequence[Addition], error: BaseException | None) -> None:
        """End the spans of the add."""
        adding: _Adding = token
        self._context.detach(adding.token)
        for addition, span in zip(additions, adding.creates or [adding.send], strict=True):
            if error is None and span.is_recording():
                span.set_attributes(_added_attributes(addition))
        for span in (*adding.creates, adding.send):
            self._note_error(span, error)
            span.end()
        attributes = _metric_attributes(additions[0].queue, "send", _type_of(error))
        self._sent.add(len(additions), attributes)
        self._operation.record(time.perf_counter() - adding.began, attributes)

    # -- runs -----------------------------------------------------------------------------------------------------

    @override
    def before_run(self, job: RunJob) -> object:
        """Begin the span of a run."""
        queue = job.queue
        # In an empty context: the worker's own span must not become the parent of a job that has no trace.
        remote = self._propagate.extract(job.headers, context=self._nothing)
        origin = self._trace.get_current_span(remote).get_span_context()
        span = self._tracer.start_span(
            f"process {queue}",
            context=remote if self._parent else self._nothing,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_run_attributes(job),
            links=[self._trace.Link(origin)] if origin.is_valid else None,
        )
        # The handler sees the baggage, no matter which trace its span belongs to.
        return _Running(span, self._context.attach(self._trace.set_span_in_context(span, remote)))

    @override
    def after_run(self, token: Any, job: RunJob, report: RunReport) -> None:
        """End the span of a run."""
        running: _Running = token
        self._context.detach(running.token)
        span, outcome = running.span, report.outcome
        if span.is_recording():
            span.set_attribute("glidemq.job.outcome", outcome)
        failure = report.error if outcome in _FAILURES else None
        self._note_error(span, failure)
        span.end()
        queue, kind = job.queue, _type_of(failure)
        self._consumed.add(1, _metric_attributes(queue, "process", kind))
        self._process.record(report.seconds, _metric_attributes(queue, "process", kind, outcome))
        if (waited := job.waited) is not None:
            self._waited.record(waited, _metric_attributes(queue, "process"))

    # -- steps ----------------------------------------------------------------------------------------------------

    @override
    def before_step(self, job: RunJob, name: str) -> object:
        """Begin the span of a step, in the span of its run or of the step around it."""
        span = self._tracer.start_span(
            f"step {name}",
            attributes={"glidemq.step.name": name, "messaging.message.id": job.id},
        )
        return _Running(span, self._context.attach(self._trace.set_span_in_context(span)))

    @override
    def after_step(self, token: Any, job: RunJob, name: str, error: BaseException | None) -> None:
        """End the span of a step."""
        running: _Running = token
        self._context.detach(running.token)
        # A cancelled step has not failed: its run was stopped, or it waits and the run was suspended.
        self._note_error(running.span, None if isinstance(error, asyncio.CancelledError) else error)
        running.span.end()

    def _note_error(self, span: Span, error: BaseException | None) -> None:
        if error is None or not span.is_recording():
            return
        span.set_attribute("error.type", _type_of(error) or "")
        span.record_exception(error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, type(error).__name__))


def _attributes(queue: str, operation: str, name: str | None = None) -> dict[str, Any]:
    found = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }
    if name is not None:
        found["glidemq.job.name"] = name
    return found


@lru_cache(maxsize=1024)
def _metric_attributes(
    queue: str, operation: str, error: str | None = None, outcome: str | None = None
) -> Mapping[str, str]:
    found = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": queue,
    }
    if error is not None:
        found["error.type"] = error
    if outcome is not None:
        found["glidemq.job.outcome"] = outcome
    return found


def _type_of(error: BaseException | None) -> str | None:
    if error is None:
        return None
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _added_attributes(addition: Addition) -> dict[str, str | int]:
    return {
        "messaging.message.id": addition.id,
        "messaging.message.body.size": addition.size,
        "glidemq.add.outcome": addition.outcome,
    }


def _run_attributes(job: RunJob) -> dict[str, Any]:
    return {
        **_attributes(job.queue, "process", job.name),
        "messaging.message.id": job.id,
        "messaging.message.body.size": job.data_size,
        "glidemq.job.attempt": job.attempts_made + 1,
        "glidemq.job.fence": job.fence,
    }
