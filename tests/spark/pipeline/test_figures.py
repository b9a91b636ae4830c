"""PipelineFigures of a report for jobs that were obliterated, revoked, or added before the first stored event."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from glidemq_async.spark.pipeline import silver
from glidemq_async.spark.pipeline.burn_rates import burn_rates
from glidemq_async.spark.pipeline.figures import PipelineFigures, figures
from glidemq_async.spark.pipeline.lake import EVENT_SCHEMA
from glidemq_async.spark.pipeline.slo import Slo
from tests.spark.pipeline.truth import Truth, instant


def events_of(spark: SparkSession, *histories: tuple[str, list[tuple[int, str, str]]]) -> DataFrame:
    """Return events from histories: an incarnation, and for each event its second, kind and job."""
    rows = list[dict[str, object]]()
    for incarnation, events in histories:
        truth = Truth("work", incarnation)
        for number, (second, kind, job_id) in enumerate(events):
            truth.record(second * 1000, number, kind, job_id, **({"name": "n"} if kind == "added" else {}))
        rows += truth.rows()
    return spark.createDataFrame(rows, EVENT_SCHEMA)


def computed(events: DataFrame) -> PipelineFigures:
    return figures(silver.attempts(events), silver.jobs(events), Slo())


@pytest.mark.slow
def test_open_jobs_include_earlier_jobs_and_exclude_obliterated_ones(spark: SparkSession) -> None:
    before = [(0, "added", "a"), (1, "added", "b"), (3, "removed", "b")]
    after = [(6, "active", "old"), (7, "added", "c"), (8, "completed", "old")]
    found = computed(events_of(spark, ("i1", before), ("i2", after)))
    # "a" was obliterated with its queue. "old" was added before the first event, so it is open from the first point on.
    assert [point.open for point in found.points] == [2, 3, 3, 1, 1, 1, 1, 2, 1]
    assert (found.total.open, found.points[-1].open) == (1, 1)


@pytest.mark.slow
def test_jobs_without_an_added_event_are_not_counted_as_added(spark: SparkSession) -> None:
    found = computed(events_of(spark, ("i1", [(0, "active", "old"), (1, "added", "a"), (2, "completed", "old")])))
    assert (found.total.added, found.total.completed, found.total.open) == (1, 1, 1)
    assert sum(point.added for point in found.points) == 1
    assert (found.first - instant(0)).total_seconds() == 0


def test_revoked_jobs_do_not_count_against_the_budget(spark: SparkSession) -> None:
    truth = Truth("work", "i1")
    endings: list[tuple[str, str, dict[str, str]]] = [
        ("a", "completed", {}),
        ("b", "failed", {"reason": "revoked", "error_class": "revoked"}),
        ("c", "failed", {"reason": "KeyError", "error_class": "KeyError"}),
    ]
    for number, (job_id, kind, more) in enumerate(endings):
        truth.record(0, 2 * number, "added", job_id, name="n")
        truth.record(1000, 2 * number + 1, kind, job_id, **more)
    events = spark.createDataFrame(truth.rows(), EVENT_SCHEMA)
    jobs = silver.jobs(events)
    assert {row["job_id"]: row["state"] for row in jobs.collect()} == {"a": "completed", "b": "revoked", "c": "failed"}
    assert [(row["total"], row["bad"]) for row in burn_rates(jobs, Slo()).collect()] == [(2, 1)]
    found = figures(silver.attempts(events), jobs, Slo())
    assert (found.total.completed, found.total.failed, found.total.open) == (1, 1, 0)


def test_a_report_needs_a_job(spark: SparkSession) -> None:
    with pytest.raises(LookupError, match="no job to report on"):
        computed(spark.createDataFrame([], EVENT_SCHEMA))
