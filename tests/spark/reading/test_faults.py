"""A stream of events under faults: each event is read once or reported as lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.spark.reading.conftest import Source
from tests.spark.versions import needs_admission
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore


async def add(queue: AnyQueue, n: int) -> None:
    """Write n events in entries of at most ten."""
    for start in range(0, n, 10):
        await queue.add_bulk([("n", None)] * min(10, n - start))


def key_of(queue: AnyQueue) -> str:
    return f"glide:{{{queue.name}}}:events"


@pytest.mark.slow
@pytest.mark.parametrize("starting", ["latest", "earliest"])
@pytest.mark.parametrize("fault", ["before plan", "in read", "after sink", "after commit"])
async def test_a_first_batch_that_failed_anywhere_is_read_once(
    queue: AnyQueue, source: Source, tmp_path: Path, starting: str, fault: str
) -> None:
    await add(queue, 20)
    stream = source.stream(tmp_path, startingOffsets=starting, minPartitions=2)
    if starting == "earliest":
        first = 0
        stream.fault = fault
        query = stream.start()
        stream.break_down(query)
        stream.fault = ""
    else:
        first = 20
        with stream.live(fault) as query:
            await add(queue, 30)
            stream.break_down(query)
    await add(queue, 5)
    stream.run()
    await add(queue, 5)
    stream.run()
    assert stream.numbers() == list(range(first, 30 if starting == "earliest" else 60))


@needs_admission
async def test_an_uncommitted_batch_is_read_again_unchanged(queue: AnyQueue, source: Source, tmp_path: Path) -> None:
    await add(queue, 25)
    stream = source.stream(tmp_path, startingOffsets="earliest")
    stream.run(maxOffsetsPerTrigger=10)
    stream.forget_last_commit()
    await add(queue, 10)
    stream.run()
    assert stream.progress[0] == 5, "what came since is no part of it"
    assert stream.numbers() == list(range(35))


async def test_trimming_unread_events_is_reported_with_their_number(
    queue: AnyQueue, source: Source, server: RunningStore, tmp_path: Path
) -> None:
    stream = source.stream(tmp_path, startingOffsets="earliest", publishPosition="lake")
    await add(queue, 30)
    stream.run()
    await server.ask("XTRIM", key_of(queue), "MAXLEN", 1)  # only events that were read
    stream.run()
    await add(queue, 50)
    await server.ask("XTRIM", key_of(queue), "MAXLEN", 2)
    with pytest.raises(PySparkException, match=r"exactly 30 events of queue .* are lost, from number 30 on"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.numbers() == [*range(30), *range(60, 80)]
    (loss,) = source.read("losses").collect()
    assert (loss.reader, loss.first, loss.upto, loss.events) == ("lake", 30, 60, 30)
    await add(queue, 10)
    stream.run()
    (reader,) = source.read("readers").collect()
    assert (reader.reader, reader.n, reader.lag) == ("lake", 80, 10), "one batch behind"


@pytest.mark.slow
async def test_trimming_events_of_a_planned_batch_is_reported_with_their_number(
    queue: AnyQueue, source: Source, server: RunningStore, tmp_path: Path
) -> None:
    await add(queue, 40)
    stream = source.stream(tmp_path, startingOffsets="earliest")
    stream.fault = "in read"
    stream.break_down(stream.start())
    stream.fault = ""
    await server.ask("XTRIM", key_of(queue), "MAXLEN", 1)
    with pytest.raises(
        PySparkException, match=r"exactly 30 events of queue .* are lost, from number 0 on: they were trimmed while"
    ):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.numbers() == list(range(30, 40))
    assert [(loss.first, loss.events) for loss in source.read("losses").collect()] == [(0, 30)]


@pytest.mark.slow
async def test_a_recreated_queue_is_reported_and_read_from_its_start(
    queue: AnyQueue, source: Source, tmp_path: Path
) -> None:
    await add(queue, 20)
    stream = source.stream(tmp_path, startingOffsets="earliest")
    stream.run()
    await queue.obliterate()
    await add(queue, 7)
    with pytest.raises(PySparkException, match=r"unknown number of events .* recreated under the same name"):
        stream.run()
    stream.run(failOnDataLoss="false")
    rows = stream.rows()
    assert len({row.incarnation for row in rows}) == 2
    assert len({(row.incarnation, row.seq) for row in rows}) == len(rows) == 27
    assert [(loss.first, loss.events) for loss in source.read("losses").collect()] == [(20, None)]
