"""The stored forms of the values that a job option may have: backoff, deduplication and retention.

stored_options.py has the stored form of all options of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from glidemq_async.errors import SerializationError
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.deduplication import Deduplication, ttl_ms
from glidemq_async.options.retention import KeepJobs, age_ms

__all__ = ["backoff_form", "deduplication_form", "keep_form", "read_backoff", "read_deduplication", "read_keep"]

BackoffForm: TypeAlias = dict[str, str | int | float]
"""The kind, and the fields that differ from the defaults. Durations are in milliseconds."""

_KINDS: Final[Mapping[str, Literal["fixed", "exponential", "custom"]]] = {
    "f": "fixed",
    "e": "exponential",
    "c": "custom",
}


def backoff_form(backoff: Backoff) -> BackoffForm:
    """Return the stored form of a backoff strategy, a small dict for msgpack."""
    if backoff.kind == "custom":
        return {"k": "c", "n": backoff.name}
    # Fields with a default value are left out. Most jobs of a queue have a backoff, and each of their records stores
    # this form.
    form: BackoffForm = {"k": backoff.kind[0], "d": round(backoff.initial * 1000)}
    if backoff.max is not None:
        form["m"] = round(backoff.max * 1000)
    if backoff.jitter:
        form["j"] = backoff.jitter
    if backoff.kind == "exponential" and backoff.factor != 2.0:
        form["x"] = backoff.factor
    return form


def read_backoff(form: Mapping[str, str | float]) -> Backoff:
    """Decode the result of `backoff_form`. Raises SerializationError for anything else."""
    # The constructors validate the stored values like given ones. Records may have been written by another version.
    try:
        kind = _KINDS[str(form["k"])]
        if kind == "custom":
            return Backoff.custom(_text(form["n"]))
        initial, cap = _seconds(form["d"]), form.get("m")
        longest = None if cap is None else _seconds(cap)
        jitter, factor = _float(form.get("j", 0.0)), _float(form.get("x", 2.0))
        if kind == "fixed":
            return Backoff.fixed(initial, jitter, longest)
        return Backoff.exponential(initial, longest, jitter, factor)
    except (KeyError, TypeError, ValueError) as error:
        raise SerializationError(f"the stored backoff {form!r} is invalid: {error}") from error


def deduplication_form(deduplication: Deduplication) -> dict[str, str | int]:
    """Return the form of a deduplication that the server functions read."""
    form: dict[str, str | int] = {"id": deduplication.id, "mode": deduplication.mode}
    if (ttl := ttl_ms(deduplication)) is not None:
        form["ttl"] = ttl
    return form


def read_deduplication(form: Mapping[str, Any]) -> Deduplication:
    """Decode the result of `deduplication_form`."""
    ttl = form.get("ttl")
    return Deduplication(form["id"], None if ttl is None else ttl / 1000, form["mode"])


def keep_form(keep: KeepJobs) -> list[int]:
    """Return [count, age in milliseconds]; -1 means no limit."""
    age = age_ms(keep)
    return [-1 if keep.count is None else keep.count, -1 if age is None else age]


def read_keep(form: list[int]) -> KeepJobs:
    """Decode the result of `keep_form`."""
    count, age = form
    return KeepJobs(age=None if age == -1 else age / 1000, count=None if count == -1 else count)


def _seconds(value: str | float) -> float:
    return _float(value) / 1000


def _float(value: str | float) -> float:
    if isinstance(value, str):
        raise TypeError(f"{value!r} is not a number")
    return value


def _text(value: str | float) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a name")
    return value
