"""Export spans, metrics and log fields: one trace from the add to the run, a page for Prometheus, JSON log lines.

Needs `pip install 'glidemq-async[otel,prometheus]' opentelemetry-sdk`.
"""

import asyncio
import json
import logging
import sys
import urllib.request

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidemq_async import Job, Queue, Worker
from glidemq_async.telemetry import JobFilter, JobLogging, JsonFormatter, OpenTelemetry, Prometheus

log = logging.getLogger("shop")


class Short(JsonFormatter):
    """Format lines as JsonFormatter does, without the fields that differ between runs."""

    def format(self, record: logging.LogRecord) -> str:
        line = json.loads(super().format(record))
        return " ".join(str(line[name]) for name in ("level", "queue", "job_name", "attempt", "message"))


def set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(JobFilter())
    handler.setFormatter(Short())
    log.addHandler(handler)
    log.setLevel(logging.INFO)


async def ship(job: Job[str, None]) -> None:
    log.info("shipping %s", job.data)


async def main() -> None:
    set_up_logging()
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    metrics = Prometheus(port=0)  # a fixed port in production
    instrumentation = [OpenTelemetry(tracer_provider=tracers), metrics, JobLogging()]
    async with (
        Queue[str, None]("orders", "memory://", instrumentation=instrumentation) as queue,
        Worker("orders", ship, queue.storage, instrumentation=instrumentation),
    ):
        await queue.add_and_wait("ship", "a book", wait_timeout=10)
        assert metrics.endpoint is not None
        url = f"http://127.0.0.1:{metrics.endpoint.port}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
        print(*(line for line in page.splitlines() if line.startswith("glidemq_jobs_added_total")))

    send, process = spans.get_finished_spans()
    print(send.name, "->", process.name)
    origin = send.get_span_context()
    print("one trace:", origin is not None and process.parent is not None and process.parent.span_id == origin.span_id)


if __name__ == "__main__":
    asyncio.run(main())
