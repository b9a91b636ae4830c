"""What a report tells, as plain values: computed by Spark over silver, exact whatever the stretch of time."""

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
from glidemq_async.spark.pipeline.gold import causes, percentiles_of, whole_of
from glidemq_async.spark.pipeline.replay import PREFIX
from glidemq_async.spark.pipeline.slo import PAIRS, Slo

STRETCHES: Final = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400)
MOST_POINTS: Final = 150
NAMELESS: Final = "(unknown)"


class Spread(NamedTuple):
    """Percentiles in milliseconds; None where nothing was measured."""

    p50: int | None
    p95: int | None
    p99: int | None


class Point(NamedTuple):
    """One stretch of time: jobs added and ended in it, jobs that were open after it, and how long things took."""

    at: datetime
    added: int
    completed: int
    failed: int
    open: int
    wait: Spread
    run: Spread


class Cause(NamedTuple):
    """How often something led to a failure ("failed"), a retry ("retried"), …"""

    kind: str
    cause: str
    n: int


class Burn(NamedTuple):
    """The burn rates at a minute, of all windows in the order of BURN_COLUMNS: the highest of all queues."""

    at: datetime
    rates: tuple[float, ...]
    alerts: tuple[str, ...]


class NameRow(NamedTuple):
    """Everything about the jobs of one name.

    Those that were there before the first event that was read are not among the `added` ones. `open` ones have neither
    ended nor been removed.
    """

    queue: str
    name: str
    added: int
    completed: int
    failed: int
    open: int
    retries: int
    stalls: int
    wait: Spread
    run: Spread
    end_to_end: Spread


class Campaign(NamedTuple):
    """What came of the jobs that a campaign replayed; `open` ones have neither ended nor been removed."""

    name: str
    replayed: int
    completed: int
    failed: int
    open: int


@dataclass(frozen=True)
class Figures:
    """All that a report shows. Instants are UTC, durations milliseconds."""

    queues: tuple[str, ...]
    first: datetime
    last: datetime
    step: int
    """Seconds of one point."""
    total: NameRow
    points: tuple[Point, ...]
    causes: tuple[Cause, ...]
    burns: tuple[Burn, ...]
    names: tuple[NameRow, ...]
    campaigns: tuple[Campaign, ...]
    slo: Slo

    @property
    def seconds(self) -> float:
        """From the first thing that happened to the last."""
        return (self.last - self.first).total_seconds()


def figures(attempts: DataFrame, jobs: DataFrame, slo: Slo) -> Figures:
    """Compute a report's figures. Raises LookupError when there is no job of which anything is known."""
    first, last = _ends(attempts, jobs)
    if first is None or last is None:
        raise LookupError("there is no job to report on: add some, and run the pipeline again")
    step = step_of((last - first).total_seconds())
    names = _names(attempts, jobs, ["queue", "name"])
    return Figures(
        queues=tuple(sorted({row.queue for row in names})),
        first=first,
        last=last,
        step=step,
        total=_names(attempts, jobs, [])[0],
        points=tuple(_points(attempts, jobs, step)),
        causes=tuple(_causes(attempts, jobs)),
        burns=tuple(_burns(jobs, slo)),
        names=tuple(names),
        campaigns=tuple(_campaigns(jobs)),
        slo=slo,
    )


def step_of(seconds: float) -> int:
    """Return the shortest of the usual stretches that leaves no more points than a plot can show, or the longest."""
    return next((step for step in STRETCHES if seconds / step <= MOST_POINTS), STRETCHES[-1])


def _ends(attempts: DataFrame, jobs: DataFrame) -> tuple[datetime | None, datetime | None]:
    """The first and the last instant that jobs and attempts tell of."""
    instants = ("added", "started", "closed")
    seen = jobs.agg(F.min(F.least(*instants)), F.max(F.greatest(*instants))).collect()[0]
    ran = attempts.agg(F.max(F.greatest("started", "finished"))).collect()[0][0]
    last = max((each for each in (seen[1], ran) if each is not None), default=None)
    return _utc(seen[0]), _utc(last)


def _names(attempts: DataFrame, jobs: DataFrame, by: Sequence[str]) -> list[NameRow]:
    told = jobs.groupBy(*by).agg(
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

    return sorted(map(named, told.collect()), key=lambda each: (-each.added, each.queue, each.name))


def _points(attempts: DataFrame, jobs: DataFrame, step: int) -> list[Point]:
    rows = whole_of(attempts, jobs, "at", step, ()).collect()
    found = {_known(row["at"]): row.asDict() for row in rows}
    points: list[Point] = []
    # Jobs whose beginning was not seen were there before.
    still_open = jobs.where("added IS NULL").count()
    for at in _every(min(found), max(found), step):
        row = found.get(at, {})
        added, completed, failed, closed = (row.get(name, 0) for name in ("added", "completed", "failed", "closed"))
        still_open += added - closed
        wait, run = _read(row, "wait"), _read(row, "run")
        # A clock that was set back may close jobs before they were added.
        points.append(Point(at, added, completed, failed, max(still_open, 0), wait, run))
    return points


def _counts_by_state() -> list[Column]:
    return [
        *(count_of(F.col("state") == state).alias(state) for state in ("completed", "failed")),
        count_of(F.col("closed").isNull()).alias("open"),
    ]


def _every(first: datetime, last: datetime, step: int) -> Iterator[datetime]:
    """The starts of all stretches, those in which nothing happened among them."""
    at = first
    while at <= last:
        yield at
        at += timedelta(seconds=step)


def _causes(attempts: DataFrame, jobs: DataFrame) -> list[Cause]:
    found = causes(attempts, jobs).groupBy("kind", "cause").agg(F.sum("n").alias("n")).collect()
    rows = [Cause(row["kind"], row["cause"] or NAMELESS, row["n"]) for row in found]
    return sorted(rows, key=lambda each: (-each.n, each.kind, each.cause))


def _burns(jobs: DataFrame, slo: Slo) -> list[Burn]:
    names = [pair.name for pair in PAIRS]
    highest = (
        burn_rates(jobs, slo).groupBy("minute").agg(*(F.max(name).alias(name) for name in (*BURN_COLUMNS, *names)))
    )
    return [
        Burn(
            _known(row["minute"]),
            tuple(row[column] for column in BURN_COLUMNS),
            tuple(name for name in names if row[name]),
        )
        for row in highest.sort("minute").collect()
    ]


def _campaigns(jobs: DataFrame) -> list[Campaign]:
    name = F.split("job_id", ":", 3)[1]
    found = (
        jobs.where(F.col("job_id").startswith(f"{PREFIX}:"))
        .groupBy(name.alias("name"))
        .agg(F.count("*").alias("replayed"), *_counts_by_state())
    )
    return [Campaign(**row.asDict()) for row in found.sort("name").collect()]


def _read(row: Any, measure: str) -> Spread:
    if row is None:
        return Spread(None, None, None)
    values = cast("dict[str, Any]", row if isinstance(row, dict) else row.asDict())
    return Spread(*(values.get(f"{measure}_p{percent}") for percent in PERCENTS))


def _series(row: Any, by: Sequence[str]) -> tuple[str, ...]:
    return tuple(NAMELESS if row[column] is None else row[column] for column in by)


def _known(at: datetime) -> datetime:
    # Spark hands out instants in the session's time zone, without saying so.
    return at.astimezone(UTC)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else _known(at)
