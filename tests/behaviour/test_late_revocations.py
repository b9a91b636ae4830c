"""A revocation that reaches a worker late stops only the run that it names, never the next run of the same job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from glidemq_async import Queue
from glidemq_async.worker.leases import LeaseRenewer
from tests.support.helpers import PATIENCE, AnyJob, Gate, ended, idle, soon, until, worker_of
from tests.support.hooked_storage import HookedStorage

STOPS = (b"r ", b"x ")
"""The prefixes of the messages that ask a worker to stop a run."""


class Late(HookedStorage):
    """A storage whose subscription can delay the messages that stop a run."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__()
        self._holds_messages = hold
        self.held: list[Callable[[], None]] = []

    def deliver(self, message: bytes, on_message: Callable[[bytes], None]) -> None:
        if self._holds_messages and message.startswith(STOPS):
            self.held.append(lambda: on_message(message))
        else:
            on_message(message)


async def test_a_late_message_does_not_stop_the_next_run_of_its_job() -> None:
    gate = Gate()
    # A renewal, every third of a second, reports the revocation before the message does.
    async with (
        Late(hold=True) as storage,
        Queue[Any, Any]("q", storage) as queue,
        worker_of(queue, gate, lock_duration=1),
    ):
        await soon(storage.linked.wait())
        job = await queue.add("n", "done")
        await gate.running()
        await job.revoke()
        await gate.stopped()
        await ended(job)
        assert job.failed_reason == "revoked"
        await job.retry()
        again = await gate.running()
        (word,) = storage.held
        word()
        gate.release()
        assert await soon(job.result()) == "done"
        assert again.abort.reason == ""


async def test_a_late_reply_of_a_renewal_does_not_stop_the_next_run_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, ends, runs = asyncio.Event(), asyncio.Event(), asyncio.Queue[AnyJob]()
    answers: list[list[str]] = []

    def keep(renewer: LeaseRenewer, lost: list[str], revoked: list[str]) -> None:
        assert not lost
        if revoked:
            answers.append(revoked)

    async def stubborn(job: AnyJob) -> str:
        runs.put_nowait(job)
        try:
            await ends.wait()
        except asyncio.CancelledError:
            asked.set()
            await until(lambda: bool(answers))
            raise
        return "done"

    monkeypatch.setattr(LeaseRenewer, "_report_lost", keep)
    async with (
        Late(hold=False) as storage,
        Queue[Any, Any]("q", storage) as queue,
        worker_of(queue, stubborn, lock_duration=1) as worker,
    ):
        await soon(storage.linked.wait())
        job = await queue.add("n")
        first = await soon(runs.get())
        await job.revoke()
        await soon(asked.wait())
        await ended(job)
        assert first.abort.reason == "revoked"
        await job.retry()
        again = await soon(runs.get())
        # The reply of the renewal arrives in the worker's loop now.
        session = worker._session  # pyright: ignore[reportPrivateUsage]
        assert session is not None
        session.on_revoked(answers[0])
        ends.set()
        assert await soon(job.result()) == "done"
        assert again.abort.reason == ""


class SlowReplies(HookedStorage):
    """A storage that revokes a job between its claim on the server and the reply to the worker."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()
        self.wanted: AnyJob | None = None

    async def after_call(self, function: str, reply: object) -> None:
        if function == "settleAndClaim" and self.wanted is not None:
            job = self.wanted
            if await job.get_state() == "active":
                self.wanted = None
                await job.revoke()
                await self.heard.wait()

    def deliver(self, message: bytes, on_message: Callable[[bytes], None]) -> None:
        on_message(message)
        if message.startswith(STOPS):
            self.heard.set()


async def test_a_revocation_before_the_reply_to_the_claim_stops_the_run_at_once() -> None:
    async def slow(_: AnyJob) -> None:
        await asyncio.sleep(PATIENCE)

    # The next renewal in turn would come ten seconds later.
    async with (
        SlowReplies() as storage,
        Queue[Any, Any]("q", storage) as queue,
        worker_of(queue, slow, lock_duration=30) as worker,
    ):
        await idle(worker)
        await queue.pause()
        job = storage.wanted = await queue.add("n")
        await queue.resume()
        async with asyncio.timeout(5):
            await ended(job)
        assert job.failure_cause == "revoked"
        assert storage.wanted is None


class SlowClaims(HookedStorage):
    """A storage whose replies to claims with jobs wait until a message has asked the worker to stop a run."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed, self.stopped = asyncio.Event(), asyncio.Event()

    async def after_call(self, function: str, reply: object) -> None:
        if function == "settleAndClaim" and isinstance(reply, list) and cast("list[list[object]]", reply)[2]:
            self.claimed.set()
            await self.stopped.wait()

    def deliver(self, message: bytes, on_message: Callable[[bytes], None]) -> None:
        on_message(message)
        if message.startswith(STOPS):
            self.stopped.set()


@pytest.mark.parametrize("how", ["revoke", "remove"])
async def test_a_run_that_is_stopped_before_its_claim_arrives_never_starts(how: str) -> None:
    gate = Gate()
    async with SlowClaims() as storage, Queue[Any, Any]("q", storage) as queue:
        job = await queue.add("n", "never")
        async with worker_of(queue, gate):
            await soon(storage.linked.wait())
            await soon(storage.claimed.wait())
            await (job.revoke() if how == "revoke" else job.remove())
            last = await queue.add("n", "last")
            gate.release()
            assert await soon(last.result()) == "last"
        assert [gate.started.get_nowait().id, gate.started.empty()] == [last.id, True]
        counts = await queue.get_job_counts()
        assert (counts["failed"], counts["completed"]) == (1 if how == "revoke" else 0, 1)
        assert await queue.check() == []
