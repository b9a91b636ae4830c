"""Export spans, metrics and log fields: one trace from the add to the run, a page for Prometheus, JSON log lines.

Needs `pip install 'glidemq-async[otel,prometheus]' opentelemetry-sdk`.
"""

import asyncio
import json
import logging
import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from glidemq_async import GlideMQ
from glidemq_async.telemetry import JobFilter, JobLogging, JsonFormatter, OpenTelemetry, Prometheus

log = logging.getLogger("shop")
spans, tracers = InMemorySpanExporter(), TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
metrics = Prometheus()  # with port=9100 it serves the page
mq = GlideMQ(
    "memory://",
    queue="orders",
    instrumentation=[OpenTelemetry(tracer_provider=tracers), metrics, JobLogging()],
)


@mq.task
async def ship(item: str) -> None:
    log.info("shipping %s", item)


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


async def main() -> None:
    set_up_logging()
    async with mq, mq.worker():
        await (await ship.add("a book")).result(timeout=10)
    page = generate_latest(metrics.registry).decode()
    print(*(line for line in page.splitlines() if line.startswith("glidemq_jobs_added_total")))

    send, process = spans.get_finished_spans()
    print(send.name, "->", process.name)
    origin = send.get_span_context()
    print("one trace:", origin is not None and process.parent is not None and process.parent.span_id == origin.span_id)


if __name__ == "__main__":
    asyncio.run(main())
