"""What must be equal and not merely fast: jobs after faults, the number of lost events, figures against the truth."""

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

from benchmarks.spark.part import Ground, Row
from benchmarks.spark.reading import write_entries
from benchmarks.spark.writing import KEYS, QUEUE, ask_server, empty, jobs
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
    """The same rows, but the first task that comes half-way fails; hard: its Python process dies."""
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


def _task_fails(ground: Ground, folder: Path) -> None:
    enqueue_frame(_fail_once(jobs(ground, ROWS), folder / "failed", hard=False), QUEUE, url=ground.url)


def _worker_dies(ground: Ground, folder: Path) -> None:
    enqueue_frame(_fail_once(jobs(ground, ROWS), folder / "died", hard=True), QUEUE, url=ground.url)


def _connections_break(ground: Ground, _: Path) -> None:
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05):
            with contextlib.suppress(Exception):
                ask_server(ground, "CLIENT", "KILL", "TYPE", "normal")

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        enqueue_frame(jobs(ground, ROWS), QUEUE, url=ground.url, max_rows_per_second=5_000, max_retries=50)
    finally:
        over.set()
        thread.join()


def _same_ids_again(ground: Ground, _: Path) -> None:
    enqueue_frame(jobs(ground, ROWS), QUEUE, url=ground.url)
    enqueue_frame(jobs(ground, ROWS), QUEUE, url=ground.url)


def _same_write_again(ground: Ground, _: Path) -> None:
    enqueue_frame(jobs(ground, ROWS), QUEUE, url=ground.url, write_id="same")
    enqueue_frame(jobs(ground, ROWS), QUEUE, url=ground.url, write_id="same")


def _cancelled_and_again(ground: Ground, _: Path) -> None:
    context = ground.spark.sparkContext

    def write() -> None:
        use_session(ground.spark)
        context.addJobTag("faults")
        with contextlib.suppress(Exception):
            enqueue_frame(jobs(ground, ROWS), QUEUE, url=ground.url, max_rows_per_second=1_000)
        context.removeJobTag("faults")

    thread = threading.Thread(target=write)
    thread.start()
    while ask_server(ground, "XLEN", KEYS.key("stream")) < ROWS // 10 and thread.is_alive():
        time.sleep(0.05)
    context.cancelJobsWithTag("faults")
    thread.join()
    enqueue_frame(jobs(ground, ROWS), QUEUE, url=ground.url)


FAULTS: Final[tuple[Callable[[Ground, Path], None], ...]] = (
    _task_fails,
    _worker_dies,
    _connections_break,
    _same_ids_again,
    _same_write_again,
    _cancelled_and_again,
)


def faults(ground: Ground) -> list[Row]:
    """What is in the queue after each fault, beside what should be there."""
    found: dict[str, int] = {}
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = ground.spark.conf.get(size)
    ground.spark.conf.set(size, "500")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for fault in FAULTS:
                empty(ground)
                fault(ground, Path(folder))
                entries = ask_server(ground, "XRANGE", KEYS.key("stream"), "-", "+")
                ids = [fields[1] for _, fields in entries]
                found["duplicates"] = found.get("duplicates", 0) + len(ids) - len(set(ids))
                found["losses"] = found.get("losses", 0) + ROWS - len(set(ids))
    finally:
        ground.spark.conf.set(size, before or "10000")
    names = ", ".join(fault.__name__.strip("_").replace("_", " ") for fault in FAULTS)
    return [Row(f"{what} after faults ({names})", count, "jobs", "<=", 0) for what, count in found.items()]


def trimming(ground: Ground) -> list[Row]:
    """Events that were trimmed before they were read: how far the number that is told is from the true one."""
    empty(ground)
    register(ground.spark)
    with tempfile.TemporaryDirectory() as folder:
        _write_events(ground, 0, EVENTS)
        _read_stream(ground, folder)
        _write_events(ground, EVENTS, 3 * EVENTS)
        ask_server(ground, "XTRIM", KEYS.key("events"), "MAXLEN", 5)  # entries of ten
        _read_stream(ground, folder)
    reader = ground.spark.read.format("glidemq").options(kind="losses", url=ground.url, subscribe=QUEUE)
    told = sum(row.events for row in reader.load().collect())
    return [Row("lost events that were told, off the true number", abs(told - (2 * EVENTS - 50)), "events", "<=", 0)]


def _write_events(ground: Ground, first: int, upto: int) -> None:
    entries: Iterator[dict[str, str | int]] = (
        {"seq": seq, "n": 10, "t": START_MS, "e": "active" + "".join(f"\x1f{seq + i}" for i in range(10))}
        for seq in range(first, upto, 10)
    )
    write_entries(ground, QUEUE, entries, upto)


def _read_stream(ground: Ground, folder: str) -> None:
    options = {"url": ground.url, "subscribe": QUEUE, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    stream = ground.spark.readStream.format("glidemq").options(**options).load()
    sink = stream.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
    sink.start().awaitTermination()


def truth(ground: Ground) -> list[Row]:
    """Jobs whose times are known, through the queue's events, silver and gold, compared minute by minute."""
    empty(ground)
    register(ground.spark)
    chance = random.Random(7)
    told: list[tuple[int, str]] = []
    waits: defaultdict[int, list[int]] = defaultdict(list)
    ends: defaultdict[tuple[int, str], int] = defaultdict(int)
    for number in range(JOBS):
        added = chance.randrange(60 * MINUTE)
        started = added + int(chance.expovariate(1 / 800))
        ended, how = started + 1 + chance.randrange(5_000), "failed" if chance.random() < 0.1 else "completed"
        told += [(added, f"added\x1fj{number}\x1fmail"), (started, f"active\x1fj{number}")]
        told.append((ended, f"{how}\x1fj{number}" + ("\x1fValueError: no" if how == "failed" else "")))
        waits[started // MINUTE].append(started - added)
        ends[ended // MINUTE, how] += 1
    told.sort(key=lambda each: each[0])
    assert all(one[0] <= other[0] for one, other in pairwise(told))
    entries: Iterator[dict[str, str | int]] = (
        {"seq": seq, "n": 1, "t": START_MS + at, "e": text} for seq, (at, text) in enumerate(told)
    )
    write_entries(ground, QUEUE, entries, len(told))
    events = ground.spark.read.format("glidemq").options(url=ground.url, subscribe=QUEUE).load()
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
