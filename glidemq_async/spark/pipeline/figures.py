"""The figures of a report as plain values, computed by Spark from the silver tables. They are exact."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.burn_rates import BURN_COLUMNS, burn_rates
from glidemq_async.spark.pipeline.columns import PERCENTS, count_of
from glidemq_async.spark.pipeline.gold import causes, interval_counts, percentiles_of
from glidemq_async.spark.pipeline.replay import PREFIX
from glidemq_async.spark.pipeline.slo import PAIRS, Slo

INTERVALS: Final = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400)
MAX_POINTS: Final = 150
UNKNOWN_NAME: Final = "(unknown)"


class Percentiles(NamedTuple):
    """Percentiles in milliseconds, or None without data."""

    p50: int | None
    p95: int | None
    p99: int | None


class Point(NamedTuple):
    """One interval: jobs added and ended in it, jobs open at its end, and percentiles of wait and run times."""

    at: datetime
    added: int
    completed: int
    failed: int
    open: int
    wait: Percentiles
    run: Percentiles


class Cause(NamedTuple):
    """The number of failures ("failed"), retries ("retried") or stalls with one cause."""

    kind: str
    cause: str
    n: int


class Burn(NamedTuple):
    """The burn rates of a minute, in the order of BURN_COLUMNS: the maximum over all queues."""

    at: datetime
    rates: tuple[float, ...]
    alerts: tuple[str, ...]


class NameRow(NamedTuple):
    """The counts and percentiles of the jobs of one name.

    `added` does not include jobs that were added before the first stored event. `open` jobs have neither ended nor been
    removed.
    """

    queue: str
    name: str
    added: int
    completed: int
    failed: int
    open: int
    retries: int
    stalls: int
    wait: Percentiles
    run: Percentiles
    end_to_end: Percentiles


class Campaign(NamedTuple):
    """The states of the jobs that a campaign replayed. `open` jobs have neither ended nor been removed."""

    name: str
    replayed: int
    completed: int
    failed: int
    open: int


@dataclass(frozen=True)
class PipelineFigures:
    """The contents of a report. Instants are UTC, durations are milliseconds."""

    queues: tuple[str, ...]
    first: datetime
    last: datetime
    step: int
    """Seconds between two points."""
    total: NameRow
    points: tuple[Point, ...]
    causes: tuple[Cause, ...]
    burns: tuple[Burn, ...]
    names: tuple[NameRow, ...]
    campaigns: tuple[Campaign, ...]
    slo: Slo

    @property
    def seconds(self) -> float:
        """Seconds from the first event to the last."""
        return (self.last - self.first).total_seconds()


def figures(attempts: DataFrame, jobs: DataFrame, slo: Slo) -> PipelineFigures:
    """Compute the figures of a report. Raises LookupError if the tables contain no job."""
    first, last = _first_and_last(attempts, jobs)
    if first is None or last is None:
        raise LookupError("there is no job to report on; add jobs, and run the pipeline again")
    step = step_of((last - first).total_seconds())
    names = _names(attempts, jobs, ["queue", "name"])
    return PipelineFigures(
        queues=tuple(sorted({row.queue for row in names})),
        first=first,
        last=last,
        step=step,
        # Computed again over all jobs, because percentiles of the names cannot be combined into a percentile of all.
        total=_names(attempts, jobs, [])[0],
        points=tuple(_points(attempts, jobs, step)),
        causes=tuple(_causes(attempts, jobs)),
        burns=tuple(_burns(jobs, slo)),
        names=tuple(names),
        campaigns=tuple(_campaigns(jobs)),
        slo=slo,
    )


def step_of(seconds: float) -> int:
    """Return the shortest of the usual intervals with at most 150 points, or the longest interval."""
    return next((step for step in INTERVALS if seconds / step <= MAX_POINTS), INTERVALS[-1])


def _first_and_last(attempts: DataFrame, jobs: DataFrame) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last instant in the tables."""
    instants = ("added", "started", "closed")
    # `least` and `greatest` of Spark skip nulls: a job that waits has only `added`.
    seen = jobs.agg(F.min(F.least(*instants)), F.max(F.greatest(*instants))).collect()[0]
    ran = attempts.agg(F.max(F.greatest("started", "finished"))).collect()[0][0]
    last = max((each for each in (seen[1], ran) if each is not None), default=None)
    return _utc(seen[0]), _utc(last)


def _names(attempts: DataFrame, jobs: DataFrame, by: Sequence[str]) -> list[NameRow]:
    counted = jobs.groupBy(*by).agg(
        F.count("added").alias("added"),
        *_counts_by_state(),
        F.sum("retries").alias("retries"),
        F.sum("stalls").alias("stalls"),
        *percentiles_of("end_to_end_ms"),
    )
    ran = attempts.groupBy(*by).agg(*percentiles_of("wait_ms"), *percentiles_of("run_ms"))
    measured = {_series(row, by): row for row in ran.collect()}

    def named(row: Any) -> NameRow:
        of_attempts = measured.get(_series(row, by))
        queue, name = _series(row, by) or ("", "")
        return NameRow(
            queue,
            name,
            added=row["added"],
            completed=row["completed"],
            failed=row["failed"],
            open=row["open"],
            retries=row["retries"],
            stalls=row["stalls"],
            wait=_read(of_attempts, "wait"),
            run=_read(of_attempts, "run"),
            end_to_end=_read(row, "end_to_end"),
        )

    return sorted(map(named, counted.collect()), key=lambda each: (-each.added, each.queue, each.name))


def _points(attempts: DataFrame, jobs: DataFrame, step: int) -> list[Point]:
    rows = interval_counts(attempts, jobs, "at", step, ()).collect()
    found = {_in_utc(row["at"]): row.asDict() for row in rows}
    points: list[Point] = []
    # Jobs without a stored `added` event were open before the first interval.
    still_open = jobs.where("added IS NULL").count()
    for at in _every(min(found), max(found), step):
        row = found.get(at, {})
        added, completed, failed, closed = (row.get(name, 0) for name in ("added", "completed", "failed", "closed"))
        still_open += added - closed
        wait, run = _read(row, "wait"), _read(row, "run")
        # If the clock was set back, a job may end before it was added.
        points.append(Point(at, added, completed, failed, max(still_open, 0), wait, run))
    return points


def _counts_by_state() -> list[Column]:
    return [
        *(count_of(F.col("state") == state).alias(state) for state in ("completed", "failed")),
        count_of(F.col("closed").isNull()).alias("open"),
    ]


def _every(first: datetime, last: datetime, step: int) -> Iterator[datetime]:
    """Yield the starts of all intervals, including those without events."""
    at = first
    while at <= last:
        yield at
        at += timedelta(seconds=step)


def _causes(attempts: DataFrame, jobs: DataFrame) -> list[Cause]:
    found = causes(attempts, jobs).groupBy("kind", "cause").agg(F.sum("n").alias("n")).collect()
    rows = [Cause(row["kind"], row["cause"] or UNKNOWN_NAME, row["n"]) for row in found]
    return sorted(rows, key=lambda each: (-each.n, each.kind, each.cause))


def _burns(jobs: DataFrame, slo: Slo) -> list[Burn]:
    names = [pair.name for pair in PAIRS]
    highest = (
        burn_rates(jobs, slo).groupBy("minute").agg(*(F.max(name).alias(name) for name in (*BURN_COLUMNS, *names)))
    )
    return [
        Burn(
            _in_utc(row["minute"]),
            tuple(row[column] for column in BURN_COLUMNS),
            tuple(name for name in names if row[name]),
        )
        for row in highest.sort("minute").collect()
    ]


def _campaigns(jobs: DataFrame) -> list[Campaign]:
    # The id of a replayed job is `replay:<campaign>:<original id>`. A campaign contains no colon, and an id may contain
    # some, so the split ends after three parts.
    name = F.split("job_id", ":", 3)[1]
    found = (
        jobs.where(F.col("job_id").startswith(f"{PREFIX}:"))
        .groupBy(name.alias("name"))
        .agg(F.count("*").alias("replayed"), *_counts_by_state())
    )
    return [Campaign(**row.asDict()) for row in found.sort("name").collect()]


def _read(row: Any, measure: str) -> Percentiles:
    if row is None:
        return Percentiles(None, None, None)
    values = cast("dict[str, Any]", row if isinstance(row, dict) else row.asDict())
    return Percentiles(*(values.get(f"{measure}_p{percent}") for percent in PERCENTS))


def _series(row: Any, by: Sequence[str]) -> tuple[str, ...]:
    return tuple(UNKNOWN_NAME if row[column] is None else row[column] for column in by)


def _in_utc(at: datetime) -> datetime:
    # Spark returns instants as local times of the session without a time zone.
    return at.astimezone(UTC)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else _in_utc(at)
