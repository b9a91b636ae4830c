"""The options of `spark.read` and `spark.readStream`, parsed and checked before anything is read.

Spark passes options as strings with case-insensitive names. An unknown option is an error, and so is one that has no
effect on the selected table, because the user expects an effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, TypeAlias, cast, get_args

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.durations import from_ms
from glidemq_async.queues.events import EventKind
from glidemq_async.spark.connection import belongs_in_url
from glidemq_async.spark.requirements import spark_version
from glidemq_async.stored.names import check_name
from glidemq_async.stored.record import STATES

KINDS: Final = ("events", "jobs", "dlq", "queues", "schedulers", "writes", "workers", "results", "losses", "readers")
ADMISSION: Final = (4, 2)
"""The first version of Spark that passes limits of a batch to a Python source."""
PUSHDOWN: Final = (4, 1)
"""The first version of Spark that passes filters to a Python source."""

_EVERYWHERE: Final = {"kind", "url", "prefix", "subscribe", "subscribePattern"}
_EVENTS: Final = {
    *("startingOffsets", "startingTimestamp", "minPartitions", "maxRecordsPerPartition", "fetchSize"),
    *("failOnDataLoss", "events"),
}
_JOBS: Final = {"states", "ids", "names", "createdAfter", "includeData", "minPartitions", "pushdown"}
_OF_BATCH: Final = {
    "events": _EVERYWHERE | _EVENTS | {"endingOffsets", "endingTimestamp"},
    "jobs": _EVERYWHERE | _JOBS,
    "dlq": _EVERYWHERE | _JOBS - {"states", "minPartitions", "pushdown"},
    "results": _EVERYWHERE | _JOBS,
}
_OF_STREAM: Final = (_EVERYWHERE | _EVENTS | {"publishPosition", "retainUncommitted"}) | {
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
}
_REGEX: Final = re.compile(r"\.[*+]|[$^\\]")
"""Signs that are rare in file name patterns and frequent in regular expressions."""
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


OffsetSpec: TypeAlias = str | int | tuple[int]
"""The start or end of a read: "earliest", "latest", an event's offset or number, or (milliseconds since 1970,)."""


@dataclass(frozen=True)
class ReadOptions:
    """The checked options of one reader. Spark pickles them with it, so they are plain values."""

    url: str = field(repr=False)
    kind: str = "events"
    prefix: str = DEFAULT_PREFIX
    queues: tuple[str, ...] = ()
    pattern: str | None = None
    starting: OffsetSpec | dict[str, OffsetSpec] = "latest"
    ending: OffsetSpec | dict[str, OffsetSpec] = "latest"
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000
    min_partitions: int = 1
    max_records: int | None = None
    fetch_size: int = 10_000
    fail_on_loss: bool = True
    events: tuple[str, ...] = ()
    position_name: str | None = None
    retain: bool = False
    states: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    created_after_ms: int | None = None
    include_data: bool = False
    pushdown: bool = False


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a reader. Raises ValueError with the option, its value and the remedy."""
    reading = _OptionReader(given)
    kind = reading.text("kind") or "events"
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if streaming and kind != "events":
        raise ValueError(f"kind={kind} is not a stream, only events are; use spark.read instead of spark.readStream")
    reading.check_names(_OF_STREAM if streaming else _OF_BATCH.get(kind, _EVERYWHERE), kind)
    url = reading.text("url")
    if not url:
        raise ValueError(
            'the option url is missing; set it to the server of the queues, as in option("url", "redis://host:6379")'
        )
    name = reading.text("publishPosition")
    if reading.flag("retainUncommitted", default=False) and not name:
        raise ValueError("retainUncommitted needs a name of the reader; set publishPosition")
    options = ReadOptions(
        url=url,
        kind=kind,
        prefix=check_name("prefix", reading.text("prefix") or DEFAULT_PREFIX),
        queues=tuple(check_name("queue name", queue) for queue in reading.texts("subscribe")),
        pattern=reading.pattern("subscribePattern"),
        starting=reading.offset_spec("starting", "latest" if streaming else "earliest"),
        ending=reading.offset_spec("ending", "latest"),
        max_offsets=reading.number("maxOffsetsPerTrigger"),
        min_offsets=reading.number("minOffsetsPerTrigger"),
        max_delay_ms=reading.duration("maxTriggerDelay", 900_000),
        min_partitions=reading.number("minPartitions") or 1,
        max_records=reading.number("maxRecordsPerPartition"),
        fetch_size=reading.number("fetchSize") or 10_000,
        fail_on_loss=reading.flag("failOnDataLoss", default=True),
        events=reading.choices("events", get_args(EventKind)),
        position_name=None if name is None else check_name("publishPosition", name),
        retain=reading.flag("retainUncommitted", default=False),
        states=reading.choices("states", STATES),
        ids=reading.texts("ids"),
        names=reading.texts("names"),
        created_after_ms=reading.instant("createdAfter"),
        include_data=reading.flag("includeData", default=False),
        pushdown=reading.flag("pushdown", default=False),
    )
    if bool(options.queues) == bool(options.pattern):
        raise ValueError(
            "set exactly one of subscribe (names of queues, separated by commas) and subscribePattern (a pattern such "
            f"as mail-*), got {'both' if options.pattern else 'neither'}"
        )
    _check_version(options)
    if options.pushdown and spark_version() < PUSHDOWN:
        raise ValueError(
            f"pushdown needs Spark {PUSHDOWN[0]}.{PUSHDOWN[1]} or newer; use the options states, names and ids instead"
        )
    return options


def _check_version(options: ReadOptions) -> None:
    limited = [
        name
        for name, value in (
            ("maxOffsetsPerTrigger", options.max_offsets),
            ("minOffsetsPerTrigger", options.min_offsets),
        )
        if value is not None
    ]
    found = spark_version()
    if limited and found < ADMISSION:
        raise ValueError(
            f"{' and '.join(limited)} needs Spark {ADMISSION[0]}.{ADMISSION[1]} or newer, and this is "
            f"{found[0]}.{found[1]}, which cannot limit a batch; remove the option"
        )


# Options by their names in lower case, as Spark passes them.
_SPELLED: Final = {name.lower(): name for names in (_OF_STREAM, *_OF_BATCH.values()) for name in names}


def _hint(name: str, known: Mapping[str, str], kind: str) -> str:
    """Return the remedy for an option that this read does not have. `name` and the keys of `known` are lower case."""
    option = _SPELLED.get(name)
    if option is not None and kind == "events" and option in _OF_STREAM | _OF_BATCH["events"]:
        return f"it needs {'a stream: use spark.readStream' if option in _OF_STREAM else 'a table: use spark.read'}"
    if option is not None:
        return f"it needs kind={', '.join(each for each, names in _OF_BATCH.items() if option in names) or 'events'}"
    near = get_close_matches(name, known, n=1)
    return f"did you mean {known[near[0]]!r}?" if near else f"the options are {', '.join(sorted(known.values()))}"


class _OptionReader:
    """Parser of option values. Its errors contain the name of the option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def check_names(self, known: set[str], kind: str) -> None:
        by_lower = {name.lower(): name for name in known}
        unknown = sorted(self._given.keys() - by_lower.keys())
        if unknown:
            name = _SPELLED.get(unknown[0], unknown[0])
            hint = belongs_in_url(unknown[0]) or _hint(unknown[0], by_lower, kind)
            raise ValueError(f"the option {name!r} does not exist for this read of kind={kind}; {hint}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def pattern(self, name: str) -> str | None:
        """Return a file name pattern. A regular expression, as in other sources, would silently match no queue."""
        text = self.text(name)
        # Brackets escape a sign.
        signs = () if text is None else _REGEX.findall(re.sub(r"\[[^]]*\]", "", text))
        if signs:
            raise ValueError(
                f"{name}={text!r} looks like a regular expression ({' '.join(dict.fromkeys(signs))}); use a file name "
                "pattern: * is any text, ? one character, [ab] one of these, so mail-* is all names that begin with "
                "mail-. Put a sign that is part of a name into brackets: mail[.]*"
            )
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list without repetitions: separated by commas, or JSON if a value contains commas."""
        text = self.text(name)
        if text is None:
            return ()
        if text.lstrip().startswith("["):
            found = self._json(name, text)
            if not isinstance(found, list) or not all(isinstance(one, str) for one in cast("list[object]", found)):
                raise ValueError(f"{name} must be a list of strings, got {text!r}")
            return tuple(dict.fromkeys(cast("list[str]", found)))
        return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))

    def choices(self, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
        found = self.texts(name)
        for one in found:
            if one not in known:
                raise ValueError(f"{name} must be some of {', '.join(known)}, got {one!r}")
        return found

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {text!r}")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text == "true"

    def duration(self, name: str, default: int) -> int:
        """Return a duration such as 30s or 15m in milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz").strip()
        unit = text[len(text.rstrip("abcdefghijklmnopqrstuvwxyz")) :]
        if not number.isdecimal() or unit not in _UNITS:
            raise ValueError(f"{name} must be a number with one of the units {', '.join(_UNITS)}, got {text!r}")
        return int(number) * _UNITS[unit]

    def instant(self, name: str) -> int | None:
        """Return milliseconds since 1970, from a number or from an ISO time (UTC if it has no time zone)."""
        text = self.text(name)
        if text is None:
            return None
        try:
            if text.strip().isdecimal():
                from_ms(int(text))  # raises OverflowError for instants after year 9999
                return int(text)
            found = datetime.fromisoformat(text.strip())
        except (ValueError, OverflowError):
            raise ValueError(
                f"{name} must be milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z, got {text!r}"
            ) from None
        # No event is older than 1970, and the server does not accept negative instants.
        return max(0, round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))

    def offset_spec(self, prefix: str, default: str) -> OffsetSpec | dict[str, OffsetSpec]:
        """Return the start or end of a read, for all queues or by queue. `prefix` is "starting" or "ending"."""
        name, instant = f"{prefix}Offsets", self.instant(f"{prefix}Timestamp")
        text = self.text(name)
        if text is not None and instant is not None:
            raise ValueError(f"{name} and {prefix}Timestamp exclude each other; remove one")
        if instant is not None:
            return (instant,)
        if text is None or text.strip().lower() in ("earliest", "latest"):
            return (text or default).strip().lower()
        found = self._json(name, text)
        if not isinstance(found, dict):
            raise ValueError(  # noqa: TRY004 - an option's value
                f'{name} must be "earliest", "latest" or {{"queue": number}}, got {text!r}'
            )
        return _checked_specs(name, cast("dict[str, object]", found))

    def _json(self, name: str, text: str) -> object:
        try:
            return cast("object", json.loads(text))
        except ValueError:
            raise ValueError(f"{name} must be JSON, got {text!r}") from None


def _is_offset_spec(spec: object) -> bool:
    if isinstance(spec, str):
        return spec in ("earliest", "latest") or split_offset(spec) is not None
    return isinstance(spec, int) and not isinstance(spec, bool) and spec >= 0


def split_offset(text: str) -> tuple[str, int] | None:
    """Return the entry of an event's offset and its index there, or None if the text is not an offset."""
    entry, _, index = text.partition("/")
    ms, dash, number = entry.partition("-")
    numbers = [ms, number, index or "0"]
    if dash and all(one.isascii() and one.isdecimal() and int(one) < 2**64 for one in numbers):
        return entry, int(index or 0)
    return None


def _checked_specs(name: str, specs: dict[str, object]) -> dict[str, OffsetSpec]:
    for queue, spec in specs.items():
        if not _is_offset_spec(spec):
            raise ValueError(
                f"{name} of queue {queue!r} must be the number (seq) or the offset of an event, "
                f'"earliest" or "latest", got {spec!r}'
            )
    return cast("dict[str, OffsetSpec]", specs)
