"""The forms in which job options are sent to the server and stored in records. table.py describes each option."""

# `_given` is private, because users of JobOptions must not see it. Each add reads it, so a function would cost time.
# pyright: reportPrivateUsage=false
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import msgpack

from glidemq_async.durations import instant_to_ms
from glidemq_async.errors import SerializationError
from glidemq_async.options.deduplication import ttl_ms
from glidemq_async.options.job_options import JobOptions, JobOptionsDict
from glidemq_async.options.table import JOB_OPTIONS, WHOLE_COST

__all__ = ["ReplyTo", "due_ms", "is_placing", "pack_extra", "read_options", "stored_form", "to_extra", "unpack_extra"]

_SENT: Final = tuple(
    (name, option.sent, option.default, option.pack) for name, option in JOB_OPTIONS.items() if option.sent
)
_STORED: Final = tuple((name, option) for name, option in JOB_OPTIONS.items() if option.stored)
_STORED_NAMES: Final = frozenset(name for name, _ in _STORED)
_DELAYING: Final = frozenset({"delay", "at", "deduplication"})
_PLACING: Final = frozenset({"delay", "at", "priority", "lifo", "key", "cost", "deduplication"})
_BY_SHORT_NAME: Final = {option.stored: name for name, option in _STORED}
_SHORT: Final = 128
_HEADERS: Final = b"\xa1h"
"""The encoded key of the headers."""
_TWO: Final = b"\x82"
"""The start of an encoded map with two entries."""
_TTL: Final = b"\xa3ttl"
"""The encoded key of a time to live."""


def to_extra(options: JobOptions) -> dict[str, object]:
    """Return the part of the options that an add needs, in the form that functions/add.lua reads."""
    extra: dict[str, object] = {}
    given = options._given
    for name, sent, default, pack in _SENT:
        if name in given and (value := getattr(options, name)) != default:
            extra[sent] = pack(value)
    if options.key is None:
        extra.pop("cost", None)
    else:
        extra.setdefault("cost", WHOLE_COST)
    dedup = options.deduplication
    if dedup is not None and dedup.mode == "debounce" and options.delay is None and options.at is None:
        extra["delay"] = ttl_ms(dedup)
    return extra


class ReplyTo(NamedTuple):
    """The caller that waits for the result of a job that it adds."""

    channel: str
    ttl_ms: int | None = None
    """The time after which the job need not start any more, because its caller has left. None: no limit."""


def pack_extra(options: JobOptions, reply: ReplyTo | None = None) -> bytes:
    """Return the encoded part for an add."""
    if reply is not None and not options._given:  # most requests
        packed = _packed_channel(reply.channel)
        return packed if reply.ttl_ms is None else _TWO + packed[1:] + _TTL + msgpack.packb(reply.ttl_ms)
    extra = to_extra(options)
    if reply is not None:
        extra["reply"] = reply.channel
        # It is not an option of the job, so a user who retries the job later does not find it in the record.
        if reply.ttl_ms is not None:
            extra["ttl"] = min(reply.ttl_ms, cast("int", extra.get("ttl", reply.ttl_ms)))
    if len(extra) == 2 and extra.get("cost") == WHOLE_COST and options.key is not None:
        # Jobs whose only option is a key are frequent, and this form saves both sides the msgpack. It cannot be
        # confused with the other form: a msgpack map never begins with the byte "k".
        return b"k" + options.key.encode()
    return msgpack.packb(extra) if extra else b""


@lru_cache(maxsize=64)
def _packed_channel(channel: str) -> bytes:
    return msgpack.packb({"reply": channel})


def unpack_extra(packed: bytes) -> dict[str, Any]:
    """Decode the result of `pack_extra`."""
    if packed[:1] == b"k":
        return {"key": packed[1:].decode(), "cost": WHOLE_COST}
    return cast("dict[str, Any]", msgpack.unpackb(packed)) if packed else {}


def is_placing(options: JobOptions) -> bool:
    """Return whether an option may decide where the job waits."""
    return not _PLACING.isdisjoint(options._given)


def due_ms(options: JobOptions, now: int) -> int:
    """Return the earliest start in milliseconds since 1970, for an add at `now`."""
    if _DELAYING.isdisjoint(options._given):
        return now
    if options.at is not None:
        return instant_to_ms("at", options.at)
    delay, dedup = options.delay, options.deduplication
    if delay is None and dedup is not None and dedup.mode == "debounce":
        return now + (ttl_ms(dedup) or 0)
    return now + round((delay or 0) * 1000)


def stored_form(options: JobOptions) -> bytes:
    """Return the stored form, without default values; b"" if it has no other ones.

    The id, the priority, `lifo`, the key and the cost are not in it, because the record has them in other fields.
    """
    given = options._given
    if _STORED_NAMES.isdisjoint(given):  # most jobs with options have only a key
        return b""
    wire: dict[str, object] = {}
    for name, option in _STORED:
        if name in given and (value := getattr(options, name)) and value != option.default:
            wire[option.stored] = option.pack(value)
    return msgpack.packb(wire) if wire else b""


def changed_form(stored: bytes, options: JobOptions) -> bytes:
    """Return a stored form with the given options instead of its own. Raises ValueError for options of other fields."""
    given = options._given
    if other := sorted(given - _STORED_NAMES):
        raise ValueError(f"{', '.join(other)} cannot be edited; an edit changes {', '.join(sorted(_STORED_NAMES))}")
    wire = cast("dict[str, object]", msgpack.unpackb(stored, strict_map_key=False)) if stored else {}
    for name, option in _STORED:
        if name in given:
            wire.pop(option.stored, None)
            if (value := getattr(options, name)) and value != option.default:
                wire[option.stored] = option.pack(value)
    return msgpack.packb(wire)


def read_options(data: bytes) -> JobOptions:
    """Decode the result of `stored_form`. Unknown fields of a newer client are ignored.

    Raises SerializationError for other bytes.
    """
    # The test for headers is a search for two bytes. They may also occur inside another value, which only leaves these
    # options out of the cache.
    # Cached, because most jobs of a queue have the same options. Only headers differ from job to job.
    return _read_short(data) if len(data) <= _SHORT and _HEADERS not in data else _read(data)


def _read(data: bytes) -> JobOptions:
    if not data:
        return JobOptions()
    try:
        found = msgpack.unpackb(data)
        if not isinstance(found, dict):
            raise TypeError(f"a map is required, not {type(found).__name__}")
        return JobOptions(**_from_map(cast("Mapping[str, Any]", found)))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise SerializationError(f"the stored job options {data[:40]!r} are invalid: {error}") from error


def _from_map(wire: Mapping[str, Any]) -> JobOptionsDict:
    known = ((_BY_SHORT_NAME[short], value) for short, value in wire.items() if short in _BY_SHORT_NAME)
    return cast("JobOptionsDict", {name: JOB_OPTIONS[name].unpack(value) for name, value in known})


_read_short = lru_cache(maxsize=1024)(_read)
