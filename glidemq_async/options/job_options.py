"""The options of a job: their checks, and the stored part that workers read.

Nothing here calls a server. All checks happen before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast

import msgpack

from glidemq_async.durations import instant_to_ms
from glidemq_async.errors import SerializationError
from glidemq_async.functions.calling import Wait
from glidemq_async.options import validation as checks
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.retention import DEFAULT_KEEP_COMPLETED, DEFAULT_KEEP_FAILED, KeepJobs
from glidemq_async.options.table import JOB_OPTIONS, WHOLE_COST

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


_SENT: Final = tuple((name, option) for name, option in JOB_OPTIONS.items() if option.sent)
_STORED: Final = tuple((name, option) for name, option in JOB_OPTIONS.items() if option.stored)
_PLACING: Final = frozenset({"delay", "at", "priority", "lifo", "key", "cost", "deduplication"})
_BY_LETTER: Final = {option.stored: name for name, option in _STORED}


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
        checks.refuse_unknown(given, JOB_OPTIONS)
        put = object.__setattr__
        put(self, "given", frozenset(given))
        for name, option in JOB_OPTIONS.items():
            put(self, name, option.check(name, given[name]) if name in given else option.default)
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
        found = {name: getattr(self, name) for name in JOB_OPTIONS if name in self.given}
        return cast("JobOptionsDict", found)

    def with_headers(self, headers: Mapping[str, str]) -> JobOptions:
        """Return a copy with other headers. Raises TypeError, ValueError or PayloadTooLarge for bad headers."""
        return self if headers == self.headers else self.changed(headers=checks.headers("headers", headers))

    def changed(self, **values: object) -> JobOptions:
        """Return a copy with other values, which are not validated."""
        changed = object.__new__(JobOptions)
        put = object.__setattr__
        for name in JOB_OPTIONS:
            put(changed, name, values[name] if name in values else getattr(self, name))
        put(changed, "given", self.given.union(values))
        return changed

    def to_extra(self) -> dict[str, object]:
        """Return the part of the options that an add needs, in the form that functions/add.lua reads."""
        extra: dict[str, object] = {}
        given = self.given
        for name, option in _SENT:
            if name in given and (value := getattr(self, name)) != option.default:
                extra[option.sent] = option.pack(value)
        if self.key is None:
            extra.pop("cost", None)
        else:
            extra.setdefault("cost", WHOLE_COST)
        dedup = self.deduplication
        if dedup is not None and dedup.mode == "debounce" and self.delay is None and self.at is None:
            extra["delay"] = dedup.ttl_ms
        return extra

    @property
    def places(self) -> bool:
        """True if an option may decide where the job waits."""
        return not _PLACING.isdisjoint(self.given)

    def due_ms(self, now: int) -> int:
        """Return the earliest start in milliseconds since 1970, for an add at `now`."""
        if self.at is not None:
            return instant_to_ms("at", self.at)
        delay, dedup = self.delay, self.deduplication
        if delay is None and dedup is not None and dedup.mode == "debounce":
            return now + (dedup.ttl_ms or 0)
        return now + round((delay or 0) * 1000)

    def pack_extra(self, reply: bytes = b"") -> bytes:
        """Return the encoded part for an add. `reply` is the channel on which the caller waits for the result."""
        extra = self.to_extra()
        if reply:
            extra["reply"] = reply.decode()
        if len(extra) == 2 and extra.get("cost") == WHOLE_COST and self.key is not None:
            return b"k" + self.key.encode()
        return msgpack.packb(extra) if extra else b""

    @staticmethod
    def unpack_extra(packed: bytes) -> dict[str, Any]:
        """Decode the result of `pack_extra`."""
        if packed[:1] == b"k":
            return {"key": packed[1:].decode(), "cost": WHOLE_COST}
        return cast("dict[str, Any]", msgpack.unpackb(packed)) if packed else {}

    def retention(self, state: Literal["completed", "failed"]) -> KeepJobs:
        """Return the retention for jobs that end in `state`, or the default if the option is not set."""
        if state == "completed":
            return self.keep_completed or DEFAULT_KEEP_COMPLETED
        return self.keep_failed or DEFAULT_KEEP_FAILED

    def to_wire(self) -> bytes:
        """Return the stored form, without default values; b"" if it has no other ones.

        The id, the priority, `lifo`, the key and the cost are not in it, because the record has them in other fields.
        """
        wire: dict[str, object] = {}
        given = self.given
        for name, option in _STORED:
            if name in given and (value := getattr(self, name)) and value != option.default:
                wire[option.stored] = option.pack(value)
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


def _read(data: bytes) -> JobOptions:
    if not data:
        return JobOptions()
    try:
        found = msgpack.unpackb(data)
        if not isinstance(found, dict):
            raise TypeError(f"a map is required, not {type(found).__name__}")
        return _rebuild(_from_map(cast("Mapping[str, Any]", found)))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise SerializationError(f"the stored job options {data[:40]!r} are invalid: {error}") from error


def _from_map(wire: Mapping[str, Any]) -> JobOptionsDict:
    known = ((_BY_LETTER[letter], value) for letter, value in wire.items() if letter in _BY_LETTER)
    return cast("JobOptionsDict", {name: JOB_OPTIONS[name].unpack(value) for name, value in known})


_read_short = lru_cache(maxsize=1024)(_read)
