"""Silver: a table of attempts and a table of jobs, computed from events only."""

# The order of a queue's events is the order of their `seq`, and not of their time: the server's clock may be set back.
# Each `added` event begins a job. If an id is added again after its job was removed, it is another job, and the column
# `life` distinguishes the two. Life 0 is a job whose `added` event was trimmed before it was read, so its name is
# unknown. Each `active` event begins an attempt. `drain` and `clean` write no event per removed job, so such jobs keep
# the state of their last event.

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.columns import count_of, elapsed_ms
from glidemq_async.stored.record import FINAL

JOB: Final = ("queue", "incarnation", "job_id", "life")
"""The columns that identify a job."""
ATTEMPT: Final = (*JOB, "attempt")
"""The columns that identify an attempt."""

ENDS: Final = (
    *("completed", "failed", "retrying", "delayed", "suspended", "returned", "limited", "stalled"),
    *("removed", "dropped"),
)
"""Events that end an attempt. Its outcome is the first of these after its `active` event."""

STATES: Final = {
    "added": "waiting",
    "waiting": "waiting",
    "returned": "waiting",
    "limited": "waiting",
    "stalled": "waiting",
    "delayed": "delayed",
    "waiting-children": "waiting-children",
    "suspended": "suspended",
    "active": "active",
    "completed": "completed",
    "failed": "failed",
    "dropped": "dropped",
}
"""The state after an event, for events that determine it alone."""
REVOKED: Final = "revoked"
"""The state of a revoked job, and the error class in its `failed` event. It counts as neither success nor failure."""
NOT_OF_JOBS: Final = (
    *("paused", "resumed", "key-paused", "key-resumed", "skipped", "duplicate", "signalled"),
    *("drained", "cleaned", "written", "obliterated", "lost"),
)
"""Events without a job id, or with the id of a job that they do not change."""

_COUNTED: Final = {"attempts": "active", "retries": "retrying", "stalls": "stalled"}
"""Columns of a job that count events."""


def attempts(events: DataFrame) -> DataFrame:
    """Return one row per attempt: the instants at which it was ready, started and ended, and its outcome.

    `wait_ms` is the time from `ready` (added, released, or the end of a delay) to `started`, and `run_ms` the time from
    there to `finished`. `outcome` is null while the attempt runs. Failed, retried and stalled attempts have an
    `error_class`.
    """
    ends = _is(*ENDS)
    grouped = (
        _steps(events)
        .groupBy(*ATTEMPT)
        .agg(
            *_job_columns(),
            _first("ts", ends).alias("finished"),
            _first("event", ends).alias("outcome"),
            _first("error_class", ends).alias("error_class"),
            _last("readiness").alias("readiness"),
        )
    )
    # The readiness after the previous attempt, or before the first one.
    ready = F.lag("readiness.at").over(Window.partitionBy(*JOB).orderBy("attempt"))
    stalled = F.col("outcome") == "stalled"
    return (
        grouped.withColumn("ready", F.when(ready > F.col("started"), F.col("started")).otherwise(ready))
        .where("attempt > 0")
        .withColumn("wait_ms", elapsed_ms("ready", "started"))
        .withColumn("run_ms", elapsed_ms("started", "finished"))
        .withColumn("error_class", F.when(stalled, "stalled").otherwise(F.col("error_class")))
        .select(
            *ATTEMPT,
            *("name", "key", "added", "ready", "started", "finished", "wait_ms", "run_ms", "outcome", "error_class"),
        )
    )


def jobs(events: DataFrame) -> DataFrame:
    """Return one row per job: its last state, its number of attempts, and the milliseconds from its add to its end.

    The state is null if no event determines it. A job that was open when its queue was obliterated is `obliterated`,
    and a revoked job is `revoked`. `closed` is the instant at which the job ended, was removed or was obliterated; it
    is null for open jobs. Failed and revoked jobs have `reason` and `error_class`. `dead_letter` is the dead-letter
    queue of the job.
    """
    grouped = (
        _steps(events)
        .groupBy(*JOB)
        .agg(
            *_job_columns(),
            _last("state").alias("state"),
            _last("ts", _is(*FINAL)).alias("finished"),
            _last("ts", _is("removed", "dropped")).alias("removed"),
            *(count_of(_is(event)).alias(name) for name, event in _COUNTED.items()),
            _last("reason", _is("failed")).alias("reason"),
            _last("error_class", _is("failed")).alias("error_class"),
            _last("detail", _is("dead-lettered")).alias("dead_letter"),
        )
    )
    state = F.col("state")
    ended, removed, failed = state.isin(*FINAL), state.isin("removed", "dropped"), state == "failed"
    # Jobs of an obliterated queue have no event of their end. A completed or removed job keeps its state.
    lost = F.col("gone").isNotNull() & ~F.coalesce(ended | removed, F.lit(False))
    # `withColumns` computes all of these from the previous columns.
    final = grouped.join(_gone(events), ["queue", "incarnation"]).withColumns(
        {
            "state": F.when(lost, "obliterated").when(failed & was_revoked(), REVOKED).otherwise(state),
            "closed": F.when(ended, F.coalesce("finished", "removed"))
            .when(removed, F.col("removed"))
            .otherwise(F.col("gone")),
            "finished": F.when(ended, F.col("finished")),
            **{name: F.when(failed, F.col(name)) for name in ("reason", "error_class", "dead_letter")},
        }
    )
    return final.withColumn("end_to_end_ms", elapsed_ms("added", "finished")).select(
        *JOB,
        *("name", "key", "state", "added", "started", "finished", "closed", "end_to_end_ms", *_COUNTED),
        *("reason", "error_class", "dead_letter"),
    )


def was_revoked() -> Column:
    """Return the condition for failures that are revocations."""
    return F.coalesce(F.col("error_class") == REVOKED, F.lit(False))


def _steps(events: DataFrame) -> DataFrame:
    """Return the events of jobs with life, attempt and columns of the job, and its state and readiness afterwards."""
    # Running sums number the lives of an id and the attempts of a life. They are exact because `seq` has no duplicates:
    # bronze contains each event once.
    ids = Window.partitionBy("queue", "incarnation", "job_id").orderBy("seq")
    whole = Window.partitionBy(*JOB)
    so_far = whole.orderBy("seq")
    is_added = _is("added")
    return (
        events.where(~_is(*NOT_OF_JOBS) & (F.col("job_id") != ""))
        .withColumn("life", F.sum(is_added.cast("int")).over(ids))
        .withColumn("attempt", F.sum(_is("active").cast("int")).over(so_far).cast("int"))
        .withColumn("job_name", F.max(F.when(is_added, F.col("name"))).over(whole))
        .withColumn("job_key", F.max(F.when(is_added, F.col("key"))).over(whole))
        .withColumn("job_added", F.min(F.when(is_added, F.col("ts"))).over(whole))
        .withColumn("state", _state_after())
        .withColumn("readiness", _readiness_after())
    )


def _state_after() -> Column:
    """Return the state of the job after an event; null means unchanged."""
    detail = F.col("detail")
    # Removing the record of an ended job does not change its final state.
    removed = F.when(detail.isin(*FINAL), detail).otherwise("removed")
    retrying = F.when(F.col("delay_ms") > 0, "delayed").otherwise("waiting")
    state = F.when(_is("retrying"), retrying).when(_is("removed"), removed).when(_is_delay_changed(), "delayed")
    for event, after in STATES.items():
        state = state.when(_is(event), after)
    return state


def _readiness_after() -> Column:
    """Return a struct whose `at` is the instant at which the job can start, or null until `waiting`.

    No struct: unchanged.
    """
    after_delay = F.timestamp_millis(F.unix_millis("ts") + F.coalesce(F.col("delay_ms"), F.lit(0)))
    at = F.when(_is("retrying", "limited"), after_delay).when(
        _is("added", "waiting", "returned", "stalled"), F.col("ts")
    )
    determines = _is("added", "waiting", "returned", "stalled", "retrying", "limited", "delayed") | _is_delay_changed()
    return F.when(determines, F.struct(at.alias("at")))


def _is_delay_changed() -> Column:
    """Return the condition for events that change the delay of a job."""
    return F.coalesce(_is("changed") & F.col("detail").startswith("delay "), F.lit(False))


def _is(*kinds: str) -> Column:
    return F.col("event").isin(*kinds)


def _job_columns() -> list[Column]:
    """Return the columns of the job in both tables, and its first start."""
    own = [F.max(f"job_{name}").alias(name) for name in ("name", "key", "added")]
    return [*own, F.min(F.when(_is("active"), F.col("ts"))).alias("started")]


def _first(column: str, where: Column) -> Column:
    """Return the value of a column at the first event that satisfies a condition."""
    return F.min_by(column, F.when(where, F.col("seq")))


def _last(column: str, where: Column | None = None) -> Column:
    """Return the value of a column at the last event that satisfies a condition, or at the last one with a value."""
    return F.max_by(column, F.when(F.col(column).isNotNull() if where is None else where, F.col("seq")))


def _gone(events: DataFrame) -> DataFrame:
    """Return each incarnation with the instant `gone` of its last event if it was obliterated, else null."""
    reported = F.max(_is("obliterated").cast("int")) == 1
    seen = events.groupBy("queue", "incarnation").agg(F.max("ts").alias("last"), reported.alias("reported"))
    # Numbers of different incarnations have no order, so the time decides.
    followed = F.row_number().over(Window.partitionBy("queue").orderBy(F.desc("last"))) > 1
    return seen.select("queue", "incarnation", F.when(followed | F.col("reported"), F.col("last")).alias("gone"))
