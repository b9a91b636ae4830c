"""Each change has one audit line, whether it succeeds or fails."""

from __future__ import annotations

import json

import pytest

from glidemq_async.errors import StorageUnavailable
from glidemq_async.functions.audit import AuditCalls
from glidemq_async.functions.job_history import JobHistoryCalls
from glidemq_async.ops import Actor, Ops, QueueNotFound
from glidemq_async.queues.listing import list_queues
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue


async def test_a_change_leaves_one_line(storage: Storage, queue: AnyQueue) -> None:
    await queue.connect()
    async with Ops(storage) as ops:
        bob = ops.acting_as(Actor("http", "bob", "10.0.0.9"))
        async with bob.changing("pause", queue.name, reason="storm", until=3) as change:
            change.count = 4
        with pytest.raises(ValueError, match="no such key"):
            async with bob.changing("pause_key", queue.name, "k"):
                raise ValueError("no such key")
        failed, done = (await ops.audit.read()).lines
    assert (done.actor, done.address, done.source, done.action, done.count) == ("bob", "10.0.0.9", "http", "pause", 4)
    assert (done.reason, done.result, dict(done.arguments)) == ("storm", "ok", {"until": 3})
    assert (failed.target, failed.result, failed.count) == ("k", "ValueError: no such key", 0)
    assert failed.at >= done.at


async def fail(*_: object) -> str:
    raise StorageUnavailable("the server is away")


async def test_no_change_is_made_without_a_line(
    storage: Storage, queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await queue.add("n", delay=60)
    monkeypatch.setattr(AuditCalls, "write", fail)
    async with Ops(storage) as ops:
        with pytest.raises(StorageUnavailable):
            await ops.promote(queue.name, job.id)
        assert (await ops.audit.read()).lines == []
    assert await job.get_state() == "delayed"


async def test_a_change_whose_result_is_lost_keeps_its_first_line(
    storage: Storage, queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = await queue.add("n", delay=60)
    monkeypatch.setattr(AuditCalls, "end", fail)
    async with Ops(storage) as ops:
        await ops.promote(queue.name, job.id)
        with pytest.raises(ValueError, match="no such key"):
            async with ops.changing("pause_key", queue.name, "k"):
                raise ValueError("no such key")
        refused, done = (await ops.audit.read()).lines
    assert (done.action, done.target, done.result, refused.result) == ("promote", job.id, "started", "started")
    assert await job.get_state() == "waiting"
    assert caplog.text.count("stays 'started' in the store: the server is away") == 2


async def test_a_change_stands_if_the_history_of_the_job_cannot_be_written(
    storage: Storage, queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await queue.add("n", delay=60)
    monkeypatch.setattr(JobHistoryCalls, "note_action", fail)
    async with Ops(storage) as ops:
        await ops.promote(queue.name, job.id)
        [line] = (await ops.audit.read()).lines
    assert (line.action, line.result) == ("promote", "ok")


async def test_lines_are_read_in_pages_and_exported(storage: Storage) -> None:
    async with Ops(storage) as ops:
        for number in range(5):
            async with ops.changing("note", target=str(number), text="x" * 20_000 if number == 2 else "short"):
                pass
        page = await ops.audit.read(2)
        rest = await ops.audit.read(200, page.cursor)
        assert [line.target for line in page.lines + rest.lines] == ["4", "3", "2", "1", "0"]
        assert rest.cursor is None
        assert rest.lines[0].arguments == {"left_out": "too large"}
        exported = [json.loads(text) async for text in ops.audit.export()]
    assert [line["target"] for line in exported] == ["4", "3", "2", "1", "0"]
    assert exported[0]["at"].endswith("Z")


async def test_looking_creates_no_queue(storage: Storage, queue: AnyQueue) -> None:
    await queue.connect()
    async with Ops(storage) as ops:
        assert (await ops.queue(queue.name)).name == queue.name
        with pytest.raises(QueueNotFound, match=f"did you mean '{queue.name}'"):
            await ops.queue(queue.name[:-1])
        assert await ops.queue_names() == [queue.name]
    assert await list_queues(storage, system=True) == [queue.name]


@pytest.mark.parametrize("source", ["", "Python", None])
def test_an_actor_names_its_face(source: object) -> None:
    with pytest.raises(ValueError, match="source must be one of"):
        Actor(source, "bob")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
