"""Writes of a DataFrame: rows, columns, options, and errors before a task starts."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import traceback
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from glidemq_async import Queue
from glidemq_async.spark import WriteReport, enqueue_frame
from tests.spark.writing.conftest import Written

pytestmark = pytest.mark.only_on("unix")


def jobs(spark: SparkSession, *ids: str | None) -> DataFrame:
    """A frame of jobs with these ids."""
    return spark.createDataFrame([(id_, "n", "{}") for id_ in ids], "id string, name string, data string")


def test_rows_become_jobs(spark: SparkSession, queue: Written) -> None:
    frame = spark.sql("select concat('o', id) as id, 'pay' as name, to_json(struct(id as n)) as data from range(250)")
    frame.write.format("glidemq").options(**queue.options).mode("append").save()
    assert queue.run() == {f"o{n}": {"n": n} for n in range(250)}


def test_a_report_contains_the_counts_of_the_server(spark: SparkSession, queue: Written) -> None:
    frame = spark.range(30).selectExpr("id", "'pay' as name", "named_struct('n', id, 'm', map('a', id)) as data")
    first = enqueue_frame(frame, queue.name, url=queue.url, id_prefix="o")
    again = enqueue_frame(frame, queue.name, url=queue.url, id_prefix="o")
    assert (first.state, first.inserted, first.duplicate, first.partitions) == ("committed", 30, 0, 2)
    assert (again.inserted, again.duplicate, again.replayed, again.rejected) == (0, 30, 0, 0)
    assert queue.run() == {f"o{n}": {"n": n, "m": {"a": n}} for n in range(30)}


def test_data_of_every_kind_reach_the_handler_as_values(spark: SparkSession, queue: Written) -> None:
    stored = bytearray(msgpack.packb({"b": [1]}))
    values: dict[str, tuple[str, Any, Any]] = {
        "json": ("string", '{"a": [1, null]}', {"a": [1, None]}),
        "binary": ("binary", stored, {"b": [1]}),
        "list": ("array<int>", [1, 2], [1, 2]),
        "number": ("bigint", 7, 7),
        "null": ("string", None, None),
    }
    for id_, (kind, value, _) in values.items():
        frame = spark.createDataFrame([(id_, "n", value)], f"id string, name string, data {kind}")
        frame.write.format("glidemq").options(**queue.options).mode("append").save()
    assert queue.run() == {id_: expected for id_, (_, _, expected) in values.items()}


def test_columns_and_opts_are_job_options(spark: SparkSession, queue: Written) -> None:
    frame = spark.sql(
        "select * from values ('a', 3, cast(null as double), cast(null as string), map('h', 'x'), '{}'),"
        " ('b', null, 60D, null, null, null), ('c', null, null, 'k', null,"
        """ '{"attempts": 5, "backoff": {"kind": "exponential", "delay": 2}}')"""
        " as t(id, priority, delay, key, headers, opts)"
    )
    enqueue_frame(frame, queue.name, url=queue.url, name="n", opts={"attempts": 2})
    assert queue.counts() == {"prioritized": 1, "delayed": 1, "key-waiting": 1}

    async def read() -> list[Any]:
        async with Queue[Any, Any](queue.name, queue.url) as opened:
            return [await opened.get_job(id_) for id_ in "abc"]

    a, b, c = asyncio.run(read())
    assert (a.options.attempts, dict(a.options.headers)) == (2, {"h": "x"})
    assert (b.options.attempts, c.options.attempts, c.options.backoff.initial) == (2, 5, 2.0)


def test_ids_from_columns_are_the_same_each_time(spark: SparkSession, queue: Written) -> None:
    frame = spark.sql("select 'n' as name, id % 3 as a, id % 2 as b from range(12)")
    columns = ["a", "B"]
    first = enqueue_frame(frame, queue.name, url=queue.url, id_mode="hash", id_columns=columns, id_prefix="c:")
    again = enqueue_frame(
        frame.repartition(3), queue.name, url=queue.url, id_mode="hash", id_columns=columns, id_prefix="c:"
    )
    assert (first.inserted, first.replayed, again.duplicate, again.replayed) == (6, 6, 6, 6)
    assert all(id_.startswith("c:") for id_ in queue.run())


def test_a_repeated_write_without_ids_adds_all_rows_again(spark: SparkSession, queue: Written) -> None:
    for _ in range(2):
        enqueue_frame(spark.range(5).selectExpr("'n' as name"), queue.name, url=queue.url, id_mode="none")
    assert queue.counts() == {"waiting": 10}


def test_a_column_names_one_of_several_queues(spark: SparkSession, queue: Written) -> None:
    frame = spark.sql("select concat('j', id) as id, 'n' as name, if(id % 3 = 0, 'a', 'b') as queue from range(9)")
    options = {"url": queue.url, "queues": "a,b"}
    frame.write.format("glidemq").options(**options).mode("append").save()
    assert (queue.counts("a"), queue.counts("b")) == ({"waiting": 3}, {"waiting": 6})
    with pytest.raises(PySparkException, match="not in the option queues=a"):
        frame.write.format("glidemq").options(url=queue.url, queues="a").mode("append").save()


def test_a_version_of_an_application_is_written_once(spark: SparkSession, queue: Written) -> None:
    def write(version: int, *ids: str) -> tuple[int, int]:
        report = enqueue_frame(jobs(spark, *ids), queue.name, url=queue.url, txn_app_id="load", txn_version=version)
        return report.inserted, report.runs

    assert write(1, "a", "b") == (2, 1)
    queue.run()
    queue.remove("a", "b")
    assert write(1, "a", "b") == (2, 1)
    assert queue.counts() == {}
    assert write(2, "a") == (1, 1)
    assert queue.counts() == {"waiting": 1}


@pytest.mark.parametrize("what", ["drop", "dlq"])
def test_invalid_rows_are_counted_or_kept(spark: SparkSession, queue: Written, what: str) -> None:
    frame = spark.createDataFrame(
        [("a", "n", "{}"), (None, "n", "{}"), ("b", "n", "{not json"), ("c", None, "1")],
        "id string, name string, data string",
    )
    if what == "dlq":
        queue.set_dead_letter_queue("dead")
    report = enqueue_frame(frame, queue.name, url=queue.url, on_invalid=what)
    assert (report.inserted, report.rejected) == (1, 3)
    assert queue.counts() == {"waiting": 1}
    if what == "dlq":
        reasons = sorted(data["reason"].split(":")[0] for data in queue.run("dead").values())
        assert reasons == ["data is not valid JSON", "the name of the job is null", "the row has no id"]


def test_an_invalid_row_ends_the_write(spark: SparkSession, queue: Written) -> None:
    frame = spark.createDataFrame([("a", "n", '{"pin": hunter2')], "id string, name string, data string")
    with pytest.raises(
        PySparkException, match=r"the row with the id 'a' .* is not a valid job: data is not valid JSON"
    ) as caught:
        enqueue_frame(frame, queue.name, url=queue.url, write_id="w")
    assert queue.report("w").state == "aborted"
    # The value is not in the texts that Spark adds to the error and logs either.
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_row_without_an_id_ends_the_write(spark: SparkSession, queue: Written) -> None:
    with pytest.raises(PySparkException, match="the row has no id"):
        enqueue_frame(jobs(spark, "a", None), queue.name, url=queue.url, write_id="w")
    assert queue.report("w").state == "aborted"


@pytest.mark.slow
def test_an_existing_job_ends_the_write_with_on_duplicate_fail(spark: SparkSession, queue: Written) -> None:
    enqueue_frame(jobs(spark, "a"), queue.name, url=queue.url)
    with pytest.raises(PySparkException, match="job 'a' exists already in queue 'orders'"):
        enqueue_frame(jobs(spark, "a"), queue.name, url=queue.url, on_duplicate="fail", write_id="w")
    assert queue.report("w").state == "aborted"


def test_wrong_options_are_reported_before_a_task_starts(spark: SparkSession, queue: Written) -> None:
    wrong = ({"codecs": "zstd"}, "unknown option 'codecs'"), ({"onInvalid": "dlq"}, "no dead-letter queue")
    for options, why in wrong:
        with pytest.raises(PySparkException, match=why):
            jobs(spark, "a").write.format("glidemq").options(**queue.options, **options).mode("append").save()
    for mode, why in (("overwrite", "a write never removes jobs"), ("ignore", "Append"), ("error", "Append")):
        with pytest.raises(PySparkException, match=why):
            jobs(spark, "a").write.format("glidemq").options(**queue.options).mode(mode).save()
    assert queue.counts() == {}


def test_no_message_contains_a_password(spark: SparkSession, queue: Written) -> None:
    url = "redis://user:s3cret@127.0.0.1:1/0"
    with pytest.raises(PySparkException) as refused:
        jobs(spark, "a").write.format("glidemq").options(url=url, queue="q", requestTimeout="1s").mode("append").save()
    assert "s3cret" not in str(refused.value)
    assert "127.0.0.1:1" in str(refused.value)


def test_types_that_json_does_not_have_reach_the_handler(spark: SparkSession, queue: Written) -> None:
    frame = spark.sql(
        """SELECT 'a' AS id, 'n' AS name, 0.01 AS delay, struct(parse_json('{"x": [1, null]}') AS v, X'00FF' AS b,
        map('m', struct(timestamp_seconds(0) AS at)) AS m, CAST(NULL AS decimal(9, 2)) AS d) AS data"""
    )
    assert enqueue_frame(frame, queue.name, url=queue.url).inserted == 1
    at = datetime(1970, 1, 1, tzinfo=UTC)
    assert queue.run() == {"a": {"v": {"x": [1, None]}, "b": b"\x00\xff", "m": {"m": {"at": at}}, "d": None}}
    months = spark.sql("SELECT 'a' AS id, 'n' AS name, INTERVAL '1-2' YEAR TO MONTH AS data")
    with pytest.raises(PySparkException, match="cannot contain months"):
        enqueue_frame(months, queue.name, url=queue.url)


def test_hashed_ids_do_not_depend_on_the_time_zone_of_the_session(spark: SparkSession, queue: Written) -> None:
    reports: list[WriteReport] = []
    options = {"id_mode": "hash", "id_columns": "due"}
    try:
        for zone in ("America/New_York", "UTC"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            frame = spark.sql("SELECT 'n' AS name, timestamp_seconds(1792891800) AS due")
            reports.append(enqueue_frame(frame, queue.name, url=queue.url, **options))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [(report.inserted, report.duplicate) for report in reports] == [(1, 0), (0, 1)]
