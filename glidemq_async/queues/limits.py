"""Limits of a queue and of its keys: concurrency, rates, pauses. On the server: limits.lua, key_limits.lua."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms, to_ms
from glidemq_async.functions.limit_calls import KeyLimits as StoredKeyLimits
from glidemq_async.options.validation import positive_number
from glidemq_async.queues.base import QueuePart
from glidemq_async.queues.rates import RateLimit, TokenBucket
from glidemq_async.stored.names import check_id


class Unchanged:
    """The default of what None would remove."""

    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Final = Unchanged()
_EVERY_KEY: Final = ""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What was set for a key itself, None where nothing was; `paused_until` is the end of a pause, in UTC."""

    concurrency: int | None
    rate_limit: RateLimit | None
    token_bucket: TokenBucket | None
    paused_until: datetime | None


class Limits(QueuePart[Data, Result]):
    """The methods of Queue that say how many jobs may run and start.

    Limits hold at once and for every worker; jobs that run already go on. A limited job is not claimed: it waits, and
    no slot waits with it.
    """

    async def set_global_concurrency(self, concurrency: int | None) -> None:
        """Let at most so many jobs of the queue run at once, on all workers together; None removes the limit.

        Raises TypeError or ValueError for what is no number of at least 1.
        """
        text = "" if concurrency is None else str(positive_number("concurrency", concurrency))
        await self.connect()
        await self._client.functions.set_limits(concurrency=text)

    async def get_global_concurrency(self) -> int | None:
        """Return the limit of running jobs, None where there is none."""
        await self.connect()
        return (await self._client.functions.get_limits()).concurrency

    async def set_global_rate_limit(self, rate_limit: RateLimit) -> None:
        """Let at most `max` jobs of the queue start in any window of `duration` seconds, on all workers together.

        Raises TypeError for what is no RateLimit; `remove_global_rate_limit` ends it.
        """
        _check("rate_limit", rate_limit, RateLimit)
        await self.connect()
        await self._client.functions.set_limits(rate=rate_limit.to_wire())

    async def get_global_rate_limit(self) -> RateLimit | None:
        """Return the rate limit of the queue, None where there is none."""
        await self.connect()
        stored = await self._client.functions.get_limits()
        return _rate(stored.rate_max, stored.rate_ms)

    async def remove_global_rate_limit(self) -> None:
        """Remove the rate limit of the queue."""
        await self.connect()
        await self._client.functions.set_limits(rate="")

    async def set_key_limits(
        self,
        key: str | None,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate_limit: RateLimit | Unchanged | None = UNCHANGED,
        token_bucket: TokenBucket | Unchanged | None = UNCHANGED,
    ) -> None:
        """Limit the jobs of one key; `key=None` sets each limit for the keys that have none of that kind themselves.

        What is not given stays, None removes it. A key without any limit runs one job at a time, without a rate.
        With a rate limit and a token bucket both must let a job start. Raises TypeError or ValueError for a bad key or
        limit, and TypeError when nothing is given.
        """
        limits: dict[str, str] = {}
        if not isinstance(concurrency, Unchanged):
            limits["concurrency"] = "" if concurrency is None else str(positive_number("concurrency", concurrency))
        if not isinstance(rate_limit, Unchanged):
            limits["rate"] = _wire("rate_limit", rate_limit, RateLimit)
        if not isinstance(token_bucket, Unchanged):
            limits["bucket"] = _wire("token_bucket", token_bucket, TokenBucket)
        if not limits:
            raise TypeError("nothing to set: give concurrency, rate_limit or token_bucket")
        name = _EVERY_KEY if key is None else check_id("key", key)
        await self.connect()
        await self._client.functions.set_key_limits(name, **limits)
        if key is None:
            await self._client.functions.review_keys()

    async def get_key_limits(self, key: str | None) -> KeyLimits:
        """Return what was set for a key itself, or with None for the keys that do not set it themselves.

        Raises TypeError or ValueError for a bad key.
        """
        name = _EVERY_KEY if key is None else check_id("key", key)
        await self.connect()
        return _key_limits(await self._client.functions.get_key_limits(name))

    async def pause_key(self, key: str, seconds: float | timedelta) -> None:
        """Let no job of a key start for `seconds` from now on; 0 ends a pause. Jobs that run go on.

        It takes the place of a pause that the key has. Raises TypeError or ValueError for a bad key or duration.
        """
        check_id("key", key)
        length = to_ms("seconds", seconds)
        await self.connect()
        await self._client.functions.pause_key(key, length)


def _check(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def _wire(name: str, value: RateLimit | TokenBucket | None, kind: type) -> str:
    if value is None:
        return ""
    _check(name, value, kind)
    return value.to_wire()


def _rate(most: int | None, length: int | None) -> RateLimit | None:
    return None if most is None or length is None else RateLimit(most, length / 1000)


def _key_limits(stored: StoredKeyLimits) -> KeyLimits:
    bucket = None
    if stored.capacity is not None and stored.refill is not None:
        bucket = TokenBucket(stored.capacity / 1000, stored.refill / 1000)
    paused = None if stored.paused_until is None else from_ms(stored.paused_until)
    return KeyLimits(stored.concurrency, _rate(stored.rate_max, stored.rate_ms), bucket, paused)
