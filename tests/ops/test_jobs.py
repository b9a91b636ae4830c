"""Find jobs over all queues, look at one, and change one."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import Encryption, GlideMQ, JobNotFound, JobStateError, Queue, Schedule, generate_key
from glidemq_async.ops import Actor, Ops, QueueNotFound, connections
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.listing import list_queues
from glidemq_async.storage import Storage
from tests.ops.test_operations import failed_jobs
from tests.support.helpers import AnyQueue, echo, worker_of


async def test_a_search_covers_all_queues_in_pages(storage: Storage, queue: AnyQueue, name: str) -> None:
    async with Queue[Any, Any](f"{name}-b", storage) as other, Ops(storage) as ops:
        expected = {(queue.name, job.id) for job in await queue.add_bulk([("n", number) for number in range(7)])}
        expected |= {(other.name, job.id) for job in await other.add_bulk([("n", number) for number in range(6)])}
        await other.add("another")
        found: list[tuple[str, str]] = []
        cursor: str | None = None
        while True:
            page = await ops.find("name:n", limit=3, cursor=cursor)
            assert len(page.jobs) <= 3
            found += [(row.queue, row.id) for row in page.jobs]
            cursor = page.cursor
            if cursor is None:
                break
        assert len(found) == len(expected)
        assert set(found) == expected
        assert {row.queue for row in (await ops.find(f"queue:{other.name}")).jobs} == {other.name}
        with pytest.raises(QueueNotFound):
            await ops.find("queue:nowhere")
        with pytest.raises(ValueError, match="was not returned by a search"):
            await ops.find("", cursor="nonsense")


async def test_the_pages_of_a_search_read_the_list_of_queues_once(
    storage: Storage, queue: AnyQueue, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    async def listed(opened: Storage, *, prefix: str, system: bool) -> list[str]:
        read.append(prefix)
        return await list_queues(opened, prefix=prefix, system=system)

    monkeypatch.setattr(connections, "list_queues", listed)
    await queue.add_bulk([("n", number) for number in range(9)])
    async with Ops(storage) as ops:
        page = await ops.find("name:n", limit=3)
        while page.cursor is not None:
            page = await ops.find("name:n", limit=3, cursor=page.cursor)
        assert len(read) == 1
        async with Queue[Any, Any](f"{name}-new", storage) as new:
            await new.add("n")
            assert new.name in {row.queue for row in (await ops.find("name:n", limit=200)).jobs}


async def test_an_operator_who_looks_at_a_queue_fires_none_of_its_schedules(storage: Storage, queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("often", Schedule(every=3600), name="x")
    app: GlideMQ[Any] = GlideMQ(storage)
    async with Ops(storage) as ops, app, Ops.of(app) as other:
        for core in (ops, other):
            opened = await core.queue(queue.name)
            assert len(await opened.get_job_schedulers()) == 1
            assert client_of(opened).scheduler_runner.is_started is False
            assert opened is not app.queue(queue.name)
    assert client_of(queue).scheduler_runner.is_started


async def test_a_search_ends_a_page_early(storage: Storage, queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glidemq_async.ops.search.MOST_SEARCHED", 500)
    await queue.add_bulk([("n", number) for number in range(1_200)])
    await queue.add("last")
    async with Ops(storage) as ops:
        page = await ops.find("name:last")
        pages = 1
        while page.cursor and not page.jobs:
            assert page.searched >= 0
            page = await ops.find("name:last", cursor=page.cursor)
            pages += 1
        assert [row.name for row in page.jobs] == ["last"]
        assert pages > 1


async def test_a_job_is_shown_with_its_arguments(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name)

    @mq.task
    async def send(to: str, subject: str = "hi", *, urgent: bool = False) -> str:
        return to

    async with mq, Ops.of(mq) as ops:
        job = await send.add("ada@x", urgent=True)
        detail = await ops.job(name, job.id)
        assert detail.data == {"to": "ada@x", "urgent": True}
        await ops.edit_and_replay(name, job.id, data={"to": "bob@x", "subject": "again"})
        await mq.worker().run(until_empty=True)
        assert (await ops.job(name, job.id)).return_value == "bob@x"
        with pytest.raises(JobNotFound):
            await ops.job(name, "nothing")


async def test_a_retry_refuses_a_job_that_did_not_fail(storage: Storage, queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    await worker_of(queue, echo).run(until_empty=True)
    async with Ops(storage) as ops:
        with pytest.raises(JobStateError, match="the job is completed; only failed jobs are retried"):
            await ops.retry(queue.name, job.id)
        await ops.retry(queue.name, job.id, force=True, reason="once more")
        assert await job.get_state() == "waiting"
        forced, refused = (await ops.audit.read()).lines
    assert (forced.action, forced.target, forced.reason, forced.result) == ("retry", job.id, "once more", "ok")
    assert refused.result.startswith("JobStateError")


async def test_each_change_of_one_job_is_audited(storage: Storage, queue: AnyQueue, name: str) -> None:
    async with Queue[Any, Any](f"{name}-b", storage) as other, Ops(storage) as ops:
        await other.connect()
        job = await queue.add("n", 1)
        await ops.delay(queue.name, job.id, 60)
        await ops.promote(queue.name, job.id)
        await ops.change_priority(queue.name, job.id, 4)
        await ops.signal(queue.name, job.id, "go", {"secret": 1})
        await ops.move(queue.name, job.id, other.name)
        assert [row.queue for row in (await ops.find("name:n")).jobs] == [other.name]
        (moved,) = await other.get_jobs("prioritized")
        assert await ops.revoke(other.name, moved.id, reason="no need")
        await ops.delete(other.name, moved.id)
        with pytest.raises(ValueError, match="already"):
            await ops.move(queue.name, "1", queue.name)
        lines = (await ops.audit.read()).lines
    actions = ["delete", "revoke", "move", "signal", "change_priority", "promote", "delay"]
    assert [line.action for line in lines] == actions
    assert "secret" not in str(lines)


async def test_the_history_of_a_job_has_the_changes_of_operators(storage: Storage, queue: AnyQueue, name: str) -> None:
    async with Ops(storage, actor=Actor("http", "ada")) as ops:
        job = await queue.add("n", 1)
        await ops.delay(queue.name, job.id, 60, reason="later")
        await ops.promote(queue.name, job.id)
        await ops.change_priority(queue.name, job.id, 4)
        await ops.signal(queue.name, job.id, "go", {"secret": 1})
        await ops.update_data(queue.name, job.id, 2)
        with pytest.raises(JobStateError):
            await ops.retry(queue.name, job.id)
        await ops.revoke(queue.name, job.id)
        await ops.retry(queue.name, job.id, reason="fixed")
        await ops.edit_and_replay(queue.name, job.id, data=3)
        found = await ops.history(queue.name, job.id)
        await ops.delete(queue.name, job.id)
    actions = ["delay", "promote", "change_priority", "signal", "update_data", "revoke", "retry", "edit"]
    assert [entry.outcome for entry in found if entry.kind == "action"] == actions
    assert {entry.actor for entry in found if entry.kind == "action"} == {"ada (http)"}
    assert [entry.note for entry in found if entry.note] == ["later", "fixed"]
    assert "secret" not in str(found)
    assert await queue.check() == []


async def test_data_are_changed_by_the_names_of_arguments(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name)

    @mq.task
    async def send(to: str, subject: str = "hi") -> str:
        return f"{subject} {to}"

    async with mq, Ops.of(mq) as ops:
        job = await send.add("ada@x")
        await ops.update_data(name, job.id, {"to": "bob@x"})
        assert (await ops.job(name, job.id)).data == {"to": "bob@x"}
        with pytest.raises(TypeError, match="arguments by name"):
            await ops.update_data(name, job.id, "bob@x")
        await mq.worker().run(until_empty=True)
        assert (await ops.job(name, job.id)).return_value == "hi bob@x"


async def test_an_edit_restarts_a_failed_job_with_other_options(storage: Storage, queue: AnyQueue) -> None:
    (failed,) = await failed_jobs(queue, 1)
    async with Ops(storage) as ops:
        await ops.edit_and_replay(queue.name, failed, data="new", options={"attempts": 5})
    job = await queue.get_job(failed)
    assert job is not None
    assert (job.state, job.data, job.options.attempts) == ("waiting", "new", 5)


async def test_a_sealed_job_moves_with_its_seal(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name, codecs=[Encryption({"k1": generate_key()})])
    first, second = mq.queue(name), mq.queue(f"{name}-b")
    async with mq, Ops.of(mq) as ops, Ops(storage) as keyless:
        await second.connect()
        job = await first.add("n", {"pin": 1234})
        with pytest.raises(JobStateError, match="unreadable"):
            await keyless.move(name, job.id, second.name)
        await ops.move(name, job.id, second.name)
        (moved,) = await second.get_jobs("waiting")
        assert moved.data == {"pin": 1234}
