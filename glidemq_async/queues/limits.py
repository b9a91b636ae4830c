"""Limits of a queue and of its ordering keys: concurrency, rates, pauses. Server side: limits.lua, key_limits.lua."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms, to_ms
from glidemq_async.functions.key_limits import StoredKeyLimits
from glidemq_async.options.validation import positive_number
from glidemq_async.queues.base import QueuePart
from glidemq_async.queues.rates import RateLimit, TokenBucket, stored_limit
from glidemq_async.stored.names import check_id


class Unchanged:
    """The type of the default value of a parameter whose None removes a limit."""

    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Final = Unchanged()
_EVERY_KEY: Final = ""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits set for one key: `concurrency`, `rate_limit` and `token_bucket`, None for each that is not set.

    `paused_until` is the end of a pause (UTC).
    """

    concurrency: int | None
    rate_limit: RateLimit | None
    token_bucket: TokenBucket | None
    paused_until: datetime | None


class Limits(QueuePart[Data, Result]):
    """The methods of Queue that limit how many jobs run and start.

    Limits take effect immediately and for every worker; running jobs continue. A limited job is not claimed, so it does
    not occupy a slot while it waits.
    """

    async def set_global_concurrency(self, concurrency: int | None) -> None:
        """Limit the number of jobs of the queue that run at the same time on all workers; None removes the limit.

        Raises TypeError or ValueError unless `concurrency` is None or an integer of at least 1.
        """
        text = "" if concurrency is None else str(positive_number("concurrency", concurrency))
        await self.connect()
        await self._client.functions.limits.set(concurrency=text)

    async def get_global_concurrency(self) -> int | None:
        """Return the limit of running jobs, None if there is none."""
        await self.connect()
        return (await self._client.functions.limits.get()).concurrency

    async def set_global_rate_limit(self, rate_limit: RateLimit) -> None:
        """Limit the queue to `max` job starts in any window of `duration` seconds, on all workers together.

        Use `remove_global_rate_limit` to remove the limit. Raises TypeError unless `rate_limit` is a RateLimit.
        """
        _check("rate_limit", rate_limit, RateLimit)
        await self.connect()
        await self._client.functions.limits.set(rate=stored_limit(rate_limit))

    async def get_global_rate_limit(self) -> RateLimit | None:
        """Return the rate limit of the queue, None if there is none."""
        await self.connect()
        stored = await self._client.functions.limits.get()
        return _rate(stored.rate_max, stored.rate_ms)

    async def remove_global_rate_limit(self) -> None:
        """Remove the rate limit of the queue."""
        await self.connect()
        await self._client.functions.limits.set(rate="")

    async def set_key_limits(
        self,
        key: str | None,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate_limit: RateLimit | Unchanged | None = UNCHANGED,
        token_bucket: TokenBucket | Unchanged | None = UNCHANGED,
    ) -> None:
        """Set the limits of one ordering key; `key=None` sets the default for keys without a limit of the same kind.

        Parameters that are left out stay unchanged; None removes a limit. A key without any limit runs one job at a
        time, at any rate. With both a rate limit and a token bucket, a job starts only if both allow it. Raises
        TypeError or ValueError for a bad key or limit, and TypeError when no limit is given.
        """
        limits: dict[str, str] = {}
        if not isinstance(concurrency, Unchanged):
            limits["concurrency"] = "" if concurrency is None else str(positive_number("concurrency", concurrency))
        if not isinstance(rate_limit, Unchanged):
            limits["rate"] = _form("rate_limit", rate_limit, RateLimit)
        if not isinstance(token_bucket, Unchanged):
            limits["bucket"] = _form("token_bucket", token_bucket, TokenBucket)
        if not limits:
            raise TypeError("set_key_limits needs at least one of concurrency=, rate_limit= and token_bucket=")
        name = _EVERY_KEY if key is None else check_id("key", key)
        await self.connect()
        await self._client.functions.limits.set_key(name, **limits)
        # The new default is stored first. A key that is touched before its review uses it already.
        if key is None:
            await self._client.functions.limits.review_keys()

    async def get_key_limits(self, key: str | None) -> KeyLimits:
        """Return the limits that were set for one ordering key, or with None the default for all keys.

        Raises TypeError or ValueError for a bad key.
        """
        name = _EVERY_KEY if key is None else check_id("key", key)
        await self.connect()
        return _key_limits(await self._client.functions.limits.get_key(name))

    async def pause_key(self, key: str, seconds: float | timedelta) -> None:
        """Stop starts of jobs with this key for `seconds` from now; 0 ends a pause. Running jobs continue.

        Replaces an existing pause of the key. Raises TypeError or ValueError for a bad key or duration.
        """
        check_id("key", key)
        length = to_ms("seconds", seconds)
        await self.connect()
        # A duration and not an instant is sent, so that the clock of this process does not matter.
        await self._client.functions.limits.pause_key(key, length)


def _check(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def _form(name: str, value: RateLimit | TokenBucket | None, kind: type) -> str:
    if value is None:
        return ""
    _check(name, value, kind)
    return stored_limit(value)


def _rate(most: int | None, length: int | None) -> RateLimit | None:
    return None if most is None or length is None else RateLimit(most, length / 1000)


def _key_limits(stored: StoredKeyLimits) -> KeyLimits:
    bucket = None
    if stored.capacity is not None and stored.refill is not None:
        bucket = TokenBucket(stored.capacity / 1000, stored.refill / 1000)
    paused = None if stored.paused_until is None else from_ms(stored.paused_until)
    return KeyLimits(stored.concurrency, _rate(stored.rate_max, stored.rate_ms), bucket, paused)
