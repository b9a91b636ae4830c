"""One server of a storage: its shared connection, its private ones and its function library.

The shared connection carries every short call of all callers. A request that blocks (WAIT, XREAD, a subscription) has
a private connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from glidemq_async.storage.redis.attempt import SharedAttempt
from glidemq_async.storage.redis.library import Library, check_server, ensure_library, lacks
from glidemq_async.storage.redis.retry import TRY_SECONDS
from glidemq_async.storage.redis.wire import Wire

Dial: TypeAlias = Callable[[], Awaitable[Wire]]

SPARE_WIRES: Final = 4
"""Connections for blocking calls that are kept open for the next such call."""


class Node:
    """The connections to one server. Each is opened when it is needed, and again after a loss.

    With `lean` the shared connection is used without checking the server and the library. A call that finds no library
    loads it.
    """

    def __init__(self, dial: Dial, library: Library, *, lean: bool = False) -> None:
        self._dial = dial
        self._lean = lean
        self._library = library
        self.wire: Wire | None = None
        self._spare: list[Wire] = []
        self._lent: set[Wire] = set()
        self._opening = SharedAttempt(self._open, "opened a connection")
        self._loading = SharedAttempt(self._load, "loaded the function library")
        self._checked = False
        self.largest_argument: int | None = None
        """Bytes that one argument of a call may have, None if the server does not report it."""
        self._closed = False

    async def open(self) -> Wire:
        """Return the shared connection, with the library loaded; callers share one attempt.

        Raises `OSError` when the server cannot be reached now, `GlideMQError` when another attempt cannot succeed.
        """
        wire = self.wire
        if wire is not None and wire.alive:
            return wire
        return await self._opening.outcome()

    async def _open(self) -> Wire:
        # The order protects the fast path of `ServerStorage.call`, which uses `self.wire` without any check. So the
        # connection becomes visible only after the server was checked and the library was loaded. A connection that
        # becomes visible earlier would carry calls to functions that do not exist yet.
        #
        # A lean connection becomes visible without checks. If the library is missing, the first call is refused and has
        # had no effect. The storage then loads the library and sends the call again (`Verdict.LOAD`).
        wire = await self._dial()
        if self._lean:
            self.wire = wire
            return wire
        try:
            deadline = asyncio.get_running_loop().time() + TRY_SECONDS
            if not self._checked:
                self.largest_argument = await check_server(wire, deadline)
                self._checked = True
            await ensure_library(self._library, wire, deadline)
        except BaseException:
            wire.drop("not usable")
            raise
        self.wire = wire
        return wire

    async def load_library(self) -> None:
        """Load the library if it is missing; callers share one attempt."""
        await self._loading.outcome()

    async def _load(self) -> None:
        wire = await self.open()
        await ensure_library(self._library, wire, asyncio.get_running_loop().time() + TRY_SECONDS)

    async def lacks(self, function: str) -> bool:
        """Return whether the library is loaded but lacks this function. `function` is its full name."""
        wire = await self.open()
        return await lacks(self._library, function, wire, asyncio.get_running_loop().time() + TRY_SECONDS)

    async def dial(self) -> Wire:
        """Open a private connection. The caller must drop it."""
        return await self._dial()

    @asynccontextmanager
    async def borrow(self, deadline: float) -> AsyncGenerator[Wire]:
        """Lend a private connection for requests that block. A connection with open replies is not reused.

        Raises `TimeoutError` when none could be opened by `deadline` (loop time).
        """
        self._refuse_closed()
        wire = self._take()
        if wire is None:
            async with asyncio.timeout_at(deadline):
                wire = await self._dial()
        self._lent.add(wire)
        try:
            yield wire
        finally:
            self._lent.discard(wire)
            # A caller that is cancelled leaves its blocking command on the server. The next borrower's request would
            # wait behind it, so such a connection is dropped. The drop also ends the command on the server.
            if wire.alive and not wire.busy and not self._closed and len(self._spare) < SPARE_WIRES:
                self._spare.append(wire)
            else:
                wire.drop("a blocking request was given up")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConnectionAbortedError("the storage was closed")

    def _take(self) -> Wire | None:
        while self._spare:
            wire = self._spare.pop()
            if wire.alive:
                return wire
        return None

    def drop(self, reason: str) -> None:
        """Drop every connection; the next use opens new ones."""
        wires = [*self._spare, *self._lent]
        if self.wire is not None:
            wires.append(self.wire)
            self.wire = None
        self._spare.clear()
        for wire in wires:
            wire.drop(reason)

    def retire(self, reason: str) -> None:
        """Drop every connection and open no further ones. Used for a node that the storage forgets. Never waits."""
        # The Cluster storage adopts a new topology without an await, so this method cannot wait as `close` does. The
        # flag comes first: an attempt to connect that is about to succeed must not leave an open connection behind on a
        # node that no storage knows any more.
        self._closed = True
        self._opening.cancel()
        self._loading.cancel()
        self.drop(reason)

    async def close(self) -> None:
        """Close every connection and wait until pending attempts to connect have ended."""
        self._closed = True
        await self._opening.close()
        await self._loading.close()
        self.drop("closed")
        await asyncio.sleep(0)
