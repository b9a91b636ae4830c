"""Limits of a queue and of its ordering keys: concurrency, rates, pauses. Server side: limits.lua, key_limits.lua."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms, to_ms
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.key_limits import StoredKeyLimits
from glidemq_async.functions.settings import Author, StoredSettings
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The limits of a queue: `concurrency`, `rate_limit` and `max_waiting`, None for each that is not limited.

    `concurrency` is the number of jobs that run at the same time, `rate_limit` the number of starts in a window, and
    `max_waiting` the number of waiting jobs at which adds raise QueueFull. Raises TypeError or ValueError.
    """

    concurrency: int | None = None
    rate_limit: RateLimit | None = None
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "max_waiting"):
            if getattr(self, name) is not None:
                positive_number(name, getattr(self, name))
        if self.rate_limit is not None:
            _check("rate_limit", self.rate_limit, RateLimit)


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

    async def set_max_waiting(self, most: int | None) -> None:
        """Set the number of waiting jobs at which adds raise QueueFull. None removes the limit.

        Delayed and running jobs do not count. A call that adds many jobs may exceed the limit, because it is accepted
        or refused as a whole. Jobs that the server adds, for example of schedulers and flows, are never refused. Raises
        TypeError or ValueError unless `most` is None or an integer of at least 1.
        """
        text = "" if most is None else str(positive_number("most", most))
        await self.connect()
        await self._client.functions.limits.set(max_waiting=text)

    async def get_max_waiting(self) -> int | None:
        """Return the number of waiting jobs at which adds raise QueueFull. Return None without a limit."""
        await self.connect()
        return (await self._client.functions.limits.get()).max_waiting

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
        await change_key_limits(self, None, key, concurrency, rate_limit, token_bucket)

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


async def change_limits(
    queue: Limits[Any, Any],
    by: Author,
    concurrency: int | Unchanged | None = UNCHANGED,
    rate_limit: RateLimit | Unchanged | None = UNCHANGED,
    max_waiting: int | Unchanged | None = UNCHANGED,
    version: str = "",
) -> None:
    """Set limits of a queue in the name of an author. Raises TypeError or ValueError.

    With a version of `stored_settings`, raises FunctionError with the code CHANGED if the limits have changed since.
    """
    limits: dict[str, str] = {}
    if not isinstance(concurrency, Unchanged):
        limits["concurrency"] = "" if concurrency is None else str(positive_number("concurrency", concurrency))
    if not isinstance(rate_limit, Unchanged):
        limits["rate"] = limit_form("rate_limit", rate_limit, RateLimit)
    if not isinstance(max_waiting, Unchanged):
        limits["max_waiting"] = "" if max_waiting is None else str(positive_number("max_waiting", max_waiting))
    if not limits:
        raise TypeError("name at least one limit: concurrency=, rate_limit= or max_waiting=")
    await queue.connect()
    await _functions(queue).limits.set(by, version, **limits)


async def change_key_limits(
    queue: Limits[Any, Any],
    by: Author | None,
    key: str | None,
    concurrency: int | Unchanged | None = UNCHANGED,
    rate_limit: RateLimit | Unchanged | None = UNCHANGED,
    token_bucket: TokenBucket | Unchanged | None = UNCHANGED,
) -> None:
    """Set limits of an ordering key in the name of an author; see `Limits.set_key_limits`."""
    limits: dict[str, str] = {}
    if not isinstance(concurrency, Unchanged):
        limits["concurrency"] = "" if concurrency is None else str(positive_number("concurrency", concurrency))
    if not isinstance(rate_limit, Unchanged):
        limits["rate"] = limit_form("rate_limit", rate_limit, RateLimit)
    if not isinstance(token_bucket, Unchanged):
        limits["bucket"] = limit_form("token_bucket", token_bucket, TokenBucket)
    if not limits:
        raise TypeError("set_key_limits needs at least one of concurrency=, rate_limit= and token_bucket=")
    name = _EVERY_KEY if key is None else check_id("key", key)
    await queue.connect()
    await change_stored_limits(queue, by, name, limits)


async def release_limit(queue: Limits[Any, Any], by: Author, setting: str) -> None:
    """End the hold of an operator on a limit: the declared value applies again, or no limit."""
    name, has_key, key = setting.partition(" ")
    await queue.connect()
    await change_stored_limits(queue, by, key if has_key else None, {name: ""})


async def change_stored_limits(
    queue: Limits[Any, Any], by: Author | None, key: str | None, limits: Mapping[str, str]
) -> None:
    """Set limits in stored form, of the queue (None), of a key, or the default of all keys (""). Needs `connect`."""
    if key is None:
        await _functions(queue).limits.set(by, **limits)
    else:
        await _functions(queue).limits.set_key(key, by, **limits)
        await _review(queue, key)


async def change_pause(queue: Limits[Any, Any], by: Author, paused: bool, until_ms: int = 0) -> None:
    """Pause or resume a queue in the name of an author."""
    await queue.connect()
    await _functions(queue).queue.set_paused(paused, until_ms, by)


async def stored_settings(queue: Limits[Any, Any]) -> StoredSettings:
    """Return the limits and the pause of a queue, and who has set them."""
    await queue.connect()
    return await _functions(queue).settings.get()


async def _review(queue: Limits[Any, Any], key: str) -> None:
    # The new default is stored first. A key that is touched before its review uses it already.
    if key == _EVERY_KEY:
        await _functions(queue).limits.review_keys()


def _functions(queue: Limits[Any, Any]) -> Functions:
    return queue._client.functions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _check(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def limit_form(name: str, value: RateLimit | TokenBucket | None, kind: type) -> str:
    """Return the stored form of the limit in an option, "" for None. Raises TypeError."""
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
