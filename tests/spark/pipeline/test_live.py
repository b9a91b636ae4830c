"""Live windows: an alert begins once, even if windows are reported again, and its id is stable."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from glidemq_async.spark.pipeline.lake import EVENT_SCHEMA, Lake
from glidemq_async.spark.pipeline.live import Alert, Budget, minute_windows, watch
from glidemq_async.spark.pipeline.slo import Count, Slo
from tests.spark.pipeline.truth import Truth

SLO = Slo("mails", 0.9)


def outage() -> Truth:
    """Return events of one job per second for ten minutes. From the third minute on all jobs fail."""
    truth = Truth("work", "i1")
    for second in range(600):
        at, job_id = second * 1000, f"j{second}"
        truth.record(at, second, "added", job_id, name="mail")
        truth.record(at + 1, second, "active", job_id)
        truth.record(at + 2, second, "failed" if second >= 120 else "completed", job_id)
    return truth


@pytest.mark.slow
def test_an_outage_is_reported_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = outage().rows()
    source = (tmp_path / "source").as_uri()
    events = spark.readStream.schema(EVENT_SCHEMA).parquet
    lake, alerts = Lake(tmp_path / "lake"), list[Alert]()
    reported: list[list[str]] = []
    for part in (rows[:600], rows[600:1300], rows[1300:]):
        spark.createDataFrame(part, EVENT_SCHEMA).coalesce(1).write.mode("append").parquet(source)
        watch(events(source), lake, SLO, alerts.append, every=None).awaitTermination()
        reported.append([alert.id for alert in alerts])
    # With an objective of 90 % the maximum burn rate is 10, which is enough for the slow pair only.
    assert [alert.pair for alert in alerts] == ["slow"]
    (alert,) = alerts
    assert (alert.short_burn, alert.long_burn) == pytest.approx((alert.long_burn, alert.long_burn))
    assert alert.id == f"mails:work:slow:{alert.minute:%Y-%m-%dT%H:%MZ}"
    assert reported[0] == []


def test_windows_are_reported_as_they_change(spark: SparkSession, tmp_path: Path) -> None:
    source = (tmp_path / "source").as_uri()
    spark.createDataFrame(outage().rows(), EVENT_SCHEMA).coalesce(1).write.parquet(source)
    found: dict[object, tuple[int, ...]] = {}

    def keep(frame: DataFrame, _batch: int) -> None:
        for row in frame.collect():
            found[row["minute"]] = tuple(row[name] for name in ("added", "started", "retried", "completed", "failed"))

    stream = minute_windows(spark.readStream.schema(EVENT_SCHEMA).parquet(source)).writeStream.outputMode("update")
    stream.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()
    assert [sum(values) for values in zip(*found.values(), strict=True)] == [600, 600, 0, 120, 480]


def test_a_saved_budget_repeats_no_alert(tmp_path: Path) -> None:
    budget, path = Budget(), tmp_path / "live" / "x.json"
    assert budget.update(SLO, "work", 1, Count(10, 0)) == []
    assert [alert.pair for alert in budget.update(SLO, "work", 2, Count(100, 100))] == ["slow"]
    budget.save(path)
    again = Budget.load(path)
    assert again == budget
    # The same minute again, with more jobs, and a late minute: no alert begins.
    assert again.update(SLO, "work", 2, Count(100, 100)) == []
    assert again.update(SLO, "work", 2, Count(110, 110)) == []
    assert again.update(SLO, "work", 1, Count(10, 10)) == []
    # The alert ends and begins again.
    assert again.update(SLO, "work", 40, Count(10_000, 0)) == []
    assert [alert.minute.minute for alert in again.update(SLO, "work", 100, Count(90_000, 90_000))] == [40]
    assert Budget.load(tmp_path / "none.json") == Budget()


def test_an_outage_after_a_silence_is_another_alert() -> None:
    budget, failing = Budget(), Count(100, 100)
    assert [alert.minute.minute for alert in budget.update(SLO, "work", 1, failing)] == [1]
    # Three minutes without a job do not end the alert. Half an hour does, because no window burns then.
    assert budget.update(SLO, "work", 5, failing) == []
    assert [alert.minute.minute for alert in budget.update(SLO, "work", 50, failing)] == [50]


def test_an_objective_with_a_latency_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.readStream.schema(EVENT_SCHEMA).parquet(tmp_path.as_uri())
    with pytest.raises(ValueError, match="use reports for latencies"):
        watch(events, Lake(tmp_path), Slo(latency_ms=5), lambda _alert: None)
