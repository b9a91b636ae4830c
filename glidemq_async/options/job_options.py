"""The options of a job: their checks, and the stored part that workers read.

Nothing here calls a server. All checks happen before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast

import msgpack

from glidemq_async.durations import instant_to_ms
from glidemq_async.errors import SerializationError
from glidemq_async.functions.calling import Wait
from glidemq_async.options import validation as checks
from glidemq_async.options.backoff import Backoff, BackoffWire
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.retention import (
    DEFAULT_KEEP_COMPLETED,
    DEFAULT_KEEP_FAILED,
    KeepJobs,
    checked_keep,
    keep_from_wire,
    keep_to_wire,
)

__all__ = [
    "DEFAULT_KEEP_COMPLETED",
    "DEFAULT_KEEP_FAILED",
    "Durability",
    "JobOptions",
    "JobOptionsDict",
    "KeepJobs",
    "layered",
    "merge",
]

_WHOLE_COST: Final = 1000
"""One token, in thousandths."""

Durability: TypeAlias = Wait


class JobOptionsDict(TypedDict, total=False):
    """The options of a job as keywords, for `**options: Unpack[JobOptionsDict]`."""

    job_id: str | None
    delay: float | timedelta | None
    at: datetime | None
    priority: int
    lifo: bool
    key: str | None
    cost: float
    deduplication: Deduplication | None
    attempts: int
    backoff: Backoff | float | timedelta | None
    timeout: float | timedelta | None
    ttl: float | timedelta | None
    lock_duration: float | timedelta | None
    keep_completed: bool | int | KeepJobs | None
    keep_failed: bool | int | KeepJobs | None
    result_ttl: float | timedelta | None
    headers: Mapping[str, str]
    durability: Durability


_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_DEFAULTS: Final[Mapping[str, object]] = {
    **dict.fromkeys(JobOptionsDict.__annotations__),
    "priority": 0,
    "lifo": False,
    "cost": 1.0,
    "attempts": 1,
    "headers": _NO_HEADERS,
    "durability": "default",
}

_CHECKS: Final[Mapping[str, checks.Check]] = {
    "job_id": checks.optional_id,
    "delay": checks.optional_seconds,
    "at": checks.optional_instant,
    "priority": checks.priority,
    "lifo": checks.boolean,
    "key": checks.optional_id,
    "cost": checks.positive_real,
    "deduplication": checks.deduplication,
    "attempts": checks.positive_number,
    "backoff": checks.optional_backoff,
    "timeout": checks.optional_positive_seconds,
    "ttl": checks.optional_positive_seconds,
    "lock_duration": checks.optional_lease,
    "keep_completed": checked_keep,
    "keep_failed": checked_keep,
    "result_ttl": checks.optional_positive_seconds,
    "headers": checks.headers,
    "durability": checks.durability,
}


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False)
class JobOptions:
    """The options of one job. Each is also a keyword of `Queue.add`. Durations are in seconds.

    - `job_id`: an id that you choose. Adding a job twice with the same id creates only one job.
    - `delay` or `at`: the earliest start, relative to now or as an instant with a time zone.
    - `priority`: 0 (the default) to 2**21. Lower numbers start first; jobs of the same priority start in order of
      arrival. Among jobs with the same `key`, it orders these jobs.
    - `lifo`: the newest waiting job with `lifo` starts before older ones. Workers alternate between jobs with and
      without `lifo`, and start both before jobs with a priority of 1 or more. It cannot be combined with a priority or
      a key.
    - `key`: the ordering key. Jobs with the same key start in order, by default one at a time; see
      `Queue.set_key_limits`.
    - `cost`: the number of tokens that the job takes from the token bucket of its key.
    - `deduplication`: several adds with the same deduplication id create one job; see Deduplication.
    - `attempts`: the maximum number of attempts, at least 1.
    - `backoff`: the wait between two attempts; a number is a fixed wait.
    - `timeout`: the maximum duration of one run.
    - `ttl`: the time after which a job that has not started expires.
    - `lock_duration`: the lease of a run, from 1 s to 24 h. The default is the worker's.
    - `keep_completed`, `keep_failed`: the retention of ended jobs: a bool for all or none, a count, or KeepJobs.
    - `result_ttl`: the time for which the record and the result are kept after the job's end. It overrides the
      retention.
    - `headers`: short texts that are sent along with the job.
    - `durability`: "replicated" waits for a replica, "fsync" waits for the disk.

    Raises TypeError for an unknown option or a wrong type, ValueError for a bad value; both name the option.
    """

    job_id: str | None
    delay: float | None
    at: datetime | None
    priority: int
    lifo: bool
    key: str | None
    cost: float
    deduplication: Deduplication | None
    attempts: int
    backoff: Backoff | None
    timeout: float | None
    ttl: float | None
    lock_duration: float | None
    keep_completed: KeepJobs | None
    keep_failed: KeepJobs | None
    result_ttl: float | None
    headers: Mapping[str, str] = field(hash=False)
    durability: Durability
    given: frozenset[str] = field(compare=False, init=False)
    """The names of the options that were set, even if they were set to their default."""

    def __init__(self, **options: Unpack[JobOptionsDict]) -> None:
        given = cast("dict[str, object]", options)
        checks.refuse_unknown(given, _DEFAULTS)
        put = object.__setattr__
        put(self, "given", frozenset(given))
        for name, default in _DEFAULTS.items():
            put(self, name, _CHECKS[name](name, given[name]) if name in given else default)
        if self.delay is not None and self.at is not None:
            raise ValueError(f"delay={self.delay!r} and at={self.at!r} cannot be combined; use one of them")
        if self.lifo and (self.priority or self.key is not None):
            other = f"key={self.key!r}" if self.key is not None else f"priority={self.priority!r}"
            raise ValueError(f"lifo and {other} cannot be combined; use one of them")
        dedup = self.deduplication
        if dedup is not None and dedup.mode == "debounce" and dedup.ttl is None and self.delay is None and not self.at:
            raise ValueError("mode 'debounce' needs ttl=, delay= or at=, the time that the job waits for later adds")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.explicit().items())
        return f"JobOptions({shown})"

    def __reduce__(self) -> tuple[object, tuple[JobOptionsDict]]:
        explicit = self.explicit()
        if "headers" in explicit:
            explicit["headers"] = dict(self.headers)
        return _rebuild, (explicit,)

    def explicit(self) -> JobOptionsDict:
        """Return only the options that were set, after validation."""
        found = {name: getattr(self, name) for name in _DEFAULTS if name in self.given}
        return cast("JobOptionsDict", found)

    def with_headers(self, headers: Mapping[str, str]) -> JobOptions:
        """Return a copy with other headers. Raises TypeError, ValueError or PayloadTooLarge for bad headers."""
        if headers == self.headers:
            return self
        changed = object.__new__(JobOptions)
        put = object.__setattr__
        for name in _DEFAULTS:
            put(changed, name, getattr(self, name))
        put(changed, "headers", checks.headers("headers", headers))
        put(changed, "given", self.given | {"headers"})
        return changed

    @property
    def delay_ms(self) -> int | None:
        """The delay in milliseconds."""
        return _ms(self.delay)

    @property
    def at_ms(self) -> int | None:
        """The instant of `at` in milliseconds since 1970."""
        return None if self.at is None else instant_to_ms("at", self.at)

    def to_extra(self) -> dict[str, object]:
        """Return the part of the options that an add needs, in the form that functions/add.lua reads."""
        extra: dict[str, object] = {}
        for name in ("delay", "at", "ttl"):
            if getattr(self, name) is not None:
                extra[name] = getattr(self, f"{name}_ms")
        if self.priority:
            extra["priority"] = self.priority
        if self.lifo:
            extra["lifo"] = True
        if self.key is not None:
            extra |= {"key": self.key, "cost": round(self.cost * _WHOLE_COST)}
        if self.deduplication is not None:
            extra["dedup"] = self.deduplication.to_wire()
            if self.deduplication.mode == "debounce" and self.delay is None and self.at is None:
                extra["delay"] = self.deduplication.ttl_ms
        return extra

    def pack_extra(self, reply: bytes = b"") -> bytes:
        """Return the encoded part for an add. `reply` is the channel on which the caller waits for the result."""
        extra = self.to_extra()
        if reply:
            extra["reply"] = reply.decode()
        if len(extra) == 2 and extra.get("cost") == _WHOLE_COST and self.key is not None:
            return b"k" + self.key.encode()
        return msgpack.packb(extra) if extra else b""

    @staticmethod
    def unpack_extra(packed: bytes) -> dict[str, Any]:
        """Decode the result of `pack_extra`."""
        if packed[:1] == b"k":
            return {"key": packed[1:].decode(), "cost": _WHOLE_COST}
        return cast("dict[str, Any]", msgpack.unpackb(packed)) if packed else {}

    @property
    def timeout_ms(self) -> int | None:
        """The timeout in milliseconds."""
        return _ms(self.timeout)

    @property
    def ttl_ms(self) -> int | None:
        """The time to live in milliseconds."""
        return _ms(self.ttl)

    @property
    def lock_duration_ms(self) -> int | None:
        """The lease in milliseconds."""
        return _ms(self.lock_duration)

    @property
    def result_ttl_ms(self) -> int | None:
        """The time to live of the result in milliseconds."""
        return _ms(self.result_ttl)

    def retention(self, state: Literal["completed", "failed"]) -> KeepJobs:
        """Return the retention for jobs that end in `state`, or the default if the option is not set."""
        if state == "completed":
            return self.keep_completed or DEFAULT_KEEP_COMPLETED
        return self.keep_failed or DEFAULT_KEEP_FAILED

    def to_wire(self) -> bytes:
        """Return the encoded part for workers, without default values; b"" if all values are defaults."""
        wire: dict[str, object] = {}
        if self.attempts != 1:
            wire["a"] = self.attempts
        if self.backoff is not None:
            wire["b"] = self.backoff.to_wire()
        if self.timeout is not None:
            wire["t"] = self.timeout_ms
        if self.lock_duration is not None:
            wire["l"] = self.lock_duration_ms
        if self.keep_completed is not None:
            wire["c"] = keep_to_wire(self.keep_completed)
        if self.keep_failed is not None:
            wire["f"] = keep_to_wire(self.keep_failed)
        if self.result_ttl is not None:
            wire["r"] = self.result_ttl_ms
        if self.headers:
            wire["h"] = dict(self.headers)
        return msgpack.packb(wire) if wire else b""

    @classmethod
    def from_wire(cls, data: bytes) -> JobOptions:
        """Decode the result of `to_wire`. Unknown fields of a newer client are ignored.

        Raises SerializationError for other bytes.
        """
        # Cached, because most jobs of a queue have the same options. Only headers differ from job to job.
        return _read_short(data) if len(data) <= _SHORT and _HEADERS not in data else _read(data)


_SHORT: Final = 128
# The encoded key of the headers.
_HEADERS: Final = b"\xa1h"


def merge(default: JobOptions, overrides: JobOptions | JobOptionsDict | Mapping[str, object]) -> JobOptions:
    """Return `default` with every option that `overrides` sets, even to a default value or None.

    An overriding `delay` replaces a default `at`, and vice versa. Raises the same errors as JobOptions.
    """
    winning: Mapping[str, object] = {**(overrides.explicit() if isinstance(overrides, JobOptions) else overrides)}
    if not winning:
        return default
    merged: dict[str, object] = {**default.explicit(), **winning}
    for name, other in (("delay", "at"), ("at", "delay")):
        if winning.get(name) is not None and other not in winning:
            merged.pop(other, None)
    return _rebuild(cast("JobOptionsDict", merged))


def layered(default: JobOptions, options: JobOptions | None, keywords: JobOptionsDict) -> JobOptions:
    """Return `default` overridden by `options`, and then by `keywords`.

    Raises TypeError if `options` is not a JobOptions, and the errors of JobOptions.
    """
    if options is None:
        return merge(default, keywords)
    if not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"options must be JobOptions, got {options!r}; pass JobOptions(...), or each option as a keyword"
        )
    return merge(merge(default, options), keywords)


def _rebuild(options: JobOptionsDict) -> JobOptions:
    return JobOptions(**options)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


class _Wire(TypedDict, total=False):
    a: int
    b: BackoffWire
    t: int
    l: int  # noqa: E741
    c: list[int]
    f: list[int]
    r: int
    h: dict[str, str]


def _read(data: bytes) -> JobOptions:
    if not data:
        return JobOptions()
    try:
        found = msgpack.unpackb(data)
        if not isinstance(found, dict):
            raise TypeError(f"a map is required, not {type(found).__name__}")
        return JobOptions(**_from_map(cast("_Wire", found)))
    except (TypeError, ValueError, AttributeError) as error:
        raise SerializationError(f"the stored job options {data[:40]!r} are invalid: {error}") from error


def _from_map(wire: _Wire) -> JobOptionsDict:
    options: JobOptionsDict = {}
    if "a" in wire:
        options["attempts"] = wire["a"]
    if "b" in wire:
        options["backoff"] = Backoff.from_wire(wire["b"])
    if "t" in wire:
        options["timeout"] = wire["t"] / 1000
    if "l" in wire:
        options["lock_duration"] = wire["l"] / 1000
    if "c" in wire:
        options["keep_completed"] = keep_from_wire(wire["c"])
    if "f" in wire:
        options["keep_failed"] = keep_from_wire(wire["f"])
    if "r" in wire:
        options["result_ttl"] = wire["r"] / 1000
    if "h" in wire:
        options["headers"] = wire["h"]
    return options


_read_short = lru_cache(maxsize=1024)(_read)
