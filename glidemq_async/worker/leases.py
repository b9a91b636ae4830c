"""Renewing the leases of running jobs, from a thread with an event loop and connections of its own.

A handler that blocks the worker's loop therefore does not lose its jobs (one that holds the interpreter lock does).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final

from glidemq_async import failpoints
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage

SAFE_SHARE: Final = 0.8
"""The share of a lease after which, unrenewed, it is treated as doubtful."""
MAX_HELD: Final = 1_000

_log = logging.getLogger(__name__)

Held = tuple[str, str]
"""The id and entry of a job in hand."""


class LeaseKeeper:
    """Renews every held lease each third of the shortest one, and reports what the server answers.

    The callbacks run in the worker's loop: `on_lost(entries)` and `on_revoked(ids)` name jobs whose runs must stop,
    `on_health(bool)` says whether leases can be relied on.
    """

    def __init__(
        self,
        storage: Storage,
        base: str,
        consumer: str,
        info: bytes,
        lease: float,
        held: Callable[[], list[Held]],
        on_lost: Callable[[list[str]], None],
        on_revoked: Callable[[list[str]], None],
        on_health: Callable[[bool], None],
    ) -> None:
        self._storage = storage
        self._base = base
        self._consumer = consumer
        self._info = info
        self._lease = lease
        self._held = held
        self._on_lost = on_lost
        self._on_revoked = on_revoked
        self._on_health = on_health
        self._main_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurry: asyncio.Event | None = None
        self._stopping = False
        self._healthy = True
        self._thread = threading.Thread(target=self._run, name=f"glidemq-leases-{consumer}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shorten(self, lease: float) -> None:
        """A job in hand has a shorter lease, in seconds: renew that often from now on."""
        if lease < self._lease:
            self._lease = lease
            self._poke()

    async def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping = True
        self._poke()
        await asyncio.to_thread(self._thread.join)

    def _poke(self) -> None:
        loop, hurry = self._loop, self._hurry
        if loop is not None and hurry is not None and not loop.is_closed():
            loop.call_soon_threadsafe(hurry.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:  # noqa: BLE001 - the worker must hear of it, whatever it was
            _log.exception("the thread that renews leases ended")
            self._report(self._on_health, False)

    async def _main(self) -> None:
        self._loop, self._hurry = asyncio.get_running_loop(), asyncio.Event()
        renewed = self._loop.time()
        async with self._storage.clone() as storage:
            functions = Functions(storage, self._base)
            while not self._stopping:
                sent = self._loop.time()
                if await self._renew(functions):
                    renewed = sent
                self._judge(self._loop.time() - renewed)
                await self._pause()

    async def _pause(self) -> None:
        assert self._hurry is not None  # noqa: S101 - set before the loop starts
        if self._stopping:
            return
        try:
            async with asyncio.timeout(self._lease / 3 if self._healthy else self._lease / 10):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    async def _renew(self, functions: Functions) -> bool:
        held = self._held()
        try:
            if failpoints.armed:
                failpoints.hit("renew.before_send")
            for start in range(0, max(1, len(held)), MAX_HELD):
                lost, revoked = await functions.renew_leases(
                    self._consumer, self._info, held[start : start + MAX_HELD], self._lease / 3
                )
                self._report_lost(lost, revoked)
        except GlideMQError as error:
            _log.warning("leases of %s could not be renewed: %s", self._base, error)
            return False
        return True

    def _report_lost(self, lost: list[str], revoked: list[str]) -> None:
        if lost:
            if failpoints.armed:
                failpoints.hit("renew.lost")
            self._report(self._on_lost, lost)
        if revoked:
            self._report(self._on_revoked, revoked)

    def _judge(self, age: float) -> None:
        healthy = age < SAFE_SHARE * self._lease
        if healthy != self._healthy:
            self._healthy = healthy
            self._report(self._on_health, healthy)

    def _report(self, callback: Callable[..., None], *details: object) -> None:
        if not self._main_loop.is_closed():
            self._main_loop.call_soon_threadsafe(callback, *details)
