"""Check figures that must be exact: jobs after faults, the number of lost events, tables against known results."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib
import math
import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark.bulk_writes import KEYS, QUEUE, ask_server, empty, jobs
from benchmarks.spark.event_reads import write_entries
from benchmarks.spark.setup import Row, Setup
from glidemq_async.spark import enqueue_frame, register, use_session
from glidemq_async.spark.pipeline import gold, silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = 5_000
EVENTS: Final = 1_000
JOBS: Final = 3_000
MINUTE: Final = 60_000
START_MS: Final = 1_790_000_000_000 // MINUTE * MINUTE


def _fail_once(frame: DataFrame, marker: Path, *, hard: bool) -> DataFrame:
    """Return the same rows, with one task that fails half-way. If `hard`, its Python process dies."""
    path = str(marker)

    def spoiled(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        from pathlib import Path

        for number, batch in enumerate(batches):
            if number == 2 and not Path(path).exists():
                Path(path).touch()
                if hard:
                    os._exit(9)
                raise RuntimeError("a fault of the benchmark")
            yield batch

    return frame.mapInArrow(spoiled, frame.schema)


def _task_fails(setup: Setup, folder: Path) -> None:
    enqueue_frame(_fail_once(jobs(setup, ROWS), folder / "failed", hard=False), QUEUE, url=setup.url)


def _worker_dies(setup: Setup, folder: Path) -> None:
    enqueue_frame(_fail_once(jobs(setup, ROWS), folder / "died", hard=True), QUEUE, url=setup.url)


def _connections_break(setup: Setup, _: Path) -> None:
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05):
            with contextlib.suppress(Exception):
                ask_server(setup, "CLIENT", "KILL", "TYPE", "normal")

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        enqueue_frame(jobs(setup, ROWS), QUEUE, url=setup.url, max_rows_per_second=5_000, max_retries=50)
    finally:
        over.set()
        thread.join()


def _same_ids_again(setup: Setup, _: Path) -> None:
    enqueue_frame(jobs(setup, ROWS), QUEUE, url=setup.url)
    enqueue_frame(jobs(setup, ROWS), QUEUE, url=setup.url)


def _same_write_again(setup: Setup, _: Path) -> None:
    enqueue_frame(jobs(setup, ROWS), QUEUE, url=setup.url, write_id="same")
    enqueue_frame(jobs(setup, ROWS), QUEUE, url=setup.url, write_id="same")


def _cancelled_and_again(setup: Setup, _: Path) -> None:
    context = setup.spark.sparkContext

    def write() -> None:
        use_session(setup.spark)
        context.addJobTag("faults")
        with contextlib.suppress(Exception):
            enqueue_frame(jobs(setup, ROWS), QUEUE, url=setup.url, max_rows_per_second=1_000)
        context.removeJobTag("faults")

    thread = threading.Thread(target=write)
    thread.start()
    while ask_server(setup, "XLEN", KEYS.key("fifo")) < ROWS // 10 and thread.is_alive():
        time.sleep(0.05)
    context.cancelJobsWithTag("faults")
    thread.join()
    enqueue_frame(jobs(setup, ROWS), QUEUE, url=setup.url)


FAULTS: Final[tuple[Callable[[Setup, Path], None], ...]] = (
    _task_fails,
    _worker_dies,
    _connections_break,
    _same_ids_again,
    _same_write_again,
    _cancelled_and_again,
)


def faults(setup: Setup) -> list[Row]:
    """Count duplicate and lost jobs after each fault."""
    found: dict[str, int] = {}
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = setup.spark.conf.get(size)
    setup.spark.conf.set(size, "500")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for fault in FAULTS:
                empty(setup)
                fault(setup, Path(folder))
                entries = ask_server(setup, "XRANGE", KEYS.key("fifo"), "-", "+")
                ids = [fields[1] for _, fields in entries]
                found["duplicates"] = found.get("duplicates", 0) + len(ids) - len(set(ids))
                found["losses"] = found.get("losses", 0) + ROWS - len(set(ids))
    finally:
        setup.spark.conf.set(size, before or "10000")
    names = ", ".join(fault.__name__.strip("_").replace("_", " ") for fault in FAULTS)
    return [Row(f"{what} after faults ({names})", count, "jobs", "<=", 0) for what, count in found.items()]


def trimming(setup: Setup) -> list[Row]:
    """Compare the reported number of trimmed events with the true one."""
    empty(setup)
    register(setup.spark)
    with tempfile.TemporaryDirectory() as folder:
        _write_events(setup, 0, EVENTS)
        _read_stream(setup, folder)
        _write_events(setup, EVENTS, 3 * EVENTS)
        ask_server(setup, "XTRIM", KEYS.key("events"), "MAXLEN", 5)  # entries of ten
        _read_stream(setup, folder)
    reader = setup.spark.read.format("glidemq").options(kind="losses", url=setup.url, subscribe=QUEUE)
    reported = sum(row.events for row in reader.load().collect())
    return [Row("lost events, reported number off the true one", abs(reported - (2 * EVENTS - 50)), "events", "<=", 0)]


def _write_events(setup: Setup, first: int, upto: int) -> None:
    entries: Iterator[dict[str, str | int]] = (
        {"seq": seq, "n": 10, "t": START_MS, "e": "active" + "".join(f"\x1f{seq + i}" for i in range(10))}
        for seq in range(first, upto, 10)
    )
    write_entries(setup, QUEUE, entries, upto)


def _read_stream(setup: Setup, folder: str) -> None:
    options = {"url": setup.url, "subscribe": QUEUE, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    stream = setup.spark.readStream.format("glidemq").options(**options).load()
    sink = stream.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
    sink.start().awaitTermination()


def truth(setup: Setup) -> list[Row]:
    """Simulate the events of jobs, and compare the minutes of the gold table with the simulated jobs."""
    empty(setup)
    register(setup.spark)
    chance = random.Random(7)
    simulated: list[tuple[int, str]] = []
    waits: defaultdict[int, list[int]] = defaultdict(list)
    ends: defaultdict[tuple[int, str], int] = defaultdict(int)
    for number in range(JOBS):
        added = chance.randrange(60 * MINUTE)
        started = added + int(chance.expovariate(1 / 800))
        ended, how = started + 1 + chance.randrange(5_000), "failed" if chance.random() < 0.1 else "completed"
        simulated += [(added, f"added\x1fj{number}\x1fmail"), (started, f"active\x1fj{number}")]
        simulated.append((ended, f"{how}\x1fj{number}" + ("\x1fValueError: no" if how == "failed" else "")))
        waits[started // MINUTE].append(started - added)
        ends[ended // MINUTE, how] += 1
    simulated.sort(key=lambda each: each[0])
    assert all(one[0] <= other[0] for one, other in pairwise(simulated))
    entries: Iterator[dict[str, str | int]] = (
        {"seq": seq, "n": 1, "t": START_MS + at, "e": text} for seq, (at, text) in enumerate(simulated)
    )
    write_entries(setup, QUEUE, entries, len(simulated))
    events = setup.spark.read.format("glidemq").options(url=setup.url, subscribe=QUEUE).load()
    minutes = gold.minutes(silver.attempts(events), silver.jobs(events))
    counts = percentiles = 0
    for row in minutes.selectExpr("unix_millis(minute) as at", "*").collect():
        minute = (row["at"] - START_MS) // MINUTE
        counts += abs(row["started"] - len(waits[minute]))
        counts += sum(abs(row[how] - ends[minute, how]) for how in ("completed", "failed"))
        values = sorted(waits.pop(minute, []))
        p99 = values[math.ceil(len(values) * 0.99) - 1] if values else None
        percentiles += row["wait_p99"] != p99
    counts += sum(map(len, waits.values()))
    return [
        Row("events to gold, counts off the simulated truth", counts, "jobs", "<=", 0),
        Row("events to gold, p99 of a minute off the simulated truth", percentiles, "minutes", "<=", 0),
    ]


MEASURES: Final = (faults, trimming, truth)
