"""Kill the server, or the driver with its JVM, during writes and queries. No job is lost or added twice."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from glidemq_async.spark import WriteReport, enqueue_frame, register, use_session, write_report
from tests.spark import chain
from tests.spark.waiting import until
from tests.spark.writing.conftest import Written
from tests.support.servers import Server
from tests.support.stores import RunningStore, endpoint_of

ROOT = Path(__file__).parents[2]
ROWS = 1500


@pytest.fixture
def server(spark: SparkSession) -> Iterator[Server]:
    """A separate server that syncs each write to disk."""
    register(spark)
    with tempfile.TemporaryDirectory(prefix="gmq-") as folder:
        made = Server(Path(folder), ["--appendonly", "yes", "--appendfsync", "always"])
        asyncio.run(made.start())
        yield made
        made.kill()


def kill_and_restart(server: Server, down: float = 0) -> None:
    """Kill the server and start it again after `down` seconds, on the same port with the same data."""
    server.kill()
    time.sleep(down)
    asyncio.run(server.start())


def test_a_batch_write_continues_after_the_server_was_killed(spark: SparkSession, server: Server) -> None:
    queue = Written(RunningStore("own", server.url, (endpoint_of(server),)), "orders")
    # Enough rows that some are unwritten when the server is killed, even if the test reacts late.
    frame = spark.range(0, ROWS, 1, 2).selectExpr("concat('j', id) AS id", "'n' AS name", "'1' AS data")
    reports: list[WriteReport] = []

    def write() -> None:
        use_session(spark)
        options: dict[str, str | int] = {
            "batch_size": 10,
            "max_rows_per_second": 200,
            "request_timeout": "500ms",
            "write_id": "w",
        }
        reports.append(enqueue_frame(frame, queue.name, url=server.url, **options))

    def written(rows: int) -> bool:
        return queue.counts().get("waiting", 0) >= rows

    writer = threading.Thread(target=write)
    writer.start()
    for least in (100, 300):
        until(partial(written, least), f"{least} rows were written")
        kill_and_restart(server, 1.2)  # longer than a call waits, so that each is made again
        report = queue.report("w")
        assert (report.state, least <= report.inserted < ROWS) == ("open", True)
    writer.join()
    (report,) = reports
    assert (report.state, report.inserted, report.duplicate, report.runs) == ("committed", ROWS, 0, 1)
    assert sorted(queue.run()) == sorted(f"j{n}" for n in range(ROWS))


@pytest.mark.slow
def test_queries_continue_from_their_checkpoints_after_the_server_was_killed(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    url = server.url
    queries = {to: chain.start(spark, url, tmp_path, to) for to in ("lake", "sink")}
    for number in range(3):
        chain.add(url, 80 * number, 80 * (number + 1))

        def half_done(beyond: int) -> bool:
            for to, query in queries.items():
                if not query.isActive:  # the server's death may end it, and whoever runs it starts it again
                    queries[to] = chain.start(spark, url, tmp_path, to)
            return chain.half_done(url, beyond)

        until(partial(half_done, chain.inserted(url)), "a micro-batch was written in part")
        kill_and_restart(server)
    for query in queries.values():
        query.stop()
    chain.finish(spark, url, tmp_path)
    chain.check(spark, url, tmp_path, 240)


class Driver:
    """A program of chain.py in a separate process group, which is killed with its JVM and its Python processes."""

    def __init__(self, mode: str, url: str, folder: Path) -> None:
        self._process = subprocess.Popen(program(mode, url, folder), cwd=ROOT, start_new_session=True)

    def kill_when(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for the condition, or for the end of the test, and kill all processes of the program."""

        def holds() -> bool:
            assert self._process.poll() is None, "the program ended by itself"
            return condition()

        try:
            until(holds, what, 200)  # a JVM starts first
        finally:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def program(mode: str, url: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.spark.chain", mode, url, str(folder)]


@pytest.mark.slow
def test_queries_continue_from_their_checkpoints_after_the_driver_was_killed(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    url = server.url

    def half_done(beyond: int) -> bool:
        return chain.half_done(url, beyond) and any((tmp_path / "lake").glob("*.parquet"))

    for number in range(2):
        chain.add(url, 100 * number, 100 * (number + 1))
        enough = partial(half_done, chain.inserted(url))
        Driver("live", url, tmp_path).kill_when(enough, "a micro-batch was written in part")
        assert b"open" in {one[b"state"] for one in chain.writes(url)}, "nobody was left to abort it"
    chain.add(url, 200, 240)
    subprocess.run(program("rest", url, tmp_path), cwd=ROOT, timeout=240, check=True)
    assert max(int(one[b"runs"]) for one in chain.writes(url)) > 1
    chain.check(spark, url, tmp_path, 240)


@pytest.mark.slow
def test_a_rerun_adds_what_is_missing_when_the_driver_of_a_batch_write_was_killed(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    url = server.url

    def half_done() -> bool:
        return chain.inserted(url) >= 100

    Driver("bulk", url, tmp_path).kill_when(half_done, "a hundred rows were written")
    before = write_report(url, chain.SINK, "bulk")
    assert (before.state, 100 <= before.inserted < 1000) == ("open", True)
    after = chain.write_all(spark, url, 1000, None)
    assert (after.state, after.inserted, after.duplicate, after.runs) == ("committed", 1000, 0, 2)
    assert after.replayed >= 100
    sink = Written(RunningStore("own", url, (endpoint_of(server),)), chain.SINK)
    assert sorted(sink.run()) == sorted(f"j{n}" for n in range(1000))
