"""Replays add failed jobs to the queue again, each once per campaign, and their outcomes are counted."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glidemq_async import Queue, UnrecoverableError, Worker
from glidemq_async.spark.pipeline import Pipeline
from glidemq_async.spark.pipeline.replay import Selection, failed_jobs, outcomes, replay
from tests.spark.pipeline.queue import drain, fill
from tests.support.stores import RunningStore

FATES = ["", "fail", "retry", "", "fail", ""] * 4


async def ids(url: str) -> list[str]:
    async with Queue[str, str]("work", url) as queue:
        return sorted(job.id for job in await queue.get_jobs("waiting", 0, 100))


async def mend(url: str) -> None:
    async def handle(job: object) -> str:
        return "done"

    await Worker("work", handle, url, handle_signals=False).run(until_empty=True)


@pytest.mark.slow
@pytest.mark.parametrize("dead", [None, "dead"])
def test_a_campaign_replays_each_failed_job_once(
    spark: SparkSession, server: RunningStore, tmp_path: Path, dead: str | None
) -> None:
    url = server.url
    asyncio.run(fill(url, "work", FATES))
    asyncio.run(drain(url, "work", dead=dead))
    pipeline = Pipeline(spark, tmp_path / "lake")
    pipeline.ingest(url, ["work"])
    pipeline.refresh()
    chosen = Selection("work", error_classes=("UnrecoverableError",))

    def replay(*, dry_run: bool = False, version: int = 1) -> tuple[int, int, int | None]:
        found = pipeline.replay(chosen, "fix-1", url=url, dead_letters=dead, dry_run=dry_run, version=version)
        assert found.by_error == {"UnrecoverableError": 8}
        return found.selected, found.found, None if found.report is None else found.report.inserted

    assert replay(dry_run=True) == (8, 8, None)
    assert asyncio.run(ids(url)) == []
    assert replay() == (8, 8, 8)
    expected = sorted(f"replay:fix-1:j{number}" for number, fate in enumerate(FATES) if fate == "fail")
    assert asyncio.run(ids(url)) == expected
    # The same transaction has the same report. Another version finds that all ids exist.
    assert replay() == (8, 8, 8)
    assert replay(version=2) == (8, 8, 0)
    assert asyncio.run(ids(url)) == expected

    asyncio.run(mend(url))
    pipeline.ingest(url, ["work"])
    pipeline.refresh()
    came = {
        (row["replay_of"], row["state"], row["name"]) for row in outcomes(pipeline.table("jobs"), "fix-1").collect()
    }
    assert came == {
        (f"j{number}", "completed", ("mail", "resize")[number % 2])
        for number, fate in enumerate(FATES)
        if fate == "fail"
    }
    (campaign,) = pipeline.figures().campaigns
    assert campaign == ("fix-1", 8, 8, 0, 0)
    # A job with a completed replay is not replayed again.
    assert failed_jobs(pipeline.table("jobs"), chosen).count() == 0


@pytest.mark.slow
def test_a_selection_filters_names_errors_and_times(spark: SparkSession) -> None:
    def job(job_id: str, name: str, error: str | None, minute: int, state: str = "failed") -> tuple[object, ...]:
        return "work", job_id, 1, name, state, error, datetime(2026, 1, 1, 12, minute, tzinfo=UTC), None

    schema = (
        "queue string, job_id string, life int, name string, state string, error_class string, finished timestamp, "
        "added timestamp"
    )
    jobs = spark.createDataFrame(
        [
            job("a", "mail", "OSError", 1),
            job("b", "mail", "ValueError", 2),
            job("c", "resize", "OSError", 3),
            job("d", "mail", None, 4, "completed"),
            job("replay:x:e", "mail", "OSError", 5),
        ],
        schema,
    )

    def chosen(selection: Selection) -> set[str]:
        return {row["job_id"] for row in failed_jobs(jobs, selection).collect()}

    at = datetime(2026, 1, 1, 12, 2, tzinfo=UTC)
    assert chosen(Selection("work")) == {"a", "b", "c"}
    assert chosen(Selection("other")) == set()
    assert chosen(Selection("work", names=("mail",), error_classes=("OSError",))) == {"a"}
    assert chosen(Selection("work", since=at)) == {"b", "c"}
    assert chosen(Selection("work", until=at)) == {"a"}


def test_a_completed_replay_belongs_to_its_original_job(spark: SparkSession) -> None:
    long = "x" * 500
    digest = sha256(long.encode()).hexdigest()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    states = [
        ("work", "both", "failed"),
        ("other", "both", "failed"),
        ("other", "replay:c:both", "completed"),
        ("work", "here", "failed"),
        ("work", "replay:c:here", "completed"),
        ("work", "elsewhere", "failed"),
        ("other", "replay:c:elsewhere", "completed"),
        ("work", long, "failed"),
        ("work", f"replay:c:sha256:{digest}", "completed"),
        ("work", "again", "failed"),
        ("work", "replay:c:again", "failed"),
    ]
    jobs = spark.createDataFrame(
        [(queue, job_id, 1, state, at, at) for queue, job_id, state in states],
        "queue string, job_id string, life int, state string, finished timestamp, added timestamp",
    )
    assert {row["job_id"] for row in failed_jobs(jobs, Selection("work")).collect()} == {"both", "again"}
    assert {row["job_id"] for row in failed_jobs(jobs, Selection("other")).collect()} == set()


def test_a_replay_stores_the_same_bytes(spark: SparkSession, server: RunningStore, tmp_path: Path) -> None:
    """A payload is not converted to JSON, which has neither bytes nor instants."""
    url, data = server.url, {"raw": b"\x00\xff", "at": datetime(2026, 1, 1, tzinfo=UTC)}

    async def fail() -> str:
        async def handler(job: object) -> None:
            raise UnrecoverableError

        async with Queue[Any, Any]("work", url) as queue:
            job = await queue.add("n", data)
        await Worker("work", handler, url, handle_signals=False).run(until_empty=True)
        return job.id

    async def replayed(job_id: str) -> object:
        async with Queue[Any, Any]("work", url) as queue:
            job = await queue.get_job(f"replay:c:{job_id}")
        return job and job.data

    failed = asyncio.run(fail())
    at = datetime(2026, 1, 1, tzinfo=UTC)
    jobs = spark.createDataFrame(
        [("work", failed, 1, "n", "failed", None, at, at)],
        "queue string, job_id string, life int, name string, state string, error_class string, finished timestamp, "
        "added timestamp",
    )
    payloads = Pipeline(spark, tmp_path).payloads(url, "work")
    assert replay(jobs, payloads, Selection("work"), "c", url=url).found == 1
    assert asyncio.run(replayed(failed)) == data


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="since must have a time zone"):
        Selection("work", since=datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused
