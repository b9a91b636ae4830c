"""Ids of `foreach_batch`: no two jobs have the same id."""

from __future__ import annotations

import gc
import pickle
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from glidemq_async import JobOptions, Queue
from glidemq_async.spark import BatchJobs, foreach_batch


class Frame:
    """A fake micro-batch with the attributes that `foreach_batch` uses."""

    def __init__(self, query: str = "q", run: str = "r") -> None:
        self.sparkSession = self.sparkContext = self
        self._jsparkSession = self
        self._properties = {"sql.streaming.queryId": query, "spark.jobGroup.id": run}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._properties.get(name)


class Sink:
    """A fake queue that stores the ids of its jobs."""

    def __init__(self, name: str = "alerts") -> None:
        self.name, self.prefix = name, "glide"
        self.sync = self
        self.ids: list[str | None] = []

    def add_bulk(self, jobs: list[tuple[str, Any, JobOptions]]) -> None:
        self.ids += [options.job_id for _, _, options in jobs]


def of(sink: Sink, *ids: str | None, key: str | None = None) -> BatchJobs:
    """Return a function that adds a job for each id. None means a generated id."""
    jobs = [("n", 1, JobOptions(job_id=id_)) if id_ else ("n", 1) for id_ in ids]
    return foreach_batch(cast("Queue[Any, Any]", sink), lambda _frame, _batch: jobs, key=key)


def frame(query: str = "q", run: str = "r") -> Any:
    return Frame(query, run)


def test_ids_consist_of_key_batch_and_position() -> None:
    sink = Sink()
    of(sink, None, None, key="orders")(frame(run="ids"), 3)
    of(sink, None)(frame("query", "ids"), 4)
    assert sink.ids == ["orders:3", "orders:3:1", "query:4"]


def test_an_ambiguous_key_is_refused() -> None:
    with pytest.raises(ValueError, match="key must not contain ':'"):
        of(Sink(), key="a:1")


@pytest.mark.parametrize("key", [None, "same"])
def test_two_functions_with_the_same_ids_are_refused(key: str | None) -> None:
    sink = Sink()
    one, two = of(sink, None, key=key), of(sink, None, key=key)
    one(frame(run=f"two {key}"), 0)
    with pytest.raises(ValueError, match=r"two functions of foreach_batch.*key="):
        two(frame(run=f"two {key}"), 0)
    assert len(sink.ids) == 1


def test_two_functions_in_one_expression_are_refused() -> None:
    sink, micro_batch = Sink(), frame(run="line")
    of(sink, None)(micro_batch, 0)
    gc.collect()
    with pytest.raises(ValueError, match="two functions"):
        of(sink, None)(micro_batch, 0)


def test_functions_with_other_ids_are_accepted() -> None:
    sink, other = Sink(), Sink("others")
    for batch in range(3):  # a new function for each batch and each queue
        of(sink, None)(frame(), batch)
        of(other, None)(frame(), batch)
        of(sink, None, key="mine")(frame(), batch)
        of(sink, f"{batch}-a")(frame(), batch)
    again = of(sink, None)  # the query was started again
    again(frame(run="next"), 2)
    assert len(sink.ids) == 10


def nothing(_frame: object, _batch: int) -> None:
    """Build no jobs."""


def test_a_pickled_function_keeps_its_mark() -> None:
    one = foreach_batch("alerts", nothing, url="redis://nowhere")
    assert pickle.loads(pickle.dumps(one)).mark == one.mark
