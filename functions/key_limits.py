"""Typed calls of the functions for limits: `key_limits.lua`."""

from __future__ import annotations

from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, text, texts
from glidemq_async.functions.settings import Author, packed_author


class StoredQueueLimits(NamedTuple):
    """Reply of `getLimits`. None means no limit; durations and instants are in ms."""

    concurrency: int | None
    rate_max: int | None
    rate_ms: int | None
    gate: int | None
    max_waiting: int | None


class StoredKeyLimits(NamedTuple):
    """Reply of `getKeyLimits`. None means no limit; tokens are in thousandths, durations and instants in ms."""

    concurrency: int | None
    rate_max: int | None
    rate_ms: int | None
    capacity: int | None
    refill: int | None
    paused_until: int | None


class LimitCalls(Calls):
    """Calls of the functions in `key_limits.lua`."""

    __slots__ = ()

    async def set(self, by: Author | None = None, version: str = "", **limits: str) -> None:
        """Set limits of the queue: concurrency, rate ("<max> <ms>"), max_waiting. "" removes a limit.

        With a version, the server refuses the call with CHANGED if the limits have changed since.
        """
        if version:
            limits["version"] = version
        # Only the named limits are sent, so two clients that change different limits at the same time do not overwrite
        # each other.
        await self._caller.once("setLimits", _flat(limits, by))

    async def get(self) -> StoredQueueLimits:
        """Return the limits of the queue."""
        return StoredQueueLimits(*_numbers(await self._caller.read("getLimits")))

    async def set_key(self, key: str, by: Author | None = None, **limits: str) -> None:
        """Set limits of a key ("": the default of all keys): concurrency, rate, bucket. "" removes a limit."""
        await self._caller.once("setKeyLimits", [key, *_flat(limits, by)])

    async def get_key(self, key: str) -> StoredKeyLimits:
        """Return the limits that were set for a key ("": the default of all keys)."""
        return StoredKeyLimits(*_numbers(await self._caller.read("getKeyLimits", [key])))

    async def pause_key(self, key: str, length_ms: int) -> None:
        """Start no job of a key for `length_ms` from now on. 0 ends a pause."""
        await self._caller.once("pauseKey", [key, length_ms])

    async def review_keys(self) -> None:
        """Apply changed limits to every key with a waiting job, in bounded steps."""
        # The defaults apply to every key without limits, and their number is not bounded. A single call could hold the
        # server for too long.
        cursor = "0"
        while cursor:
            cursor = text(await self._caller.once("reviewKeys", [cursor]))


def _flat(limits: dict[str, str], by: Author | None) -> list[Arg]:
    flat: list[Arg] = [part for pair in limits.items() for part in pair]
    return flat if by is None else [*flat, "by", packed_author(by)]


def _numbers(reply: object) -> list[int | None]:
    return [int(float(part)) if part else None for part in texts(cast("list[bytes]", reply))]
