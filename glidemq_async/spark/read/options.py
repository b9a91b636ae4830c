"""What a reader is told: the options of `spark.read` and `spark.readStream`, checked before anything is read.

Spark hands them over as texts whose names ignore upper and lower case. An option that does not exist, or does nothing
for what is read, is refused: it would be a wish that nobody hears.
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
"""The first version of Spark that asks a Python source for no more than it can take."""
PUSHDOWN: Final = (4, 1)
"""The first version of Spark that hands filters to a Python source."""

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
"""What patterns of file names hardly ever hold, and regular expressions often do."""
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


Place: TypeAlias = str | int | tuple[int]
"""Where reading starts or ends: "earliest", "latest", an event's offset or number, milliseconds since 1970."""


@dataclass(frozen=True)
class ReadOptions:
    """The options of one reader, checked. Pickled with it: nothing here is more than a plain value."""

    url: str = field(repr=False)
    kind: str = "events"
    prefix: str = DEFAULT_PREFIX
    queues: tuple[str, ...] = ()
    pattern: str | None = None
    starting: Place | dict[str, Place] = "latest"
    ending: Place | dict[str, Place] = "latest"
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
    """Return the options of a reader. Raises ValueError that says what was asked, what was found and what to do."""
    reading = _Reading(given)
    kind = reading.text("kind") or "events"
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if streaming and kind != "events":
        raise ValueError(f"only events are a stream; read kind={kind} with spark.read instead of spark.readStream")
    reading.check_names(_OF_STREAM if streaming else _OF_BATCH.get(kind, _EVERYWHERE), kind)
    url = reading.text("url")
    if not url:
        raise ValueError(
            'option("url", …) is missing: where the queues live, such as redis://host:6379 or file:///directory'
        )
    name = reading.text("publishPosition")
    if reading.flag("retainUncommitted", default=False) and not name:
        raise ValueError("retainUncommitted needs publishPosition: the name under which the reader is known")
    options = ReadOptions(
        url=url,
        kind=kind,
        prefix=check_name("prefix", reading.text("prefix") or DEFAULT_PREFIX),
        queues=tuple(check_name("queue name", queue) for queue in reading.texts("subscribe")),
        pattern=reading.pattern("subscribePattern"),
        starting=reading.place("starting", "latest" if streaming else "earliest"),
        ending=reading.place("ending", "latest"),
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
            "exactly one of subscribe (names of queues, separated by commas) and subscribePattern (a pattern such as "
            f"mail-*) is needed, got {'both' if options.pattern else 'neither'}"
        )
    _check_version(options)
    if options.pushdown and spark_version() < PUSHDOWN:
        raise ValueError(
            f"pushdown needs Spark {PUSHDOWN[0]}.{PUSHDOWN[1]} or newer: use the options states, names, ids"
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
            f"{' and '.join(limited)} needs Spark {ADMISSION[0]}.{ADMISSION[1]} or newer, found "
            f"{found[0]}.{found[1]}: older ones would read a part and call it all; leave the option out"
        )


#: Every option by its name in lower case, which is how Spark hands it over.
_SPELLED: Final = {name.lower(): name for names in (_OF_STREAM, *_OF_BATCH.values()) for name in names}


def _hint(name: str, known: Mapping[str, str], kind: str) -> str:
    """Say what to do about an option that is unknown for what is read; `name` and the keys in lower case."""
    option = _SPELLED.get(name)
    if option is not None and kind == "events" and option in _OF_STREAM | _OF_BATCH["events"]:
        return f"it is for {'streams: use spark.readStream' if option in _OF_STREAM else 'tables: use spark.read'}"
    if option is not None:
        return f"it is for kind={', '.join(each for each, names in _OF_BATCH.items() if option in names) or 'events'}"
    near = get_close_matches(name, known, n=1)
    return f"did you mean {known[near[0]]!r}?" if near else f"known are {', '.join(sorted(known.values()))}"


class _Reading:
    """Options as texts, read one by one."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def check_names(self, known: set[str], kind: str) -> None:
        by_lower = {name.lower(): name for name in known}
        unknown = sorted(self._given.keys() - by_lower.keys())
        if unknown:
            name = _SPELLED.get(unknown[0], unknown[0])
            hint = belongs_in_url(unknown[0]) or _hint(unknown[0], by_lower, kind)
            raise ValueError(f"the option {name!r} means nothing when kind={kind} is read here; {hint}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def pattern(self, name: str) -> str | None:
        """A pattern as file names have them; the regular expressions of other sources would match nothing, unheard."""
        text = self.text(name)
        # What stands in brackets is meant as it is.
        signs = () if text is None else _REGEX.findall(re.sub(r"\[[^]]*\]", "", text))
        if signs:
            raise ValueError(
                f"{name}={text!r} looks like a regular expression ({' '.join(dict.fromkeys(signs))}); it takes a "
                "pattern as file names have them: * is any text, ? one character, [ab] one of these, so mail-* for all "
                "that begin with mail-. A sign that is part of a name stands in brackets: mail[.]*"
            )
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        """A list without repetitions: separated by commas, or JSON where commas are part of it."""
        text = self.text(name)
        if text is None:
            return ()
        if text.lstrip().startswith("["):
            found = self._json(name, text)
            if not isinstance(found, list) or not all(isinstance(one, str) for one in cast("list[object]", found)):
                raise ValueError(f"{name} must be a list of texts, got {text!r}")
            return tuple(dict.fromkeys(cast("list[str]", found)))
        return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))

    def choices(self, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
        found = self.texts(name)
        for one in found:
            if one not in known:
                raise ValueError(f"{name} may hold {', '.join(known)}, got {one!r}")
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
        """Milliseconds of such as 30s or 15m."""
        text = self.text(name)
        if text is None:
            return default
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz").strip()
        unit = text[len(text.rstrip("abcdefghijklmnopqrstuvwxyz")) :]
        if not number.isdecimal() or unit not in _UNITS:
            raise ValueError(f"{name} must be a number with one of the units {', '.join(_UNITS)}, got {text!r}")
        return int(number) * _UNITS[unit]

    def instant(self, name: str) -> int | None:
        """Milliseconds since 1970, given so or as a time with its zone (without one it is UTC)."""
        text = self.text(name)
        if text is None:
            return None
        try:
            if text.strip().isdecimal():
                from_ms(int(text))  # raises OverflowError for what no calendar has
                return int(text)
            found = datetime.fromisoformat(text.strip())
        except (ValueError, OverflowError):
            raise ValueError(
                f"{name} must be milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z, got {text!r}"
            ) from None
        # Before 1970 there was nothing, and the server knows no such instants.
        return max(0, round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))

    def place(self, word: str, default: str) -> Place | dict[str, Place]:
        """Where reading starts or ends, for all queues or for each."""
        name, instant = f"{word}Offsets", self.instant(f"{word}Timestamp")
        text = self.text(name)
        if text is not None and instant is not None:
            raise ValueError(f"{name} and {word}Timestamp say the same thing: give one of them")
        if instant is not None:
            return (instant,)
        if text is None or text.strip().lower() in ("earliest", "latest"):
            return (text or default).strip().lower()
        found = self._json(name, text)
        if not isinstance(found, dict):
            raise ValueError(  # noqa: TRY004 - an option's value
                f'{name} must be "earliest", "latest" or {{"queue": number}}, got {text!r}'
            )
        places = cast("dict[str, object]", found)
        for queue, place in places.items():
            if not _is_place(place):
                raise ValueError(
                    f"{name} of queue {queue!r} must be the number (seq) or the offset of an event, "
                    f'"earliest" or "latest", got {place!r}'
                )
        return cast("dict[str, Place]", places)

    def _json(self, name: str, text: str) -> object:
        try:
            return cast("object", json.loads(text))
        except ValueError:
            raise ValueError(f"{name} is no JSON: {text!r}") from None


def _is_place(place: object) -> bool:
    if isinstance(place, str):
        return place in ("earliest", "latest") or split_offset(place) is not None
    return isinstance(place, int) and not isinstance(place, bool) and place >= 0


def split_offset(text: str) -> tuple[str, int] | None:
    """Return the entry of an event's offset and its place there, None for what is no offset."""
    entry, _, index = text.partition("/")
    ms, dash, number = entry.partition("-")
    numbers = [ms, number, index or "0"]
    if dash and all(one.isascii() and one.isdecimal() and int(one) < 2**64 for one in numbers):
        return entry, int(index or 0)
    return None
