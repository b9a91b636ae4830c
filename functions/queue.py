"""Typed calls of the functions that open and pause a queue: `queue.lua`."""

from __future__ import annotations

import uuid
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, text, texts
from glidemq_async.functions.settings import Author, packed_author


class QueueState(NamedTuple):
    """Reply of `openQueue`."""

    layout: str
    mode: str | None
    paused: bool
    has_schedulers: bool
    """True if the queue ever had a job scheduler."""
    incarnation: str
    """Distinguishes this queue from an earlier or later one of the same name."""
    missing_rules: tuple[str, ...] = ()
    """ACL rules for channels that the server's user lacks."""


class QueueCalls(Calls):
    """Calls of the functions in `queue.lua`."""

    __slots__ = ()

    async def open(self, mode: str | None, dead_letter_queue: str | None = None) -> QueueState:
        """Check that the stored queue belongs to this library, create it if needed, and store the given settings.

        Later adds and claims are meant for this incarnation: they are refused as UNDECLARED when it is gone.
        """
        # The random value becomes the incarnation if this call creates the queue. The client makes it, because a
        # repeated call must not create another incarnation: the second execution finds the queue and returns the stored
        # one.
        args: list[Arg] = [mode or "", uuid.uuid4().hex[:16], dead_letter_queue or "", 1]
        *reply, rules = cast("list[object]", await self._caller.call("openQueue", args))
        layout, stored_mode, paused, schedulers, incarnation = cast("list[bytes | None]", reply)
        self._caller.incarnation = text(incarnation)
        return QueueState(
            text(layout),
            stored_mode.decode() if stored_mode else None,
            paused == b"1",
            schedulers is not None,
            self._caller.incarnation,
            tuple(texts(rules)),
        )

    async def exists(self) -> bool:
        """Return whether the queue exists. Creates nothing."""
        return await self._caller.read("queueExists") == 1

    async def set_paused(self, paused: bool, until_ms: int = 0, by: Author | None = None) -> None:
        """Pause or resume claiming. A pause ends by itself at `until_ms`, unless that is 0."""
        # With a number: a delayed copy of a pause must not pause a queue that was resumed since.
        await self._caller.once("setPaused", [int(paused), until_ms, packed_author(by)])
