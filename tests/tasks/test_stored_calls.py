"""Every form of a stored call runs the function with the same arguments, in the first run of a worker and later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobFailed, JsonSerializer
from glidemq_async.storage import Storage
from tests.support.helpers import idle

SEEN: list[tuple[Any, ...]] = []
CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    ({"a": [], "k": {"first": 1, "last": 2}}, (1, 2)),
    ({"a": [1, 2], "k": {}}, (1, 2)),
    ({"a": [1], "k": {"last": 2}}, (1, 2)),
    ({"k": {"last": 2}, "a": [1]}, (1, 2)),
    ({"a": [1]}, (1, None)),
    ({"k": {"first": 1}}, (1, None)),
    # Values that look like the start or the end of a call.
    ({"a": [{"a": [], "k": {}}], "k": {}}, ({"a": [], "k": {}}, None)),
    ({"a": [1], "k": {"last": {"k": {}}}}, (1, {"k": {}})),
    ({"a": [], "k": {"first": {"k": {}}}}, ({"k": {}}, None)),
    ({"a": [["a"], {}], "k": {}}, (["a"], {})),
]
NO_CALLS: list[tuple[Any, str]] = [
    ({"a": [], "k": {}}, "missing a required argument: 'first'"),
    ({"a": [], "k": {"other": 1}}, "missing a required argument: 'first'"),
    ({"a": [1, 2, 3], "k": {}}, "too many positional arguments"),
    ({"a": [], "k": []}, "must be a call"),
    ({"a": [], "k": 5}, "must be a call"),
    ({"a": "text", "k": {}}, "must be a call"),
    ({"a": 5, "k": {}}, "must be a call"),
    ({"a": {"first": 1}, "k": {}}, "must be a call"),
    ({"x": [1], "k": {}}, "must be a call"),
    ([1], "must be a call"),
    ("text", "must be a call"),
]


class _Unhashable(type):
    """A metaclass that leads to a TypeError where the type of an argument is looked up."""

    __hash__ = None  # type: ignore[assignment]


class Odd(metaclass=_Unhashable):
    """A type whose values cannot be converted."""


@pytest.fixture(params=["msgpack", "JSON"])
async def mq(storage: Storage, name: str, request: pytest.FixtureRequest) -> AsyncIterator[GlideMQ]:
    serializer = JsonSerializer() if request.param == "JSON" else None
    async with GlideMQ(storage, queue=name, serializer=serializer) as opened:
        SEEN.clear()
        yield opened


async def note(first: Any, last: Any = None) -> None:
    SEEN.append((first, last))


async def test_every_form_of_a_call_passes_the_same_arguments(mq: GlideMQ) -> None:
    task = mq.task(name="note")(note)
    for data, _ in CALLS * 2:
        await mq.queue(task.queue).add("note", data)
    await mq.worker(concurrency=1, handle_signals=False).run(until_empty=True)
    assert [seen for seen, _ in zip(SEEN, CALLS * 2, strict=True)] == [wanted for _, wanted in CALLS * 2]


async def test_data_that_is_no_call_fails_for_its_reason(mq: GlideMQ) -> None:
    task = mq.task(name="note")(note)
    await task.add(1)  # the first run decides how the next ones are called
    jobs = [await mq.queue(task.queue).add("note", data) for data, _ in NO_CALLS]
    async with mq.worker(concurrency=1, handle_signals=False):
        for job, (_, words) in zip(jobs, NO_CALLS, strict=True):
            with pytest.raises(JobFailed, match=words):
                await job.result(10)
    assert SEEN == [(1, None)]


async def test_a_task_whose_annotation_cannot_be_read_fails_each_of_its_jobs(mq: GlideMQ) -> None:
    queue = mq.queue(mq.task(name="note")(note).queue)

    async def odd(_value: Odd) -> None: ...

    call: Any = {"a": [1], "k": {}}
    async with mq.worker(concurrency=1, handle_signals=False) as app_worker:
        [worker] = app_worker.workers
        mq.task(name="odd")(odd)  # the worker reads the annotations of all tasks that it knows at its start
        for _ in range(3):
            await idle(worker)  # so that adds push the jobs
            with pytest.raises(JobFailed, match="unhashable type"):
                await (await queue.add("odd", call)).result(10)
        jobs = await queue.add_bulk([("odd", call)] * 3)
        for job in jobs:
            with pytest.raises(JobFailed, match="unhashable type"):
                await job.result(10)
    assert worker.broken is None
