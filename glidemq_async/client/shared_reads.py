"""Combines concurrent reads: one call is in flight, and reads that come during this call share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from glidemq_async._internal.background_tasks import BackgroundTasks

Wanted = TypeVar("Wanted", bound=Hashable)
Reply = TypeVar("Reply")

READS_MAX: Final = 100
"""Maximum number of reads in one call."""


class SharedReads(Generic[Wanted, Reply]):
    """Reads through one function of the server. Equal reads that wait for their call get the same reply.

    `call` takes some reads and returns the replies to the first of them, at least one. `closed` creates the error of
    the reads that `close` ends.
    """

    def __init__(
        self, call: Callable[[Sequence[Wanted]], Awaitable[Sequence[Reply]]], closed: Callable[[], Exception]
    ) -> None:
        self._call = call
        self._closed = closed
        self._wanted: dict[Wanted, asyncio.Future[Reply]] = {}
        self._sender = BackgroundTasks()
        self._reading: asyncio.Task[None] | None = None

    async def read(self, wanted: Wanted) -> Reply:
        """Return the reply to a call that begins after this one."""
        future = self._wanted.get(wanted)
        if future is None:
            future = self._wanted[wanted] = asyncio.get_running_loop().create_future()
            if self._reading is None:
                self._reading = self._sender.start(self._read_all())
                self._reading.add_done_callback(self._on_end)
        # `asyncio.wait` does not cancel the read of the other callers together with this one.
        await asyncio.wait([future])
        return future.result()

    async def close(self) -> None:
        """End all reads with an error."""
        await self._sender.close()

    async def _read_all(self) -> None:
        try:
            while self._wanted:
                # Out of the dict before the call: a read that comes during the call must not share its reply.
                await self._read_some([self._wanted.popitem() for _ in range(min(READS_MAX, len(self._wanted)))])
        finally:
            # Nothing is awaited since the last look at `_wanted`, so no read is left without a call. Only a
            # cancellation leaves reads here.
            self._end()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if self._reading is task:  # it was cancelled before its first step, so `_read_all` did not run
            self._end()

    def _end(self) -> None:
        self._reading = None
        for future in self._wanted.values():
            _fail(future, self._closed())
        self._wanted.clear()

    async def _read_some(self, batch: list[tuple[Wanted, asyncio.Future[Reply]]]) -> None:
        """Make as many calls as these reads need."""
        try:
            while batch:
                replies = await self._call([wanted for wanted, _ in batch])
                for (_, future), reply in zip(batch, replies, strict=False):
                    future.set_result(reply)
                batch = batch[len(replies) :]
        except Exception as error:  # noqa: BLE001 - each caller raises it
            for _, future in batch:
                _fail(future, error)
        finally:
            for _, future in batch:
                if not future.done():  # cancelled by `close`
                    _fail(future, self._closed())


def _fail(future: asyncio.Future[Reply], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # mark it as retrieved, because all callers may be gone
