"""Measure bulk writes: their rate, their effect on other clients, their memory, and calls after their end."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.meter import percentile
from benchmarks.server import ServerCost, ask, connected
from benchmarks.spark.background_loop import in_background
from benchmarks.spark.setup import Row, Setup
from glidemq_async.spark import WriteReport, enqueue_frame, write_report
from glidemq_async.spark.connection import connection_to
from glidemq_async.spark.write.columns import chunks_of
from glidemq_async.spark.write.commit_protocol import open_write
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.task_writer import write_task
from glidemq_async.stored.names import QueueKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUE: Final = "bench"
ROUNDS: Final = 3
WARM: Final = 5_000
LATE_SECONDS: Final = 5.0
KEYS: Final = QueueKeys("glide", QUEUE)


def jobs(setup: Setup, rows: int) -> DataFrame:
    """Return rows with ids of 32 characters and about 170 bytes of JSON."""
    data = "named_struct('order', id, 'to', 'ada.lovelace@example.org', 'template', 'welcome', 'note', repeat('x', 90))"
    return setup.spark.range(0, rows, 1, 2).selectExpr(
        "md5(string(id)) as id", "'job' as name", f"to_json({data}) as data"
    )


def ask_server(setup: Setup, *words: str | int) -> Any:
    """Send one command and return its reply."""

    async def once() -> object:
        async with connected(setup.url) as wire:
            return await ask(wire, *words)

    return asyncio.run(once())


def empty(setup: Setup) -> None:
    """Remove all data of the server."""
    ask_server(setup, "FLUSHALL", "SYNC")


def _cost(setup: Setup) -> ServerCost:
    async def read() -> ServerCost:
        async with connected(setup.url) as wire:
            return await ServerCost.read(wire)

    return asyncio.run(read())


def _write(setup: Setup, rows: int, **options: Any) -> tuple[WriteReport, float]:
    """Write `rows` rows. Return the report, and the seconds that the caller waited."""
    frame = jobs(setup, rows)
    began = time.perf_counter()
    report = enqueue_frame(frame, QUEUE, url=setup.url, **options)
    return report, time.perf_counter() - began


@contextmanager
def repeating(setup: Setup, work: Callable[[Any], Any]) -> Generator[list[Any]]:
    """Call `work` repeatedly on a separate connection during the block, and collect its results."""
    found: list[Any] = []

    async def watch(over: threading.Event) -> None:
        async with connected(setup.url) as wire:
            while not over.is_set():
                found.append(await work(wire))
                await asyncio.sleep(0.002)

    with in_background(watch):
        yield found


async def _ping(wire: Any) -> float:
    began = time.perf_counter()
    await ask(wire, "PING")
    return (time.perf_counter() - began) * 1e3


async def _clients(wire: Any) -> int:
    return len(cast("bytes", await ask(wire, "CLIENT", "LIST")).splitlines())


def rates(setup: Setup) -> list[Row]:
    """Measure new rows, and rows whose jobs exist."""
    empty(setup)
    _write(setup, WARM)
    found: dict[str, list[float]] = defaultdict(list)

    def measured(kind: str, outcome: str, **options: Any) -> None:
        before = _cost(setup)
        report, seconds = _write(setup, setup.rows, **options)
        assert getattr(report, outcome) == setup.rows, report
        found[f"{kind} cpu"].append(_cost(setup).since(before).processor / setup.rows * 1e6)
        found[kind].append(setup.rows / seconds)

    for _ in range(ROUNDS):
        empty(setup)
        measured("new", "inserted")
        measured("duplicate", "duplicate")
        measured("counted", "duplicate", on_duplicate="count-only")
    middle = {name: statistics.median(values) for name, values in found.items()}
    return [
        Row("bulk write of new rows", middle["new"], "rows/s", ">=", 40_000),
        Row("server CPU of a new row", middle["new cpu"], "µs"),
        Row("rerun, all duplicates", middle["duplicate"], "rows/s", ">=", 100_000),
        Row("server CPU of a duplicate", middle["duplicate cpu"], "µs"),
        Row("server CPU of a duplicate, onDuplicate=count-only", middle["counted cpu"], "µs"),
    ]


def task(setup: Setup) -> list[Row]:
    """Measure the processor time of a task per row. Other processes do not affect it."""
    empty(setup)
    table: Any = jobs(setup, setup.rows).toArrow()  # pyright: ignore[reportUnknownVariableType]
    batches = cast("list[Any]", table.combine_chunks().to_batches())
    connection = connection_to(setup.url)
    options = WriteOptions.parse({"url": setup.url, "queue": QUEUE})
    spent: list[float] = []
    for number in range(ROUNDS):
        empty(setup)
        plan = connection.run(open_write(connection, options, str(number), "bench"))
        before = time.process_time()
        write_task(connection, plan, chunks_of(batches), 0)
        spent.append((time.process_time() - before) / setup.rows * 1e6)
    return [Row("task CPU of a new row, Python's part", statistics.median(spent), "µs")]


def other_clients(setup: Setup) -> list[Row]:
    """Measure the latency of other clients during a write, and its number of connections."""
    empty(setup)
    _write(setup, WARM)
    with repeating(setup, _ping) as idle:
        time.sleep(1)
    with repeating(setup, _ping) as pings:
        _write(setup, setup.rows)
    empty(setup)
    with repeating(setup, _clients) as clients:
        _write(setup, setup.rows // 4)
    return [
        Row("PING on an idle server, p99", percentile(idle, 99), "ms"),
        Row("PING during a write, p99", percentile(pings, 99), "ms", "<=", 5),
        # Without the connection that counts. Spark's Python processes hold the others: 2 of tasks, and the driver's.
        Row("connections during a write", max(clients) - 1, "connections", "<=", 4),
    ]


def ledger(setup: Setup) -> list[Row]:
    """Measure the server memory of an id in the ledger."""
    empty(setup)
    report, _ = _write(setup, setup.rows)
    size = ask_server(setup, "MEMORY", "USAGE", KEYS.key(f"written:{report.write_id}"), "SAMPLES", 0)
    return [Row("ledger, an id of 32 characters", size / setup.rows, "bytes", "<=", 110)]


def late(setup: Setup) -> list[Row]:
    """Count jobs that are added after an abort, while Python workers of its tasks still run."""
    empty(setup)
    write = threading.Thread(target=lambda: _cancelled(setup))
    write.start()
    deadline = time.monotonic() + 60
    while ask_server(setup, "XLEN", KEYS.key("fifo")) < 1000 and time.monotonic() < deadline:
        time.sleep(0.05)
    setup.spark.sparkContext.cancelJobsWithTag("late")
    while write_report(setup.url, QUEUE, "late").state != "aborted" and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    first = ask_server(setup, "XLEN", KEYS.key("fifo"))
    time.sleep(LATE_SECONDS)
    last = ask_server(setup, "XLEN", KEYS.key("fifo"))
    write.join()
    return [Row("jobs added later than 0.1 s after an abort", last - first, "jobs", "<=", 0)]


def _cancelled(setup: Setup) -> None:
    from glidemq_async.spark import use_session

    use_session(setup.spark)
    setup.spark.sparkContext.addJobTag("late")
    try:
        _write(setup, 10_000_000, write_id="late", max_rows_per_second=2_000)
    except Exception:  # noqa: BLE001 - the cancellation raises
        pass
    finally:
        setup.spark.sparkContext.removeJobTag("late")


MEASURES: Final = (rates, task, other_clients, ledger, late)
