"""Bulk operations change the previewed jobs, each once, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import Encryption, FilterError, Queue, generate_key
from glidemq_async.ops import OperationNotFound, OperationRefused, Ops
from glidemq_async.storage import Storage
from tests.support.helpers import AnyJob, AnyQueue, echo, worker_of


async def fail(job: AnyJob) -> None:
    raise ValueError(f"no {job.data}")


async def failed_jobs(queue: AnyQueue, count: int) -> list[str]:
    jobs = await queue.add_bulk([("n", number) for number in range(count)])
    await worker_of(queue, fail, concurrency=20).run(until_empty=True)
    return [job.id for job in jobs]


async def test_a_retry_handles_the_previewed_jobs_only(storage: Storage, queue: AnyQueue) -> None:
    ids = await failed_jobs(queue, 30)
    waiting = await queue.add("n", "waits", delay=60)
    async with Ops(storage) as ops:
        preview = await ops.preview("retry", f"queue:{queue.name}", reason="fixed")
        assert (preview.count, dict(preview.refused), len(preview.sample)) == (31, {"state delayed": 1}, 5)
        later = await failed_jobs(queue, 3)
        gone = (await queue.get_jobs("failed", newest_first=False))[0]
        await gone.remove()
        async with ops.worker():
            started = await ops.start(preview.operation_id, preview.ticket)
            assert (await ops.start(preview.operation_id, preview.ticket)).started_at == started.started_at
            ended = await ops.wait_operation(preview.operation_id, 20)
        assert (ended.state, ended.done, dict(ended.refused)) == ("done", 29, {"state delayed": 1, "removed": 1})
        assert ended.done + sum(ended.refused.values()) == preview.count
        assert {job.id for job in await queue.get_jobs("failed")} == set(later)
        assert await waiting.get_state() == "delayed"
        retried = await queue.get_job_history(ids[-1])
        assert [(one.kind, one.outcome) for one in retried] == [("attempt", "failed"), ("action", "retry")]
        assert (retried[1].actor, retried[1].note) == (ops.actor.label, f"operation {preview.operation_id}: fixed")
        (line,) = (await ops.audit.read()).lines
        assert (line.action, line.count, line.reason, line.result) == ("retry", 31, "fixed", "ok")
        assert [one.id for one in await ops.operations()] == [preview.operation_id]


@pytest.mark.parametrize(
    ("action", "arguments", "state"),
    [
        ("cancel", {}, "failed"),
        ("promote", {}, "waiting"),
        ("delay", {"delay": 90}, "delayed"),
        ("delete", {}, None),
        ("edit", {"data": {"x": 9}}, "delayed"),
    ],
)
async def test_each_action_changes_the_jobs(
    storage: Storage, queue: AnyQueue, action: str, arguments: dict[str, Any], state: str | None
) -> None:
    jobs = await queue.add_bulk([("n", {"x": 1, "y": 2})] * 3)
    for job in jobs:
        await job.change_delay(60)
    async with Ops(storage) as ops, ops.worker():
        preview = await ops.preview(action, "state:delayed data.x:1", **arguments)
        await ops.start(preview.operation_id, preview.ticket, rate=1_000)
        ended = await ops.wait_operation(preview.operation_id, 20)
    assert (ended.done, dict(ended.refused)) == (3, {})
    found = [await queue.get_job(job.id) for job in jobs]
    assert [None if job is None else job.state for job in found] == [state] * 3
    if action == "edit":
        assert [job.data for job in found if job] == [{"x": 9, "y": 2}] * 3


async def test_a_move_puts_each_job_into_the_other_queue_once(storage: Storage, queue: AnyQueue, name: str) -> None:
    async with Queue[Any, Any](f"{name}-other", storage) as other, Ops(storage) as ops:
        await queue.add_bulk([("n", number) for number in range(40)])
        await queue.add("own", "mine", job_id="invoice-7", priority=3, attempts=4)
        await queue.add("later", 1, delay=60)
        preview = await ops.preview("move", f"queue:{queue.name}", to=other.name)
        await ops.start(preview.operation_id, preview.ticket)
        async with ops.worker():
            assert (await ops.wait_operation(preview.operation_id, 20)).done == 42
        assert sum((await queue.get_job_counts()).values()) == 0
        assert sorted(job.data for job in await other.get_jobs("waiting")) == list(range(40))
        moved = await other.get_job("invoice-7")
        assert moved is not None
        assert (moved.data, moved.priority, moved.options.attempts) == ("mine", 3, 4)
        (later,) = await other.get_jobs("delayed")
        assert later.due_at is not None
        with pytest.raises(OperationNotFound):
            await ops.operation("nothing")


async def test_a_cancelled_operation_counts_the_rest_as_not_reached(storage: Storage, queue: AnyQueue) -> None:
    await failed_jobs(queue, 40)
    async with Ops(storage) as ops, ops.worker():
        preview = await ops.preview("retry", "state:failed")
        with pytest.raises(OperationRefused, match="ticket"):
            await ops.start(preview.operation_id, "wrong")
        await ops.start(preview.operation_id, preview.ticket, rate=4)
        while (await ops.operation(preview.operation_id)).done == 0:  # noqa: ASYNC110 - another process may run it
            await asyncio.sleep(0.01)
        ended = await ops.cancel_operation(preview.operation_id, reason="enough")
        with pytest.raises(OperationRefused, match="cancelled"):
            await ops.cancel_operation(preview.operation_id)
    ended = await _settled(storage, ended.id)
    assert ended.state == "cancelled"
    assert 0 < ended.done < 40
    assert ended.done + sum(ended.refused.values()) == 40
    assert (await queue.get_job_counts())["waiting"] == ended.done


async def _settled(storage: Storage, operation_id: str) -> Any:
    async with Ops(storage) as ops:
        return await ops.operation(operation_id)


async def test_an_operation_stops_when_its_jobs_fail_again(storage: Storage, queue: AnyQueue) -> None:
    await failed_jobs(queue, 200)
    async with Ops(storage) as ops, ops.worker(), worker_of(queue, fail, concurrency=20):
        preview = await ops.preview("retry", "state:failed")
        await ops.start(preview.operation_id, preview.ticket, rate=200, stop_if_failing=0.3)
        ended = await ops.wait_operation(preview.operation_id, 20)
    assert ended.state == "stopped"
    assert "have failed again" in ended.stop_reason
    assert ended.done + sum(ended.refused.values()) == 200


async def test_a_new_runner_goes_on_with_the_watched_jobs(storage: Storage, queue: AnyQueue) -> None:
    # The first runner restarts 15 jobs, which fail again while no runner is there. The next one must not begin anew.
    await failed_jobs(queue, 60)
    async with Ops(storage) as ops:
        preview = await ops.preview("retry", "state:failed")
        await ops.start(preview.operation_id, preview.ticket, rate=20)
        worker = ops.worker()
        running = asyncio.create_task(worker.run())
        while (await ops.operation(preview.operation_id)).done < 15:  # noqa: ASYNC110 - the worker runs it
            await asyncio.sleep(0.01)
        worker.stop(immediately=True)
        await running
        before = (await ops.operation(preview.operation_id)).done
        await worker_of(queue, fail, concurrency=20).run(until_empty=True)
        async with ops.worker():
            ended = await ops.wait_operation(preview.operation_id, 20)
    assert (ended.state, ended.done) == ("stopped", before)
    assert "have failed again" in ended.stop_reason


async def test_a_queue_has_a_short_form(storage: Storage, queue: AnyQueue, name: str) -> None:
    async with Queue[Any, Any](f"{name}-b", storage) as other:
        await failed_jobs(other, 2)
        ids = await failed_jobs(queue, 5)
        operation = queue.operation("retry", "state:failed", reason="fixed")
        assert "retry" in repr(operation)
        with pytest.raises(RuntimeError, match="call preview"):
            await operation.start("ticket")
        preview = await operation.preview()
        assert (preview.count, {row.queue for row in preview.sample}) == (5, {queue.name})
        started = await operation.start(preview.ticket, rate=1_000)
        assert (started.id, started.state, started.reason) == (operation.id, "running", "fixed")
        assert (await operation.progress()).done == 0
        ended = await operation.run()
        assert (ended.state, ended.done, await operation.wait(5)) == ("done", 5, ended)
        assert {job.id for job in await queue.get_jobs("waiting")} == set(ids)
        assert (await other.get_job_counts())["failed"] == 2
        dropped = queue.operation("delete", "")
        await dropped.preview()
        assert (await dropped.cancel(reason="no")).state == "cancelled"
    with pytest.raises(FilterError):
        queue.operation("retry", "stat:failed")


async def test_the_short_form_uses_the_codecs_of_its_queue(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, codecs=[Encryption({"k": generate_key()})]) as queue:
        await queue.add("n", {"x": 1, "y": 2}, delay=60)
        operation = queue.operation("edit", "data.x:1", data={"x": 5})
        await operation.start((await operation.preview()).ticket)
        assert (await operation.run()).done == 1
        assert [job.data for job in await queue.get_jobs("delayed")] == [{"x": 5, "y": 2}]


async def test_a_queue_of_completed_jobs_runs_again_only_if_forced(storage: Storage, queue: AnyQueue) -> None:
    await queue.add("n", 1)
    await worker_of(queue, echo).run(until_empty=True)
    async with Ops(storage) as ops:
        assert dict((await ops.preview("retry", "")).refused) == {"state completed": 1}
        assert dict((await ops.preview("retry", "", force=True)).refused) == {}


@pytest.mark.parametrize(
    ("action", "arguments", "message"),
    [
        ("retri", {}, "did you mean 'retry'"),
        ("retry", {"to": "x"}, "has no argument 'to'"),
        ("move", {}, "needs the argument 'to'"),
        ("edit", {}, "needs the argument 'data' or 'options'"),
        ("edit", {"options": {"priority": 3}}, "cannot be edited"),
        ("delay", {"delay": -1}, "delay"),
    ],
)
async def test_bad_arguments_are_refused(
    storage: Storage, action: str, arguments: dict[str, Any], message: str
) -> None:
    async with Ops(storage) as ops:
        with pytest.raises((TypeError, ValueError), match=message):
            await ops.preview(action, "state:failed", **arguments)
