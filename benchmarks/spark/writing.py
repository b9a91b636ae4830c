"""Writing to a queue: rows a second, what others feel of it, what it leaves, and what comes after its end."""

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
from benchmarks.spark.meanwhile import meanwhile
from benchmarks.spark.part import Ground, Row
from glidemq_async.spark import WriteReport, enqueue_frame, write_report
from glidemq_async.spark.connection import connection_to
from glidemq_async.spark.write.columns import chunks_of
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.planning import open_write
from glidemq_async.spark.write.writer import write_task
from glidemq_async.stored.names import QueueKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUE: Final = "bench"
ROUNDS: Final = 3
WARM: Final = 5_000
LATE_SECONDS: Final = 5.0
KEYS: Final = QueueKeys("glide", QUEUE)


def jobs(ground: Ground, rows: int) -> DataFrame:
    """Rows with ids of 32 characters and about 170 bytes of JSON."""
    data = "named_struct('order', id, 'to', 'ada.lovelace@example.org', 'template', 'welcome', 'note', repeat('x', 90))"
    return ground.spark.range(0, rows, 1, 2).selectExpr(
        "md5(string(id)) as id", "'job' as name", f"to_json({data}) as data"
    )


def ask_server(ground: Ground, *words: str | int) -> Any:
    """Send one command."""

    async def once() -> object:
        async with connected(ground.socket) as wire:
            return await ask(wire, *words)

    return asyncio.run(once())


def empty(ground: Ground) -> None:
    """Let the server forget everything."""
    ask_server(ground, "FLUSHALL", "SYNC")


def _cost(ground: Ground) -> ServerCost:
    async def read() -> ServerCost:
        async with connected(ground.socket) as wire:
            return await ServerCost.read(wire)

    return asyncio.run(read())


def _write(ground: Ground, rows: int, **options: Any) -> tuple[WriteReport, float]:
    """Write so many rows; the report, and the seconds that the caller waited."""
    frame = jobs(ground, rows)
    began = time.perf_counter()
    report = enqueue_frame(frame, QUEUE, url=ground.url, **options)
    return report, time.perf_counter() - began


@contextmanager
def bystander(ground: Ground, work: Callable[[Any], Any]) -> Generator[list[Any]]:
    """Do something again and again beside a write, on a connection of its own; what it answered."""
    found: list[Any] = []

    async def watch(over: threading.Event) -> None:
        async with connected(ground.socket) as wire:
            while not over.is_set():
                found.append(await work(wire))
                await asyncio.sleep(0.002)

    with meanwhile(watch):
        yield found


async def _ping(wire: Any) -> float:
    began = time.perf_counter()
    await ask(wire, "PING")
    return (time.perf_counter() - began) * 1e3


async def _clients(wire: Any) -> int:
    return len(cast("bytes", await ask(wire, "CLIENT", "LIST")).splitlines())


def rates(ground: Ground) -> list[Row]:
    """New rows, and rows whose jobs exist."""
    empty(ground)
    _write(ground, WARM)
    found: dict[str, list[float]] = defaultdict(list)

    def measured(kind: str, outcome: str, **options: Any) -> None:
        before = _cost(ground)
        report, seconds = _write(ground, ground.rows, **options)
        assert getattr(report, outcome) == ground.rows, report
        found[f"{kind} cpu"].append(_cost(ground).since(before).processor / ground.rows * 1e6)
        found[kind].append(ground.rows / seconds)

    for _ in range(ROUNDS):
        empty(ground)
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


def task(ground: Ground) -> list[Row]:
    """What a row takes of a task's processor time, whoever else works here."""
    empty(ground)
    table: Any = jobs(ground, ground.rows).toArrow()  # pyright: ignore[reportUnknownVariableType]
    batches = cast("list[Any]", table.combine_chunks().to_batches())
    connection = connection_to(ground.url)
    options = WriteOptions.parse({"url": ground.url, "queue": QUEUE})
    spent: list[float] = []
    for number in range(ROUNDS):
        empty(ground)
        plan = connection.run(open_write(connection, options, str(number), "bench"))
        before = time.process_time()
        write_task(connection, plan, chunks_of(batches), 0)
        spent.append((time.process_time() - before) / ground.rows * 1e6)
    return [Row("task CPU of a new row, Python's part", statistics.median(spent), "µs")]


def beside(ground: Ground) -> list[Row]:
    """What others feel of a write, and the connections that it takes."""
    empty(ground)
    _write(ground, WARM)
    with bystander(ground, _ping) as idle:
        time.sleep(1)
    with bystander(ground, _ping) as pings:
        _write(ground, ground.rows)
    empty(ground)
    with bystander(ground, _clients) as clients:
        _write(ground, ground.rows // 4)
    return [
        Row("PING beside nothing, p99", percentile(idle, 99), "ms"),
        Row("PING beside a write, p99", percentile(pings, 99), "ms", "<=", 5),
        # But for the one that counts: those of Spark's Python processes, 2 of tasks, and of the driver.
        Row("connections during a write", max(clients) - 1, "connections", "<=", 4),
    ]


def ledger(ground: Ground) -> list[Row]:
    """What remembering an id takes of the server's memory."""
    empty(ground)
    report, _ = _write(ground, ground.rows)
    size = ask_server(ground, "MEMORY", "USAGE", KEYS.key(f"written:{report.write_id}"), "SAMPLES", 0)
    return [Row("ledger, an id of 32 characters", size / ground.rows, "bytes", "<=", 110)]


def late(ground: Ground) -> list[Row]:
    """Jobs that come after an abort, while the workers of its tasks still live."""
    empty(ground)
    write = threading.Thread(target=lambda: _cancelled(ground))
    write.start()
    deadline = time.monotonic() + 60
    while ask_server(ground, "XLEN", KEYS.key("stream")) < 1000 and time.monotonic() < deadline:
        time.sleep(0.05)
    ground.spark.sparkContext.cancelJobsWithTag("late")
    while write_report(ground.url, QUEUE, "late").state != "aborted" and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    first = ask_server(ground, "XLEN", KEYS.key("stream"))
    time.sleep(LATE_SECONDS)
    last = ask_server(ground, "XLEN", KEYS.key("stream"))
    write.join()
    return [Row("jobs added later than 0.1 s after an abort", last - first, "jobs", "<=", 0)]


def _cancelled(ground: Ground) -> None:
    from glidemq_async.spark import use_session

    use_session(ground.spark)
    ground.spark.sparkContext.addJobTag("late")
    try:
        _write(ground, 10_000_000, write_id="late", max_rows_per_second=2_000)
    except Exception:  # noqa: BLE001 - that it ends is what is measured
        pass
    finally:
        ground.spark.sparkContext.removeJobTag("late")


MEASURES: Final = (rates, task, beside, ledger, late)
