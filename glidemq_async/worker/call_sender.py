"""Sends the calls of the claim loop, each until the server replies."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import StorageUnavailable
from glidemq_async.functions.settle import SettleReply, SettleRequest
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.storage.redis.retry import RetryPauses
from glidemq_async.worker.reports import Reports

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
"""First and longest pause in seconds between two attempts of a call that the server refuses each time."""
STOPPING_PAUSE: Final = 1.0
"""Longest pause in seconds once the worker stops."""


class CallSender:
    """Sends one settle and claim call at a time, and repeats it while the server does not reply."""

    def __init__(self, client: QueueClient, reports: Reports) -> None:
        self._client = client
        self.settle = client.functions.settle
        self._reports = reports
        self._stop_requested = asyncio.Event()
        self.sent_at = 0.0
        """Loop time at which the last answered call was sent. That call saw every job that was due by then."""
        self.last_reply = 0.0
        """Loop time of the last reply."""
        self.last_attempt = 0.0
        """Loop time at which a call was last sent, including repeated attempts."""
        self.waiting_since = 0.0
        """Loop time at which the unanswered call was first sent, 0 if no call is in flight."""
        self.answered = 0
        """Number of the last call that has a reply; 0 while the server may lack one of the worker's claims."""
        self.in_transit = 0
        """Number of the call in flight during its first attempt, otherwise 0.

        An attempt fails when the connection makes no progress. So while it lasts, bytes of the reply keep arriving, or
        have done so a moment ago."""

    def shorten_pauses(self) -> None:
        """Pause only briefly from now on, because the worker stops."""
        self._stop_requested.set()

    async def send(self, request: SettleRequest) -> SettleReply:
        """Send the call until the server replies. Raises FunctionError for a call that the server refuses.

        Suppose the reply is lost. The server has settled our outcomes and claimed jobs for us, and we know neither. A
        new call would claim other jobs while the first ones wait for their leases to expire. So the same request is
        sent again, with the same number. If the server has executed this number, it returns the stored reply instead of
        executing it again; the jobs in that reply are read again if they are still ours. Nothing here gives up, not
        even when the worker stops: only the end of the session ends the attempts, and then the sweep of another worker
        reclaims the jobs.
        """
        # A call that succeeds immediately costs one frame and no object here. A worker with one slot makes a call for
        # each job.
        loop = asyncio.get_running_loop()
        self.last_attempt = sent_at = loop.time()
        self.waiting_since = self.waiting_since or sent_at
        self.in_transit = request.number
        try:
            reply = await self.settle.send(request)
        except (StorageUnavailable, FunctionError) as error:
            reply = await self._repeat(request, error)
        finally:
            self.in_transit = 0
        self.answered = 0 if reply.is_broken else request.number
        self.last_reply = loop.time()
        self.sent_at, self.waiting_since = sent_at, 0.0
        return reply

    async def _repeat(self, request: SettleRequest, error: Exception) -> SettleReply:
        """Repeat a call whose first attempt has failed with this error."""
        loop = asyncio.get_running_loop()
        backoff = RetryPauses(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            started = self.last_attempt
            problem = await self._cause_left(request, error)
            if problem is not None:
                self.in_transit = 0
                # Count from the start of the attempt. A refusal returns immediately and needs the whole pause; an
                # outage has already taken its time.
                pause = max(0.0, started + backoff.next() - loop.time())
                self._reports.failed_try(problem, pause)
                await self._pause(pause)
            self.last_attempt = loop.time()
            try:
                return await self.settle.send(request)
            except (StorageUnavailable, FunctionError) as failed:
                error = failed

    async def _cause_left(self, request: SettleRequest, error: Exception) -> Exception | None:
        """Return why the next attempt must wait, None if this method has removed the cause of the error.

        Raises an error that another attempt cannot avoid.
        """
        if not isinstance(error, FunctionError):
            return error
        if error.code != "UNDECLARED":
            raise error
        return await self._declare_again(request)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with anyio.move_on_after(seconds):
                await self._stop_requested.wait()
                await asyncio.sleep(STOPPING_PAUSE)

    async def _declare_again(self, request: SettleRequest) -> StorageUnavailable | None:
        """Declare the queue again after it was recreated, so that its jobs can be claimed. Return the error if any."""
        try:
            await self._client.open_again(request.incarnation)
        except StorageUnavailable as error:
            return error
        self.settle.readdress(request)
        return None
