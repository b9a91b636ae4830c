"""The cost of optional parts: `python -m benchmarks.costs` writes docs/reports/costs.md.

Kinds of work alternate in each round. A figure is the fastest of its rounds, because other programs only add time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import uvloop
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glidemq_async import Codec, Compression, Encryption, Job, Queue, Signing, Worker, generate_key
from glidemq_async.instrumentation import Instrumentation
from glidemq_async.telemetry import JobLogging, OpenTelemetry, Prometheus
from glidemq_async.testing import Harness

from . import failure_costs
from .bench import PAYLOAD, RESULT
from .report import ROOT, surroundings
from .server import running_server
from .tables import markdown

PAGE: Final = ROOT / "docs" / "reports" / "costs.md"
ROUNDS: Final = 5
JOBS: Final = 2_000
CALLERS: Final = 100
FIRE_TIMES: Final = 1_000

Figures: TypeAlias = defaultdict[str, list[float]]
KEYS: Final = {"k": generate_key()}


def _sdk() -> list[Instrumentation]:
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    meters = MeterProvider(metric_readers=[InMemoryMetricReader()])
    return [OpenTelemetry(tracer_provider=tracers, meter_provider=meters)]


CODECS: Final[dict[str, Callable[[], list[Codec]]]] = {
    '`Compression("gzip")`, payloads below its threshold': lambda: [Compression("gzip", threshold=500)],
    "`Signing`": lambda: [Signing(KEYS)],
    "`Encryption`": lambda: [Encryption(KEYS)],
}
TELEMETRY: Final[dict[str, Callable[[], list[Instrumentation]]]] = {
    "`JobLogging`": lambda: [JobLogging()],
    "`Prometheus`": lambda: [Prometheus()],
    "`OpenTelemetry`, with the API alone": lambda: [OpenTelemetry()],
    "`OpenTelemetry`, with the SDK, all spans recorded": _sdk,
}
PLAIN: Final = "without codecs and telemetry"


async def _handle(_job: Job[Any, Any]) -> Any:
    return RESULT


async def _life(url: str, **options: Any) -> float:
    """Return the client's processor time in us for adding and running one job."""
    async with Queue[Any, Any]("costs", url, **options) as queue:
        await queue.obliterate(force=True)
        began = time.process_time()
        for _ in range(JOBS // CALLERS):
            await asyncio.gather(*(queue.add("job", PAYLOAD) for _ in range(CALLERS)))
        await Worker("costs", _handle, url, concurrency=CALLERS, handle_signals=False, **options).run(until_empty=True)
        return (time.process_time() - began) / JOBS * 1e6


async def _lives(url: str, found: Figures) -> None:
    found[PLAIN].append(await _life(url))
    for name, codecs in CODECS.items():
        found[name].append(await _life(url, codecs=codecs()))
    for name, instrumentation in TELEMETRY.items():
        found[name].append(await _life(url, instrumentation=instrumentation()))


async def _harness(found: Figures) -> None:
    began = time.perf_counter()
    async with Harness() as harness:
        found["start of the server of a test"].append((time.perf_counter() - began) * 1e3)
        queue = harness.queue("crons")
        await queue.upsert_job_scheduler("tick", every=1)
        began = time.perf_counter()
        await harness.clock.advance(FIRE_TIMES)
        found["one fire time that the clock passes"].append((time.perf_counter() - began) / FIRE_TIMES * 1e3)


def page(found: Figures, machine: Mapping[str, str]) -> str:
    """Return the report."""
    fastest = {name: min(values) for name, values in found.items()}
    lives = [["client, one job added and run", "µs", "more than plain"]]
    lives += [[name, f"{fastest[name]:.0f}", f"{fastest[name] - fastest[PLAIN]:.0f}"] for name in LIVES]
    others = [["", "ms"], *([name, f"{value:.2g}"] for name, value in fastest.items() if name not in LIVES)]
    return "\n".join(
        [
            "# Costs of optional parts",
            "",
            f"Written by `python -m benchmarks.costs`. A figure is the fastest of {ROUNDS} rounds, in which the kinds",
            "of work take turns.",
            "",
            *(f"- {name}: {value}" for name, value in machine.items() if name != "pace"),
            "",
            f"The processor time of the client for adding and running one job, with {CALLERS} concurrent jobs:",
            "",
            markdown(lives),
            "",
            "The wall time of two steps of a test:",
            "",
            markdown(others),
            "",
            failure_costs.HEAD,
            "",
            f"{failure_costs.BEGIN}{failure_costs.table_of(PAGE.read_text(encoding='utf-8'))}",
            failure_costs.END,
            "",
        ]
    )


LIVES: Final = (PLAIN, *CODECS, *TELEMETRY)


async def measure() -> str:
    """Return the report of a new measurement."""
    machine = surroundings(os.getloadavg()[0])
    found: Figures = defaultdict(list)
    with running_server() as url:
        await _lives(url, defaultdict(list))  # imports and caches
        for _ in range(ROUNDS):
            await _lives(url, found)
            await _harness(found)
    return page(found, machine)


if __name__ == "__main__":
    PAGE.write_text(uvloop.run(measure()), encoding="utf-8")
