"""Events of a queue as a table and as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from glidemq_async import Queue
from tests.spark.reading.conftest import Source
from tests.spark.versions import needs_admission
from tests.support.helpers import AnyJob, AnyQueue, ended, worker_of
from tests.support.stores import RunningStore


async def test_the_stored_events_are_a_table(queue: AnyQueue, source: Source) -> None:
    await queue.add("mail", {"to": 1})
    job = await queue.add("mail", {"to": 2}, key="k", delay=60)
    rows = source.read().orderBy("seq").collect()
    assert [(row.seq, row.event, row.job_id, row.name, row.key, row.detail) for row in rows] == [
        (0, "added", "1", "mail", None, "mail"),
        (1, "added", job.id, "mail", "k", "mail"),
        (2, "delayed", job.id, None, None, None),
    ]
    assert {(row.queue, row.v) for row in rows} == {(queue.name, 1)}
    assert len({row.incarnation for row in rows}) == 1
    assert rows[0].incarnation


async def test_events_have_the_content_that_the_rules_ask_for(queue: AnyQueue, source: Source) -> None:
    async def work(job: AnyJob) -> Any:
        await job.update_progress({"done": 1})
        return [1, 2]

    await queue.set_events(content="value", off=("added", "active"))
    async with worker_of(queue, work):
        await ended(await queue.add("mail", key="k"))
    rows = source.read().orderBy("seq").collect()
    assert [(row.event, row.name, row.key, row.size, row.value) for row in rows] == [
        ("progress", "mail", "k", None, '{"done": 1}'),
        ("completed", "mail", "k", 3, "[1, 2]"),
    ]


@needs_admission
async def test_a_stream_continues_where_it_stopped(queue: AnyQueue, source: Source, tmp_path: Path) -> None:
    stream = source.stream(tmp_path, startingOffsets="earliest")
    await queue.add_bulk([("n", i) for i in range(250)])
    stream.run(maxOffsetsPerTrigger=100)
    assert [rows for rows in stream.progress if rows] == [100, 100, 50]
    await queue.add_bulk([("n", i) for i in range(30)])
    stream.run()
    assert stream.numbers() == list(range(280))


async def test_a_range_is_selected_by_numbers_offsets_and_times(queue: AnyQueue, source: Source) -> None:
    await queue.add_bulk([("n", i) for i in range(10)])
    await queue.add_bulk([("n", i) for i in range(10)])
    rows = source.read().orderBy("seq").collect()
    name = queue.name

    def numbers(**options: object) -> list[int]:
        return sorted(row.seq for row in source.read(**options).collect())

    assert numbers(startingOffsets=f'{{"{name}": 4}}', endingOffsets=f'{{"{name}": 13}}') == list(range(4, 13))
    assert numbers(startingOffsets=f'{{"{name}": "{rows[12].offset}"}}') == list(range(12, 20))
    assert numbers(startingOffsets="latest") == []
    assert numbers(startingOffsets=f'{{"{name}": 9}}', endingOffsets=f'{{"{name}": 3}}') == []
    middle = rows[10].offset.partition("-")[0]
    later = numbers(startingTimestamp=middle)
    assert later == list(range(20)) if rows[0].offset.startswith(middle) else list(range(10, 20))
    assert numbers(endingTimestamp=2**42) == list(range(20))
    assert numbers(minPartitions=3, fetchSize=1) == list(range(20))
    assert source.read(minPartitions=3).rdd.getNumPartitions() == 3
    assert source.read(events="removed,completed").collect() == []


async def test_an_unknown_queue_is_an_error(queue: AnyQueue, source: Source) -> None:
    await queue.add("n")
    with pytest.raises(Exception, match="there is no queue 'nobody' with prefix 'glide'"):
        source.read(subscribe=f"{queue.name},nobody").collect()


@pytest.mark.slow
async def test_a_pattern_finds_queues_that_are_created_later(
    queue: AnyQueue, source: Source, server: RunningStore, tmp_path: Path
) -> None:
    await queue.add("n")
    stream = source.stream(tmp_path, subscribe="", subscribePattern=f"{queue.name}*", startingOffsets="latest")
    stream.run()
    async with Queue[object, object](f"{queue.name}-b", server.url) as other:
        await other.add("m")
        await queue.add("n")
        stream.run()
        await queue.add("n")
        stream.run()
        found = [(row.queue, row.seq) for row in stream.rows()]
        assert found[-1] == (other.name, 0)
        assert {one for one in found if one[0] == queue.name} >= {(queue.name, 2)}
        assert len(found) == len(set(found))
        await other.obliterate()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxOffsets": 5}, "the option 'maxoffsets' does not exist"),
        ({"startingOffsets": "first"}, "startingOffsets must be JSON"),
        ({"startingOffsets": '{"other": 5}'}, "queue 'other', which is not read"),
        ({"subscribePattern": "*"}, "exactly one of subscribe"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
    ],
)
async def test_wrong_options_are_refused(source: Source, options: dict[str, object], words: str) -> None:
    with pytest.raises(PySparkException, match=words):
        source.read(**options).collect()
