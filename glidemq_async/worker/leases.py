"""Renews the leases of running jobs, from the lease thread of the process.

A separate thread is necessary because handlers can block the event loop of the worker. Renewals continue during such a
handler, unless it also holds the interpreter lock: then no thread runs, the leases expire, and other workers reclaim
the jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol

from glidemq_async._internal import failpoints
from glidemq_async._internal.problems import problem_of
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.lease import Held
from glidemq_async.storage import Storage
from glidemq_async.stored.names import QueueKeys
from glidemq_async.worker import lease_thread

SAFE_SHARE: Final = 0.8
"""The part of a lease after which a lease without renewal is no longer trusted."""
LONGEST_PAUSE: Final = 20.0
"""Longest pause between two renewals. A renewal is also the heartbeat of the worker, however long its leases are."""
MAX_HELD: Final = 500
"""Maximum number of leases that one call renews."""
CALL_SECONDS: Final = 5.0
"""Maximum duration of a renewal call, also for long leases: a new attempt is better than a long wait."""
STOP_SECONDS: Final = 1.0
"""Time that the current renewal may take when the worker closes."""

_log = logging.getLogger(__name__)


class LeaseOwner(Protocol):
    """The parts of a session that the renewer calls: the first three from the lease thread, the others in the loop."""

    def leases(self) -> list[Held]:
        """Return every lease to renew. Called from the lease thread."""
        ...

    def known_calls(self) -> tuple[int, int]:
        """Return `answered` and `in_transit` for `LeaseCalls.renew`. Called after `leases`, from its thread."""
        ...

    def shortest_lease(self) -> float:
        """Return the duration of the shortest lease in seconds. Called from the lease thread."""
        ...

    def on_lost(self, entries: list[str]) -> None:
        """Stop the runs with these entries, whose leases are lost."""
        ...

    def on_revoked(self, entries: list[str]) -> None:
        """Stop the runs with these entries, whose jobs were revoked."""
        ...

    def on_lease_safety(self, safe: bool) -> None:
        """Note whether leases are renewed in time."""
        ...

    def on_renewed(self, sent: float) -> None:
        """Note a renewal that was sent at this monotonic time. Its losses were reported before."""
        ...


# A lease is the only thing that keeps two workers from running the same job. These rules keep it safe:
#
# - A lease is renewed from its claim until the server has the outcome, not until the handler returns. The server
#   refuses an outcome whose lease has expired, so a finished job would run again.
# - The server's reply decides which leases are lost. The worker's clock only decides when it stops claiming: after 80 %
#   of a lease without a renewal it assumes that the server is about to give its jobs to others.
# - Losses are reported to the loop before the renewal that found them. After a failover the claim loop may trust its
#   entries only once a renewal has ended: the failover can lose a claim, and then another worker holds the same entry
#   with the same fencing token. The renewal compares the consumers of the entries in that case.
# - The renewer ends before the worker signs off. A later renewal would list a worker that is gone.
class LeaseRenewer:
    """Renews all leases of a worker every third of the shortest lease, and reports the replies of the server."""

    def __init__(
        self,
        storage: Storage,
        base: str,
        consumer: str,
        info: bytes,
        owner: LeaseOwner,
    ) -> None:
        self._storage = storage
        self._base = base
        self._queue = QueueKeys.queue_of(base)
        self._has_failed = False
        self._consumer = consumer
        self._info = info
        self._owner = owner
        self._lease = owner.shortest_lease()
        self._main_loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._stopping = False
        self._healthy = True
        self._thread = lease_thread.shared
        self._work: Future[None] | None = None

    def start(self) -> None:
        """Start renewing."""
        self._work = self._thread.start(self._main())

    def shorten(self, lease: float) -> None:
        """Renew often enough for a lease of this duration in seconds, from now on."""
        if lease < self._lease:
            self._lease = lease
            self.renew_now()

    def describe(self, info: bytes) -> None:
        """Send this description of the worker from now on."""
        self._info = info

    def renew_now(self) -> None:
        """Renew now, to learn immediately which jobs were lost or revoked."""
        self._thread.call(self._wake.set)

    async def stop(self) -> None:
        """Stop renewing, and wait for the end of the current renewal."""
        if self._work is None:
            return
        # Set from this thread and read in the lease thread. The wake-up orders the two: the lease thread sees the flag
        # when it wakes.
        self._stopping = True
        self._thread.call(self._wake.set)
        _, late = await asyncio.wait([asyncio.wrap_future(self._work)], timeout=STOP_SECONDS)
        if late:
            # The server does not reply to the current renewal. Its result is no longer needed.
            self._work.cancel()
        self._work = None
        await asyncio.to_thread(self._thread.leave)

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        storage = self._thread.borrow(self._storage)
        try:
            functions = Functions(storage, self._base)
            while not self._stopping:
                # The time of sending, not of the reply: the server renews the leases at some moment between the two,
                # and a run that was claimed in between is not part of this renewal.
                sent = loop.time()
                if await self._renew(storage, functions):
                    renewed = sent
                    self._report(self._owner.on_renewed, sent)
                self._update_health(loop.time() - renewed)
                await self._pause()
        finally:
            await self._thread.release(self._storage)

    async def _pause(self) -> None:
        if self._stopping:
            return
        try:
            async with asyncio.timeout(min(LONGEST_PAUSE, self._lease / (3 if self._healthy else 10))):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _renew(self, storage: Storage, functions: Functions) -> bool:
        try:
            await storage.connect()
            # In this order: a call that ends between the two lines has claimed none of these leases.
            held = self._owner.leases()
            answered, in_transit = self._owner.known_calls()
            self._lease = self._owner.shortest_lease()
            if failpoints.armed:
                failpoints.hit("renew.before_send")
            for start in range(0, max(1, len(held)), MAX_HELD):
                lost, revoked = await functions.leases.renew(
                    self._consumer,
                    self._info,
                    held[start : start + MAX_HELD],
                    min(self._lease / 3, CALL_SECONDS),
                    answered=answered,
                    in_transit=in_transit,
                )
                self._report_lost(lost, revoked)
        except Exception as error:  # noqa: BLE001 - renewing never ends before its worker
            _log.warning("could not renew the leases of queue %s; trying again: %s", self._queue, problem_of(error))
            self._has_failed = True
            return False
        if self._has_failed:
            self._has_failed = False
            _log.info("renewed the leases of queue %s again", self._queue)
        return True

    def _report_lost(self, lost: list[str], revoked: list[str]) -> None:
        if lost:
            if failpoints.armed:
                failpoints.hit("renew.lost")
            self._report(self._owner.on_lost, lost)
        if revoked:
            self._report(self._owner.on_revoked, revoked)

    def _update_health(self, age: float) -> None:
        healthy = age < SAFE_SHARE * self._lease
        if healthy != self._healthy:
            self._healthy = healthy
            self._report(self._owner.on_lease_safety, healthy)

    def _report(self, callback: Callable[..., None], *details: object) -> None:
        # The worker's loop may be blocked by a handler. The report then waits in its queue, while the leases continue
        # to be renewed. A loop that was closed without closing its worker takes no reports.
        if not self._main_loop.is_closed():
            self._main_loop.call_soon_threadsafe(callback, *details)
