"""Waiting for the results of jobs: one reply channel per client and queue, and the record as the safety net.

A published answer can be lost, so each waiter also reads the record when the subscription (re)appears and every few
seconds, more often without a subscription. The server keeps the record for that until the channel confirms the answer;
one call carries the confirmations of `CONFIRM_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, TypeAlias

from glidemq_async.errors import JobNotFound, QueueClosed
from glidemq_async.functions.callers import Functions, Record
from glidemq_async.storage import Storage, Subscription

RECHECK_SECONDS: Final = 5.0
"""How often a waiter looks at the record by itself, in case a message was lost."""
FIRST_LOOK_SECONDS: Final = 0.05
"""Without a subscription: pause before the first look at the record. Each further pause is half as long again."""
SLOWEST_LOOK_SECONDS: Final = 1.0
"""Without a subscription: the longest pause between two looks at the record."""
GOODBYE_SECONDS: Final = 1.0
"""How long telling the server that nobody waits any more may take when the queue closes."""
CONFIRM_SECONDS: Final = 0.05
"""How long the receipt of an answer may wait for others, to be confirmed in one call."""
CONFIRM_MAX: Final = 500
"""Answers that one call confirms; this many do not wait."""
_EARLY: Final = 1_000
"""Answers that are kept for adds on their way; one that is dropped is read from the record."""

_log = logging.getLogger(__name__)


class Ended(NamedTuple):
    """How a job ended: its final state, and its stored result or error."""

    state: str
    payload: bytes
    reason: str


Waiter: TypeAlias = "asyncio.Future[Ended | None]"
"""Resolved with how a job ended, None when there is no such job."""


def _ended_of(state: str, record: Record) -> Ended:
    payload = record.get(b"result" if state == "completed" else b"error", b"")
    return Ended(state, payload, record.get(b"reason", b"").decode())


class ResultListener:
    """Everyone of one client who waits for jobs of one queue."""

    def __init__(self, storage: Storage, functions: Functions, name: str) -> None:
        self._storage = storage
        self._functions = functions
        self.channel = name
        self._waiters: dict[str, set[Waiter]] = {}
        # Answers that came before their waiter: add_and_wait learns the job's id only from the add's reply.
        # They are kept only while such an add is on its way.
        self._early: OrderedDict[str, Ended | None] = OrderedDict()
        self._expected = 0
        self._subscription: Subscription | None = None
        self._subscribing = asyncio.Lock()
        self._answered = asyncio.Event()
        self._subscribed = False
        self._errands: set[asyncio.Task[None]] = set()
        # Jobs whose answer has come and is not confirmed, and the timer that confirms them.
        self._received: list[str] = []
        self._confirming: asyncio.TimerHandle | None = None

    async def listen(self) -> None:
        """Subscribe if that has not happened yet, and wait until the server confirms or refuses it.

        A refused subscription is no error: waiters then poll the record.
        """
        if self._subscription is None:
            async with self._subscribing:
                if self._subscription is None:
                    self._subscription = await self._storage.subscribe(
                        self._functions.base,
                        f"{self._functions.base}:reply:{self.channel}",
                        self._on_message,
                        self._on_change,
                    )
        await self._answered.wait()

    async def close(self) -> None:
        """Stop listening; whoever still waits gets QueueClosed."""
        if self._subscription is not None:
            await self._subscription.close()
            self._subscription = None
        waited, self._waiters = self._waiters, {}
        for job_id, waiters in waited.items():
            self._send_out(self._functions.forget_reply(job_id, self.channel))
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(QueueClosed(f"waited for job {job_id!r}, found the queue closed meanwhile"))
                    waiter.exception()  # whoever waited may be gone
        self._confirm()
        if self._errands:
            _, late = await asyncio.wait(self._errands, timeout=GOODBYE_SECONDS)
            for errand in late:
                errand.cancel()

    def expect(self, job_id: str | None) -> None:
        """An add that asked for a reply is on its way; what came before for a job of its own id is of another job."""
        self._expected += 1
        if job_id is not None:
            self._early.pop(job_id, None)

    async def confirm_before(self, job_id: str | None) -> None:
        """Confirm an answer before its id is used again: its record would stand in the way of the new job."""
        if job_id is not None and job_id in self._received:
            received, self._received = self._received, []
            await self._functions.confirm_replies(self.channel, received)

    def arrived(self) -> None:
        """The add is answered, and whoever waits for its job has begun to wait."""
        self._expected -= 1
        if not self._expected:
            self._early.clear()

    def watch(self, job_id: str, *, asked: bool) -> Waiter:
        """Begin to wait for a job, at once; asked: its add already named our channel. Hand the waiter to `wait`."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        if asked and job_id in self._early:
            waiter.set_result(self._early.pop(job_id))
        self._waiters.setdefault(job_id, set()).add(waiter)
        return waiter

    async def wait(self, job_id: str, waiter: Waiter, *, asked: bool) -> Ended:
        """Wait until a watched job has ended. Raises JobNotFound, QueueClosed."""
        try:
            if not asked:
                await self._look(job_id)
            pause = FIRST_LOOK_SECONDS
            while not waiter.done():
                await asyncio.wait([waiter], timeout=RECHECK_SECONDS if self._subscribed else pause)
                pause = min(pause * 1.5, SLOWEST_LOOK_SECONDS)
                if not waiter.done():
                    await self._look(job_id)
            return self._found(job_id, waiter.result())
        finally:
            await self._leave(job_id, waiter)

    async def _leave(self, job_id: str, waiter: Waiter) -> None:
        waiters = self._waiters.get(job_id, set())
        waiters.discard(waiter)
        if waiters:
            return
        self._waiters.pop(job_id, None)
        if not waiter.done() or waiter.cancelled():
            # Nobody here waits any more: the server need not publish. Losing this call costs one message.
            self._send_out(self._functions.forget_reply(job_id, self.channel))

    def _send_out(self, errand: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for; waiters look at the record from time to time anyway."""
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errand_done)

    def _errand_done(self, task: asyncio.Task[None]) -> None:
        self._errands.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("an errand of the result listener failed: %s", error)

    async def _look(self, job_id: str) -> None:
        state, record = await self._functions.await_job(job_id, self.channel)
        if state == "missing":
            self._resolve(job_id, None)
        elif state != "waiting":
            self._receive(job_id, _ended_of(state, record))

    def _receive(self, job_id: str, ended: Ended) -> None:
        """Hand an answer to its waiters, and confirm it soon."""
        self._resolve(job_id, ended)
        self._received.append(job_id)
        if len(self._received) >= CONFIRM_MAX:
            self._confirm()
        elif self._confirming is None:
            self._confirming = asyncio.get_running_loop().call_later(CONFIRM_SECONDS, self._confirm)

    def _confirm(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
            self._confirming = None
        received, self._received = self._received, []
        if received:
            # Losing this call costs memory for a minute: the records stay until their hold ends.
            self._send_out(self._functions.confirm_replies(self.channel, received))

    @staticmethod
    def _found(job_id: str, ended: Ended | None) -> Ended:
        if ended is None:
            raise JobNotFound(
                f"asked for the result of job {job_id!r}, found no such job: it was removed, or its retention is over; "
                "keep results longer with keep_completed or result_ttl, or use add_and_wait, which waits from the start"
            )
        return ended

    def _resolve(self, job_id: str, ended: Ended | None) -> None:
        waiters = self._waiters.get(job_id)
        if waiters is None:
            if self._expected:
                self._early[job_id] = ended
                if len(self._early) > _EARLY:
                    self._early.popitem(last=False)
            return
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(ended)

    def _on_message(self, message: bytes) -> None:
        # "<state>[?] <id length> <id><payload>"; "?" = the payload is too large for a message, read the record.
        head, length, rest = message.split(b" ", 2)
        size = int(length)
        job_id = rest[:size].decode()
        state = head.decode()
        if state == "removed":
            self._resolve(job_id, None)
        elif state.endswith("?") or (state == "failed" and len(rest) == size):
            self._send_out(self._look(job_id))
        else:
            self._receive(job_id, Ended(state, rest[size:], ""))

    def _on_change(self, subscribed: bool) -> None:
        self._subscribed = subscribed
        self._answered.set()
        if subscribed and self._waiters:
            self._send_out(self._look_at_all())

    async def _look_at_all(self) -> None:
        for job_id in list(self._waiters):
            await self._look(job_id)
