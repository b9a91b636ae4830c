"""Frames of jobs from other frames, and the look before the first job."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from glidemq_async.spark import doctor, enqueue_frame, jobs_frame
from tests.spark.writing.conftest import Written

pytestmark = pytest.mark.only_on("unix")


def test_any_frame_is_a_frame_of_jobs(spark: SparkSession, queue: Written) -> None:
    orders = spark.sql("select 7 as order, 'a@b' as email, true as urgent")
    frame = jobs_frame(orders, id="order", name="remind", data=["email"], priority=f.when(f.col("urgent"), 1))
    assert frame.columns == ["name", "id", "data", "priority"]
    enqueue_frame(frame, queue.name, url=queue.url)
    assert queue.counts() == {"prioritized": 1}
    assert queue.run() == {"7": {"email": "a@b"}}
    with pytest.raises(ValueError, match="no part of a job: urgency"):
        jobs_frame(orders, id="order", name="remind", urgency="urgent")


def test_the_doctor_looks_from_driver_and_tasks(spark: SparkSession, queue: Written) -> None:
    found = doctor(spark, queue.url, tasks=2)
    assert found.ok, str(found)
    assert "format glidemq of a task" in str(found)
    away = doctor(spark, "memory://", tasks=1)
    assert not away.ok
    assert "cannot be used from Spark" in str(away)
