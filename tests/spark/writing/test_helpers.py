"""`jobs_frame` and `doctor`."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from glidemq_async.spark import doctor, enqueue_frame, jobs_frame
from tests.spark.writing.conftest import Written

pytestmark = pytest.mark.only_on("unix")


def test_jobs_frame_builds_rows_of_jobs_from_any_columns(spark: SparkSession, queue: Written) -> None:
    orders = spark.sql("select 7 as order, 'a@b' as email, true as urgent")
    frame = jobs_frame(orders, id="order", name="remind", data=["email"], priority=f.when(f.col("urgent"), 1))
    assert frame.columns == ["name", "id", "data", "priority"]
    enqueue_frame(frame, queue.name, url=queue.url)
    assert queue.counts() == {"prioritized": 1}
    assert queue.run() == {"7": {"email": "a@b"}}
    with pytest.raises(ValueError, match="unknown options of a job: urgency"):
        jobs_frame(orders, id="order", name="remind", urgency="urgent")


def test_names_of_columns_may_contain_any_characters(spark: SparkSession, queue: Written) -> None:
    frame = spark.sql("select 1 as `a.b`, struct(2 as b) as a, 'x' as `order, id`, 3 as `tick``ed`")
    made = jobs_frame(frame, id="order, id", name="n", priority="a.b", cost="a.b")
    enqueue_frame(made, queue.name, url=queue.url)
    hashed = jobs_frame(frame.withColumnRenamed("order, id", "x"), name="n", data=["a.b"])
    hashed = hashed.withColumn("order, id", f.lit(1))
    enqueue_frame(hashed, queue.name, url=queue.url, id_mode="hash", id_columns=["order, id"])
    nested = jobs_frame(frame.drop("a.b"), id=f.lit("z"), name="n", data=["a.b"])
    enqueue_frame(nested, queue.name, url=queue.url)
    found = queue.run()
    assert found.pop("x") == {"a.b": 1, "a": {"b": 2}, "order, id": "x", "tick`ed": 3}
    assert found.pop("z") == {"b": 2}
    assert list(found.values()) == [{"a.b": 1}]


def test_the_doctor_checks_driver_and_tasks(spark: SparkSession, queue: Written) -> None:
    found = doctor(spark, queue.url, tasks=2)
    assert found.ok, str(found)
    assert "format glidemq of a task" in str(found)
    away = doctor(spark, "memory://", tasks=1)
    assert not away.ok
    assert "cannot be used from Spark" in str(away)
