"""Silver and gold equal a simulation, including percentiles."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from glidemq_async.spark.pipeline import gold, silver
from glidemq_async.spark.pipeline.burn_rates import burn_rates
from glidemq_async.spark.pipeline.columns import PERCENTS
from glidemq_async.spark.pipeline.lake import EVENT_SCHEMA
from glidemq_async.spark.pipeline.rollup import DAY, HOUR, roll_up
from glidemq_async.spark.pipeline.slo import PAIRS, Count, Slo
from tests.spark.pipeline.truth import Truth, by_minute, instant, percentile, simulate


class Tables(NamedTuple):
    truth: Truth
    attempts: DataFrame
    jobs: DataFrame


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Tables:
    truth = simulate(3000)
    events = spark.createDataFrame(truth.rows(), EVENT_SCHEMA)
    return Tables(truth, silver.attempts(events).cache(), silver.jobs(events).cache())


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def local(at: datetime) -> datetime:
    """Return an instant as Spark returns it: as local time without a time zone."""
    return at.astimezone().replace(tzinfo=None)


def naive(at: int | None) -> datetime | None:
    return None if at is None else local(instant(at))


def test_attempts_equal_the_simulation(tables: Tables) -> None:
    found = {
        (row["job_id"], row["life"], row["attempt"]): (
            *(row[name] for name in ("name", "key", "added", "ready", "started", "finished")),
            *(row[name] for name in ("wait_ms", "run_ms", "outcome", "error_class")),
        )
        for row in rows(tables.attempts)
    }
    assert found == {
        (run.job_id, run.life, run.attempt): (
            *(run.name, run.key, naive(run.added), naive(run.ready), naive(run.started), naive(run.finished)),
            *(run.wait_ms, run.run_ms, run.outcome, run.error_class),
        )
        for run in tables.truth.attempts
    }
    assert {outcome for *_, outcome, _ in found.values()} >= {"completed", "failed", "retrying", "stalled", "returned"}


def test_jobs_equal_the_simulation(tables: Tables) -> None:
    names = ("name", "key", "state", "end_to_end_ms", "attempts", "retries", "stalls", "error_class", "dead_letter")
    found = {(row["job_id"], row["life"]): tuple(row[name] for name in names) for row in rows(tables.jobs)}
    assert found == {
        (job.job_id, job.life): (
            *(job.name, job.key, job.state, job.end_to_end_ms, job.attempts, job.retries, job.stalls),
            *(job.error_class, job.dead_letter),
        )
        for job in tables.truth.jobs
    }
    assert any(life == 2 for _, life in found)


def test_minutes_count_and_rank_exactly(tables: Tables) -> None:
    found = {
        (row["name"], row["key"], row["minute"].isoformat()): row
        for row in rows(gold.minutes(tables.attempts, tables.jobs))
    }
    truth = tables.truth
    for measure, members in (
        ("wait", [(run, run.started, run.wait_ms) for run in truth.attempts]),
        ("run", [(run, run.finished, run.run_ms) for run in truth.attempts]),
        ("end_to_end", [(job, job.finished, job.end_to_end_ms) for job in truth.jobs]),
    ):
        compared = 0
        for series in {(member.name, member.key) for member, _, _ in members}:
            values = by_minute([(at, v) for member, at, v in members if (member.name, member.key) == series])
            for minute, several in values.items():
                row = found[(*series, local(minute).isoformat())]
                for percent in PERCENTS:
                    assert row[f"{measure}_p{percent}"] == percentile(several, percent)
                    compared += 1
        assert compared > 1000

    def total(name: str) -> int:
        return sum(row[name] for row in found.values())

    outcomes = Counter(run.outcome for run in truth.attempts)
    states = Counter(job.state for job in truth.jobs)
    assert total("added") == len(truth.jobs)
    assert total("started") == len(truth.attempts)
    assert (total("retried"), total("stalled")) == (outcomes["retrying"], outcomes["stalled"])
    assert (total("returned"), total("limited")) == (outcomes["returned"], outcomes["limited"])
    assert (total("completed"), total("failed")) == (states["completed"], states["failed"])
    assert total("dead_lettered") == states["failed"] > 50


@pytest.mark.slow
def test_rates_of_a_minute_are_shares_of_ended_jobs_and_attempts(tables: Tables) -> None:
    for row in rows(gold.minutes(tables.attempts, tables.jobs)):
        ended = row["completed"] + row["failed"]
        assert row["failure_rate"] == (row["failed"] / ended if ended else None)
        attempts_ended = row["attempts_ended"]
        assert row["retry_rate"] == (row["retried"] / attempts_ended if attempts_ended else None)


@pytest.mark.parametrize("seconds", [HOUR, DAY])
def test_percentiles_are_computed_from_minutes(tables: Tables, seconds: int) -> None:
    histograms = gold.histograms(tables.attempts, tables.jobs)
    found = {(row["start"], row["measure"]): row for row in rows(roll_up(histograms, seconds, by=["queue"]))}
    expected: dict[Any, list[int]] = {}
    for measure, members in (
        ("wait_ms", [(run.started, run.wait_ms) for run in tables.truth.attempts]),
        ("run_ms", [(run.finished, run.run_ms) for run in tables.truth.attempts]),
        ("end_to_end_ms", [(job.finished, job.end_to_end_ms) for job in tables.truth.jobs]),
    ):
        for at, value in members:
            if at is not None and value is not None:
                start = instant(at).replace(minute=0, second=0, microsecond=0)
                start = local(start if seconds == HOUR else start.replace(hour=0))
                expected.setdefault((start, measure), []).append(value)
    assert found.keys() == expected.keys()
    for cell, values in expected.items():
        assert found[cell]["n"] == len(values)
        for percent in PERCENTS:
            true, reported = percentile(values, percent), found[cell][f"p{percent}"]
            assert true is not None
            if true < 4096:
                assert reported == true
            else:
                assert true <= reported <= true * (1 + 1 / 2048)


def test_causes_and_heat_count_every_failure_retry_and_stall(tables: Tables) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for row in rows(gold.causes(tables.attempts, tables.jobs)):
        found[row["kind"], row["cause"]] += row["n"]
    expected: Counter[tuple[str, str | None]] = Counter()
    ends = {(job.job_id, job.life): job.finished for job in tables.truth.jobs}
    for run in tables.truth.attempts:
        if run.outcome in ("retrying", "failed"):
            expected["retried" if run.outcome == "retrying" else "failed", run.error_class] += 1
            if run.outcome == "failed":
                expected["dead-lettered", run.error_class] += 1
        if run.outcome == "stalled":
            expected["stalled", "open" if ends[run.job_id, run.life] is None else "recovered"] += 1
    assert found == expected

    heat: Counter[tuple[str, str, int]] = Counter()
    for row in rows(gold.retry_heat(tables.attempts)):
        heat[row["name"], row["error_class"], row["attempt"]] += row["n"]
    again = [run for run in tables.truth.attempts if run.outcome in ("retrying", "stalled")]
    assert heat == Counter((run.name, run.error_class, run.attempt) for run in again)


@pytest.mark.parametrize("latency_ms", [None, 2_000])
def test_burn_rates_equal_the_simulation(tables: Tables, latency_ms: int | None) -> None:
    slo = Slo("jobs", 0.995, latency_ms)
    counts: dict[int, Count] = {}
    for job in tables.truth.jobs:
        if job.finished is not None and job.end_to_end_ms is not None:
            minute = int(instant(job.finished).timestamp()) // 60
            bad = job.state == "failed" or (latency_ms is not None and job.end_to_end_ms > latency_ms)
            total, before = counts.get(minute, Count(0, 0))
            counts[minute] = Count(total + 1, before + bad)
    found = rows(burn_rates(tables.jobs, slo).sort("minute"))
    assert len(found) == max(counts) - min(counts) + 1
    for offset, row in enumerate(found):
        minute = min(counts) + offset
        assert (row["total"], row["bad"]) == counts.get(minute, Count(0, 0))
        for pair in PAIRS:
            for length in (pair.short, pair.long):
                assert row[f"burn_{length}m"] == pytest.approx(slo.burn(counts, minute, length))
        assert [pair for pair in PAIRS if row[pair.name]] == slo.alerts(counts, minute)
    assert (latency_ms is not None) == any(row["fast"] for row in found)


KindOfEvent = tuple[str, dict[str, str]]


def one_job(*kinds: KindOfEvent, incarnation: str = "i1") -> list[dict[str, Any]]:
    truth = Truth("work", incarnation)
    for number, (kind, fields) in enumerate(kinds):
        truth.record(number * 1000, 0, kind, "a", **fields)
    return truth.rows()


@pytest.mark.slow
def test_a_job_without_an_added_event_has_no_name_and_no_wait(spark: SparkSession) -> None:
    events = spark.createDataFrame(one_job(("active", {}), ("completed", {})), EVENT_SCHEMA)
    (attempt,) = rows(silver.attempts(events))
    assert (attempt["life"], attempt["name"], attempt["wait_ms"], attempt["run_ms"]) == (0, None, None, 1000)
    (job,) = rows(silver.jobs(events))
    assert (job["state"], job["end_to_end_ms"]) == ("completed", None)


def test_a_failed_job_that_was_retried_by_hand_is_one_job(spark: SparkSession) -> None:
    failed: KindOfEvent = ("failed", {"reason": "E: x", "error_class": "E", "detail": "E: x"})
    kinds: list[KindOfEvent] = [
        ("added", {"name": "n"}),
        ("active", {}),
        failed,
        ("waiting", {"detail": "retried"}),
        ("active", {}),
    ]
    events = spark.createDataFrame(one_job(*kinds, ("completed", {})), EVENT_SCHEMA)
    assert [(row["outcome"], row["wait_ms"]) for row in rows(silver.attempts(events).sort("attempt"))] == [
        ("failed", 1000),
        ("completed", 1000),
    ]
    (job,) = rows(silver.jobs(events))
    assert (job["state"], job["error_class"], job["attempts"], job["end_to_end_ms"]) == ("completed", None, 2, 5000)


def test_a_job_whose_delay_was_changed_waits_until_it_is_due(spark: SparkSession) -> None:
    kinds: list[KindOfEvent] = [("added", {"name": "n"}), ("changed", {"detail": "priority 5"})]
    put_off: KindOfEvent = ("changed", {"detail": "delay 5000"})

    def state(*more: KindOfEvent) -> object:
        (job,) = rows(silver.jobs(spark.createDataFrame(one_job(*kinds, *more), EVENT_SCHEMA)))
        return job["state"]

    assert [state(), state(put_off), state(put_off, ("waiting", {"detail": ""}))] == ["waiting", "delayed", "waiting"]


def test_a_job_with_a_removal_only_has_the_state_of_the_removal(spark: SparkSession) -> None:
    for detail, state in (("completed", "completed"), ("delayed", "removed")):
        (job,) = rows(silver.jobs(spark.createDataFrame(one_job(("removed", {"detail": detail})), EVENT_SCHEMA)))
        assert (job["state"], job["finished"], job["closed"]) == (state, None, naive(0))


def test_jobs_of_a_recreated_queue_are_obliterated_unless_they_had_ended(spark: SparkSession) -> None:
    old = [*one_job(("added", {"name": "n"}), ("active", {})), *one_job(("added", {"name": "n"}), incarnation="i2")]
    for row in old:
        if row["incarnation"] == "i2":
            row["ts"] = instant(60_000)
    found = {row["incarnation"]: row["state"] for row in rows(silver.jobs(spark.createDataFrame(old, EVENT_SCHEMA)))}
    assert found == {"i1": "obliterated", "i2": "waiting"}


def test_a_clock_that_is_set_back_gives_no_negative_durations(spark: SparkSession) -> None:
    reported = one_job(("added", {"name": "n"}), ("active", {}), ("completed", {}))
    reported[2]["ts"] = instant(-5_000)
    (attempt,) = rows(silver.attempts(spark.createDataFrame(reported, EVENT_SCHEMA)))
    assert (attempt["outcome"], attempt["run_ms"]) == ("completed", 0)
