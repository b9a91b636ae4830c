"""Silver: one row for each attempt, and one for each job, derived from events alone."""

# The order of a queue's events is their `seq`, never their time. Each `added` begins a job: an id that is added again
# after its job was removed is another one, told apart by `life` (0: its `added` was trimmed before it was read, and its
# name is unknown). Each `active` begins an attempt. `drain` and `clean` tell no event for each job they remove: such
# jobs stay in the last state that was told.

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.columns import count_of, elapsed_ms
from glidemq_async.stored.record import FINAL

JOB: Final = ("queue", "incarnation", "job_id", "life")
"""The columns that name a job."""
ATTEMPT: Final = (*JOB, "attempt")
"""The columns that name an attempt."""

ENDS: Final = (
    *("completed", "failed", "retrying", "delayed", "returned", "limited", "stalled"),
    *("removed", "dropped"),
)
"""Events that end an attempt: its outcome is the first of these after its `active`."""

STATES: Final = {
    "added": "waiting",
    "waiting": "waiting",
    "returned": "waiting",
    "limited": "waiting",
    "stalled": "waiting",
    "delayed": "delayed",
    "active": "active",
    "completed": "completed",
    "failed": "failed",
    "dropped": "dropped",
}
"""The state after an event, where the event alone tells it."""
REVOKED: Final = "revoked"
"""State of a job that a user revoked, and the reason in its `failed` event. It is neither a success nor a failure."""
NOT_OF_JOBS: Final = (
    *("paused", "resumed", "key-paused", "key-resumed", "skipped", "duplicate"),
    *("drained", "cleaned", "written", "obliterated"),
)
"""Events that have no id of a job, or that of one that nothing happened to."""

_COUNTED: Final = {"attempts": "active", "retries": "retrying", "stalls": "stalled"}
"""Columns of a job by the events that they count."""


def attempts(events: DataFrame) -> DataFrame:
    """Return one row per attempt: when it could start, started and ended, and how it ended.

    `wait_ms` is from `ready` (added, a delay or a retry over, handed back) to `started`, `run_ms` from there to
    `finished`; `outcome` is null while it runs; `error_class` is that of a failed, retried or stalled attempt.
    """
    ends = _is(*ENDS)
    grouped = (
        _steps(events)
        .groupBy(*ATTEMPT)
        .agg(
            *_own_columns(),
            _first("ts", ends).alias("finished"),
            _first("event", ends).alias("outcome"),
            _first("error_class", ends).alias("error_class"),
            _last("readiness").alias("readiness"),
        )
    )
    # What the attempt before left behind, or what came before the first one.
    told = F.lag("readiness.at").over(Window.partitionBy(*JOB).orderBy("attempt"))
    stalled = F.col("outcome") == "stalled"
    return (
        grouped.withColumn("ready", F.when(told > F.col("started"), F.col("started")).otherwise(told))
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
    """Return one row per job: its last state, how many attempts it took, and milliseconds from added to its end.

    A job that was open when its queue was obliterated is `obliterated`, one that a user revoked is `revoked`. `closed`
    is when it ended or was removed, or its queue was obliterated; null: it is open. `reason` and `error_class` are
    those of a failed or revoked job; `dead_letter` is the queue that it went to. The state is null when nothing that
    tells it was read.
    """
    grouped = (
        _steps(events)
        .groupBy(*JOB)
        .agg(
            *_own_columns(),
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
    lost = F.col("gone").isNotNull() & ~F.coalesce(ended | removed, F.lit(False))
    # All of them are computed from the columns as they were before.
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
    """Return whether a failure is the end of a job that a user revoked."""
    return F.coalesce(F.col("error_class") == REVOKED, F.lit(False))


def _steps(events: DataFrame) -> DataFrame:
    """The events of jobs, each with its life and attempt, the job's own columns, its state and readiness after it."""
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
    """The job's state after an event; null: as before."""
    detail = F.col("detail")
    # The record of a job that has ended may go: how it ended stays true.
    removed = F.when(detail.isin(*FINAL), detail).otherwise("removed")
    retrying = F.when(F.col("delay_ms") > 0, "delayed").otherwise("waiting")
    state = F.when(_is("retrying"), retrying).when(_is("removed"), removed).when(_put_off(), "delayed")
    for event, after in STATES.items():
        state = state.when(_is(event), after)
    return state


def _readiness_after() -> Column:
    """When the job can start, as `at` of a struct: null, a `waiting` will tell. No struct: as before."""
    after_delay = F.timestamp_millis(F.unix_millis("ts") + F.coalesce(F.col("delay_ms"), F.lit(0)))
    at = F.when(_is("retrying", "limited"), after_delay).when(
        _is("added", "waiting", "returned", "stalled"), F.col("ts")
    )
    tells = _is("added", "waiting", "returned", "stalled", "retrying", "limited", "delayed") | _put_off()
    return F.when(tells, F.struct(at.alias("at")))


def _put_off() -> Column:
    """Whether a job was given another time to wait for."""
    return F.coalesce(_is("changed") & F.col("detail").startswith("delay "), F.lit(False))


def _is(*kinds: str) -> Column:
    return F.col("event").isin(*kinds)


def _own_columns() -> list[Column]:
    """What job and attempt tell of the job, and when it first started."""
    own = [F.max(f"job_{name}").alias(name) for name in ("name", "key", "added")]
    return [*own, F.min(F.when(_is("active"), F.col("ts"))).alias("started")]


def _first(column: str, where: Column) -> Column:
    """The column's value at the first event that is so."""
    return F.min_by(column, F.when(where, F.col("seq")))


def _last(column: str, where: Column | None = None) -> Column:
    """The column's value at the last event that is so, or that has one."""
    return F.max_by(column, F.when(F.col(column).isNotNull() if where is None else where, F.col("seq")))


def _gone(events: DataFrame) -> DataFrame:
    """Each incarnation and its last instant, `gone`, if another one of the same name followed or it told its end."""
    told = F.max(_is("obliterated").cast("int")) == 1
    seen = events.groupBy("queue", "incarnation").agg(F.max("ts").alias("last"), told.alias("told"))
    # The numbers of two incarnations have no order, so that time must do.
    followed = F.row_number().over(Window.partitionBy("queue").orderBy(F.desc("last"))) > 1
    return seen.select("queue", "incarnation", F.when(followed | F.col("told"), F.col("last")).alias("gone"))
