"""Replay: select failed jobs in the lake and add them to a queue again, with the payloads that the queue still stores.

A replay is a new job with the id `replay:<campaign>:<original id>`. A campaign is one transaction of the writer, so
each job is replayed once even if the campaign runs several times.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.write.enqueue import Option, enqueue_frame
from glidemq_async.spark.write.report import WriteReport
from glidemq_async.stored.names import MAX_ID_BYTES, check_name

if TYPE_CHECKING:
    from pyspark.sql import Column

PREFIX: Final = "replay"


@dataclass(frozen=True)
class Selection:
    """A selection of failed jobs: of one queue, and optionally of some names, error classes and times.

    A job matches if it failed at or after `since` and before `until`.
    """

    queue: str
    names: tuple[str, ...] = ()
    error_classes: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name, value in (("since", self.since), ("until", self.until)):
            if value is not None and value.tzinfo is None:
                raise ValueError(f"{name} must have a time zone, got {value!r}")


@dataclass(frozen=True)
class Replay:
    """The result of a replay. `report` is None after a dry run."""

    campaign: str
    selected: int
    found: int
    """Number of selected jobs with a stored payload."""
    by_error: dict[str, int]
    report: WriteReport | None

    @property
    def missing(self) -> int:
        """Number of selected jobs without a payload, because the job was removed."""
        return self.selected - self.found


def failed_jobs(jobs: DataFrame, selection: Selection) -> DataFrame:
    """Return the selected jobs of silver whose last life has failed. Replays themselves are never selected.

    Jobs with a completed replay, of any campaign, are not selected either. A replay in another queue belongs to the job
    of that queue with this id if there is one, and otherwise to the job here.
    """
    # An id may have had several lives: a job that was removed and added again. Only the last one says whether the job
    # still needs a replay.
    newest = Window.partitionBy("queue", "job_id").orderBy(F.desc_nulls_last("added"), F.desc("life"))
    last = jobs.withColumn("age", F.row_number().over(newest)).where("age = 1").drop("age")
    wanted: list[Column] = [
        F.col("queue") == selection.queue,
        F.col("state") == "failed",
        ~F.col("job_id").startswith(f"{PREFIX}:"),
    ]
    if selection.names:
        wanted.append(F.col("name").isin(*selection.names))
    if selection.error_classes:
        wanted.append(F.col("error_class").isin(*selection.error_classes))
    if selection.since is not None:
        wanted.append(F.unix_millis("finished") >= _millis(selection.since))
    if selection.until is not None:
        wanted.append(F.unix_millis("finished") < _millis(selection.until))
    chosen = last.where(reduce(lambda a, b: a & b, wanted))
    replayed_ids = _completed_replays(jobs, selection.queue)
    for name in (F.col("job_id"), _digest()):
        chosen = chosen.join(replayed_ids, name == F.col("original"), "left_anti")
    return chosen


def _completed_replays(jobs: DataFrame, queue: str) -> DataFrame:
    """Return the ids, or digests of ids, of a queue's jobs with a completed replay, in the column `original`."""
    replayed = F.col("job_id").startswith(f"{PREFIX}:")
    done = jobs.where(replayed & (F.col("state") == "completed")).select(
        "queue", F.regexp_replace("job_id", f"^{PREFIX}:[^:]*:", "").alias("original")
    )
    others = jobs.where(~replayed & (F.col("queue") != queue))
    for name in (F.col("job_id"), _digest()):
        done = done.join(others.select("queue", name.alias("original")), ["queue", "original"], "left_anti")
    return done.select("original").distinct()


def _digest() -> Column:
    """Return the replacement of an id that would make the id of a replay too long."""
    return F.concat(F.lit("sha256:"), F.sha2("job_id", 256))


def replay(
    jobs: DataFrame,
    payloads: DataFrame,
    selection: Selection,
    campaign: str,
    *,
    url: str,
    queue: str | None = None,
    dry_run: bool = False,
    version: int = 1,
    options: Mapping[str, Option] | None = None,
) -> Replay:
    """Add the selected failed jobs to a queue (by default the original one), each once per campaign.

    `payloads` has the columns job_id, name and data: stored bytes, or JSON. A committed `version` of a campaign does
    nothing. A higher version adds later failures; the ids exclude jobs that were replayed before. `options` are the
    options of `enqueue_frame`. A replay is a new job and does not inherit options, so pass `opts` (`{"attempts": 3}`)
    again. With `dry_run` the jobs are only counted.

    Raises ValueError for a campaign name with a colon, and the errors of `enqueue_frame`.
    """
    check_name("campaign", campaign)
    chosen = failed_jobs(jobs, selection).select("job_id", "error_class", F.col("name").alias("event_name"))
    # A job may be in the queue and in the dead-letter queue. The two payloads are the same.
    kept = payloads.dropDuplicates(["job_id"])
    # The rows are cached, because they are counted and then written. Between two reads of the queue, jobs could be
    # removed, and the report would contradict itself.
    both = chosen.join(kept, "job_id", "left").cache()
    try:
        counts = both.groupBy(F.coalesce("error_class", F.lit("")).alias("error")).agg(
            F.count("*").alias("n"), F.count("data").alias("found")
        )
        counted = counts.sort(F.desc("n"), "error").collect()
        by_error = {row["error"]: row["n"] for row in counted}
        selected, found = sum(by_error.values()), sum(row["found"] for row in counted)
        report = None
        if not dry_run and found:
            # The transaction contains the source queue, because the same campaign may replay several queues into one
            # target.
            transaction = f"{PREFIX}:{campaign}:{selection.queue}"
            given = {"txn_app_id": transaction, "txn_version": version, "id_mode": "column", **(options or {})}
            frame = _replays(both.where("data IS NOT NULL"), campaign)
            report = enqueue_frame(frame, queue or selection.queue, url=url, **given)
        return Replay(campaign, selected, found, by_error, report)
    finally:
        both.unpersist()


def outcomes(jobs: DataFrame, campaign: str) -> DataFrame:
    """Return a row for each job that the campaign replayed: its queue, its original id, and its state."""
    start = f"{PREFIX}:{check_name('campaign', campaign)}:"
    return jobs.where(F.col("job_id").startswith(start)).select(
        "queue",
        F.expr(f"substring(job_id, {len(start) + 1})").alias("replay_of"),
        *("job_id", "name", "state", "attempts", "error_class", "end_to_end_ms"),
    )


def _replays(rows: DataFrame, campaign: str) -> DataFrame:
    """Return the jobs to add for the selected jobs."""
    start = f"{PREFIX}:{campaign}:"
    made = F.concat(F.lit(start), F.col("job_id"))
    # An id that would be too long is replaced by its digest.
    short = F.concat(F.lit(start), _digest())
    return rows.select(
        F.when(F.octet_length(made) <= MAX_ID_BYTES, made).otherwise(short).alias("id"),
        F.coalesce("name", "event_name").alias("name"),
        "data",
    )


def _millis(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)
