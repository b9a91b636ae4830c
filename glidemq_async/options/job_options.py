"""The options of a job as an object. All checks happen before anything is sent.

table.py describes each option, and stored_options.py has their stored forms.
"""

# The functions of this module use private attributes of JobOptions.
# pyright: reportPrivateUsage=false
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypedDict, Unpack, cast

from glidemq_async.functions.calling import Wait
from glidemq_async.options import validation as checks
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.retention import KeepJobs
from glidemq_async.options.table import JOB_OPTIONS

__all__ = [
    "Durability",
    "JobOptions",
    "JobOptionsDict",
    "KeepJobs",
    "explicit",
    "layered",
    "merge",
]

Durability: TypeAlias = Wait


# Three forms of one table: this one for type checkers and keywords, JobOptions for values, and `JOB_OPTIONS` for
# everything that is computed (checks, stored forms, flags of the command line, columns of Spark).
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


_CHECKS: Final = {name: option.check for name, option in JOB_OPTIONS.items()}


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

    `given` has the names of the options that were set, even if they were set to their default.

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
    _given: frozenset[str] = field(compare=False, init=False)

    def __init__(self, **options: Unpack[JobOptionsDict]) -> None:
        given = cast("dict[str, object]", options)
        checks.refuse_unknown(given, JOB_OPTIONS)
        for set_default, default in _DEFAULTS:
            set_default(self, default)
        put = object.__setattr__
        put(self, "_given", frozenset(given))
        for name, value in given.items():
            put(self, name, _CHECKS[name](name, value))
        if len(given) > 1 or self.deduplication is not None:
            self._refuse_conflicts()

    def _refuse_conflicts(self) -> None:
        if self.delay is not None and self.at is not None:
            raise ValueError(f"delay={self.delay!r} and at={self.at!r} cannot be combined; use one of them")
        if self.lifo and (self.priority or self.key is not None):
            other = f"key={self.key!r}" if self.key is not None else f"priority={self.priority!r}"
            raise ValueError(f"lifo and {other} cannot be combined; use one of them")
        dedup = self.deduplication
        if dedup is not None and dedup.mode == "debounce" and dedup.ttl is None and self.delay is None and not self.at:
            raise ValueError("mode 'debounce' needs ttl=, delay= or at=, the time that the job waits for later adds")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in explicit(self).items())
        return f"JobOptions({shown})"

    def __reduce__(self) -> tuple[object, tuple[JobOptionsDict]]:
        found = explicit(self)
        # The headers are a read-only view (MappingProxyType), which pickle refuses.
        if "headers" in found:
            found["headers"] = dict(self.headers)
        return _rebuild, (found,)

    def with_headers(self, headers: Mapping[str, str]) -> JobOptions:
        """Return a copy with other headers. Raises TypeError, ValueError or PayloadTooLarge for bad headers."""
        return self if headers == self.headers else replaced(self, headers=checks.headers("headers", headers))


# Each add with options sets all defaults. A call of the slot takes two thirds of the time of `object.__setattr__`.
_DEFAULTS: Final = tuple((getattr(JobOptions, name).__set__, option.default) for name, option in JOB_OPTIONS.items())


def explicit(options: JobOptions) -> JobOptionsDict:
    """Return only the options that were set, after validation."""
    found = {name: getattr(options, name) for name in JOB_OPTIONS if name in options._given}
    return cast("JobOptionsDict", found)


def replaced(options: JobOptions, **values: object) -> JobOptions:
    """Return a copy of the options with other values, which are not validated."""
    # Without `__init__`, which would validate all options again. `options` was validated when it was created, and
    # `values` come from a record or were validated by the caller.
    changed = object.__new__(JobOptions)
    put = object.__setattr__
    for name in JOB_OPTIONS:
        put(changed, name, values[name] if name in values else getattr(options, name))
    put(changed, "_given", options._given.union(values))
    return changed


def merge(default: JobOptions, overrides: JobOptions | JobOptionsDict | Mapping[str, object]) -> JobOptions:
    """Return `default` with every option that `overrides` sets, even to a default value or None.

    An overriding `delay` replaces a default `at`, and vice versa. Raises the same errors as JobOptions.
    """
    if not default._given:  # most queues have no defaults
        if isinstance(overrides, JobOptions):
            return overrides if overrides._given else default
        return _rebuild(cast("JobOptionsDict", overrides)) if overrides else default
    winning: Mapping[str, object] = {**(explicit(overrides) if isinstance(overrides, JobOptions) else overrides)}
    if not winning:
        return default
    merged: dict[str, object] = {**explicit(default), **winning}
    # The two exclude each other, so a default of the queue must give way. Otherwise no job of that queue could use the
    # other one.
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
