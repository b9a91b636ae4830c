"""Jobs, dead letters, results and queues as tables."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from glidemq_async import UnrecoverableError
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.spark import GlideMQDataSource, latest
from glidemq_async.stored.record import STATES
from tests.spark.reading.conftest import Source
from tests.spark.versions import needs_pushdown
from tests.support.helpers import AnyJob, AnyQueue, ended, worker_of


async def work(job: AnyJob) -> Any:
    if job.name == "bad":
        raise UnrecoverableError(f"cannot {job.data}")
    return {"got": job.data}


async def fill(queue: AnyQueue) -> None:
    """Create 12 completed jobs, 3 failed ones, 4 waiting ones, a delayed one and one with a key."""
    jobs = [await queue.add("good", {"n": n}) for n in range(12)] + [await queue.add("bad", n) for n in range(3)]
    async with worker_of(queue, work, concurrency=4):
        for job in jobs:
            await ended(job)
    await queue.add_bulk([("later", n) for n in range(4)])
    await queue.add("delayed", None, delay=3_600)
    await queue.add("keyed", b"\x00\xff", key="k")


async def test_jobs_are_a_table_by_state(queue: AnyQueue, source: Source) -> None:
    await fill(queue)
    rows = source.read("jobs", minPartitions=4).collect()
    states = [row.state for row in rows]
    assert {state: states.count(state) for state in set(states)} == {
        "completed": 12, "failed": 3, "waiting": 4, "delayed": 1, "key-waiting": 1,
    }  # fmt: skip
    assert len({row.id for row in rows}) == len(rows)
    assert {row.data for row in rows} == {None}
    (keyed,) = [row for row in rows if row.key]
    job = await queue.get_job(keyed.id)
    assert job is not None
    assert job.created_at is not None
    assert (keyed.name, keyed.key, keyed.data_size) == ("keyed", "k", job.data_size)
    assert keyed.created_at.timestamp() == pytest.approx(job.created_at.timestamp())


@pytest.mark.parametrize("kind", ["jobs", "dlq", "queues"])
async def test_a_missing_queue_is_logged(
    queue: AnyQueue, source: Source, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    await queue.add("n", 1)

    def plan(names: str) -> list[str]:
        caplog.clear()
        made = GlideMQDataSource({"url": source.url, "kind": kind, "subscribe": names})
        made.reader(made.schema()).partitions()
        return caplog.messages

    assert await asyncio.to_thread(plan, queue.name) == []
    assert await asyncio.to_thread(plan, f"{queue.name},nosuch") == [
        f"there is no queue 'nosuch': its table of kind={kind} is empty"
    ]


async def test_jobs_are_selected_by_options(queue: AnyQueue, source: Source) -> None:
    await fill(queue)
    ids = [row.id for row in source.read("jobs", states="waiting,delayed", names="later").collect()]
    assert len(ids) == 4
    assert {row.id for row in source.read("jobs", ids=",".join([*ids, "no-such-job"])).collect()} == set(ids)
    after = (await queue.get_jobs("delayed"))[0].created_at
    assert after is not None
    late = {row.id for row in source.read("jobs", createdAfter=after.isoformat()).collect()}
    created = {job.id: job.created_at for state in STATES for job in await queue.get_jobs(state)}
    # Several jobs may have been added within one millisecond.
    assert late == {job_id for job_id, at in created.items() if at and at >= after}


@needs_pushdown
async def test_jobs_are_selected_by_filters(queue: AnyQueue, source: Source, spark: SparkSession) -> None:
    await fill(queue)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = source.read("jobs", pushdown="true").where("state = 'failed' and name = 'bad' and id != '13'")
        left = explained(frame)
        assert ("= failed" in left, "= bad" in left, "= 13" in left) == (False, False, True)
        assert frame.count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def explained(frame: Any) -> str:
    """Return the plan of Spark."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


async def test_payloads_are_json_with_include_data(queue: AnyQueue, source: Source) -> None:
    await fill(queue)
    rows = source.read("jobs", includeData="true").collect()
    good = [row for row in rows if row.name == "good"]
    assert {json.loads(row.data)["n"] for row in good} == set(range(12))
    assert all(MsgpackSerializer().loads(bytes(row.payload)) == json.loads(row.data) for row in good)
    assert all(json.loads(row.result) == {"got": json.loads(row.data)} for row in good)
    (keyed,) = [row for row in rows if row.name == "keyed"]
    assert (keyed.data, keyed.result) == ('"AP8="', None)
    bad = [row for row in rows if row.name == "bad"]
    assert all("UnrecoverableError" in row.stacktrace for row in bad)
    results = source.read("results", includeData="true").collect()
    assert sorted(row.state for row in results) == ["completed"] * 12 + ["failed"] * 3
    assert {row.failed_reason for row in results if row.state == "failed"} == {
        f"UnrecoverableError: cannot {n}" for n in range(3)
    }


async def test_an_unreadable_payload_is_reported_in_its_row(queue: AnyQueue, source: Source) -> None:
    await queue.add("n", 1)
    job = await queue.add("n", 2)
    await queue.storage.call("updateJob", f"glide:{{{queue.name}}}", ["lane", 1, job.id, "", "data", b"\xc1\xff"])
    rows = {row.id: row for row in source.read("jobs", includeData="true").collect()}
    assert (rows["1"].data, rows["1"].unreadable) == ("1", None)
    assert rows[job.id].data is None
    assert rows[job.id].unreadable.startswith("data: ")


async def test_dead_letters_are_a_table(queue: AnyQueue, source: Source) -> None:
    await fill(queue)
    rows = source.read("dlq", includeData="true").collect()
    assert sorted((row.name, row.data, row.failure_cause, row.failed_reason) for row in rows) == [
        ("bad", str(n), "unrecoverable", f"UnrecoverableError: cannot {n}") for n in range(3)
    ]


async def test_ids_select_dead_letters_only(queue: AnyQueue, source: Source) -> None:
    await fill(queue)
    [one, *_] = [row.id for row in source.read("dlq").collect()]
    [other, *_] = [row.id for row in source.read("jobs", states="completed").collect()]
    assert [row.id for row in source.read("dlq", ids=f"{one},{other}").collect()] == [one]


async def test_the_table_of_queues_has_a_row_for_each_queue(queue: AnyQueue, source: Source) -> None:
    await fill(queue)
    await queue.pause()
    await queue.upsert_job_scheduler("nightly", cron="0 3 * * *", name="report")
    (row,) = source.read("queues").collect()
    assert (row.waiting, row.completed, row.failed, row.delayed, row.key_waiting) == (4, 12, 3, 1, 1)
    assert row.paused
    assert (row.completed_last_hour, row.failed_last_hour) == (12, 3)
    assert 0 <= row.oldest_waiting_ms < 60_000
    (scheduler,) = source.read("schedulers").collect()
    assert (scheduler.id, scheduler.name, scheduler.cron, scheduler.fired) == ("nightly", "report", "0 3 * * *", 0)
    async with worker_of(queue, work, name="w1"):
        (worker,) = source.read("workers").collect()
    assert (worker.name.partition("-")[0], worker.running) == ("w1", 0)
    assert worker.last_seen - worker.started_at < timedelta(minutes=1)


async def test_reading_a_missing_queue_does_not_create_it(source: Source, queue: AnyQueue) -> None:
    await queue.obliterate()
    for kind in ("jobs", "queues", "dlq", "losses"):
        assert source.read(kind).collect() == []
    with pytest.raises(PySparkException, match="there is no queue"):
        source.read("events").collect()
    assert await queue.storage.call("countJobs", f"glide:{{{queue.name}}}", [], readonly=True)
    assert [key async for key in queue.storage.scan(f"glide:{{{queue.name}}}:*")] == []


async def test_the_newest_row_of_each_job_is_kept(spark: SparkSession, source: Source, queue: AnyQueue) -> None:
    await queue.add("n")
    frame = source.read("jobs")
    older = frame.selectExpr("* except (observed_at, state)", "'old' as state", "timestamp'2020-01-01' as observed_at")
    assert [row.state for row in latest(older.unionByName(frame)).collect()] == ["waiting"]


async def test_a_schema_selects_columns_by_name(source: Source, queue: AnyQueue, spark: SparkSession) -> None:
    await queue.add("n")
    reader = spark.read.format("glidemq").options(url=source.url, subscribe=source.queue)
    (row,) = reader.schema("seq bigint, queue string, ts timestamp").load().collect()
    assert row.asDict().keys() == {"seq", "queue", "ts"}
    (row,) = reader.schema("state string, id string").option("kind", "jobs").load().collect()
    assert row.asDict() == {"state": "waiting", "id": "1"}
    with pytest.raises(PySparkException, match=r"has no column .*; its columns are queue, id, name"):
        reader.schema("ident string").option("kind", "jobs").load().collect()
    with pytest.raises(PySparkException, match=r"has the type bigint, got"):
        reader.schema("seq string").option("kind", "events").load().collect()
