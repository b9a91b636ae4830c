"""The rules of a queue's events: which kinds it writes, their content, their number. Server side: event_rules.lua."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import to_ms
from glidemq_async.functions.settings import Author, StoredSettings
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.base import QueuePart
from glidemq_async.queues.events import EventKind
from glidemq_async.queues.limits import UNCHANGED, Unchanged

MAX_EVENTS: Final = 100_000
"""Maximum number of events that a queue keeps."""
EventContent: TypeAlias = Literal["size", "value"]
_ALL: Final = "all"
_ALWAYS: Final[EventKind] = "obliterated"
"""Readers learn from this event that the numbers of the events begin again."""
SWITCHED_KINDS: Final = frozenset(get_args(EventKind)) - {_ALWAYS}
"""The kinds that can be switched off."""
_LONGEST: Final = timedelta(days=1)
_SETTINGS: Final = {
    "max_events": "max_events",
    "off": "events_off",
    "progress_interval": "progress_interval",
    "content": "event_content",
}
"""The setting of each parameter."""
EVENT_RULES: Final = frozenset(_SETTINGS.values())
"""The names of the settings that are rules of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRules:
    """The rules of a queue's events.

    - `max_events` is the number of events that the queue keeps: 1 to 100,000. None means 100,000.
    - `off` are the kinds that the queue does not write, or "all". The kind "obliterated" is always written.
    - `progress_interval` is the least time in seconds between two `progress` events of a job. None writes each.
    - `content` adds the name and the ordering key of the job to the events `completed`, `failed` and `retrying`. "size"
      adds the size of the result to `completed` too, and "value" also results of up to 1 KiB.

    Raises TypeError or ValueError for a bad rule.
    """

    max_events: int | None = None
    off: Sequence[EventKind] | Literal["all"] | None = None
    progress_interval: float | timedelta | None = None
    content: EventContent | None = None

    def __post_init__(self) -> None:
        stored_rules(self.max_events, self.off, self.progress_interval, self.content)
        if self.off is not None and not isinstance(self.off, str):
            object.__setattr__(self, "off", tuple(sorted(self.off)) or None)
        if self.progress_interval is not None:
            object.__setattr__(self, "progress_interval", to_ms("progress_interval", self.progress_interval) / 1000)


class EventSettings(QueuePart[Data, Result]):
    """The methods of Queue for the rules of its events."""

    async def set_events(
        self,
        *,
        max_events: int | Unchanged | None = UNCHANGED,
        off: Sequence[EventKind] | Literal["all"] | Unchanged | None = UNCHANGED,
        progress_interval: float | timedelta | Unchanged | None = UNCHANGED,
        content: EventContent | Unchanged | None = UNCHANGED,
    ) -> None:
        """Set rules of the queue's events, as in EventRules. None removes a rule.

        Parameters that are left out stay unchanged. A rule applies to all later events, of all processes. Raises
        TypeError or ValueError for a bad rule, and TypeError without one.
        """
        await change_events(self, None, max_events, off, progress_interval, content)

    async def get_event_rules(self) -> EventRules:
        """Return the rules of the queue's events that apply."""
        await self.connect()
        return _rules(await self._client.functions.settings.get())


async def change_events(
    queue: EventSettings[Any, Any],
    by: Author | None,
    max_events: int | Unchanged | None = UNCHANGED,
    off: Sequence[EventKind] | Literal["all"] | Unchanged | None = UNCHANGED,
    progress_interval: float | timedelta | Unchanged | None = UNCHANGED,
    content: EventContent | Unchanged | None = UNCHANGED,
) -> None:
    """Set rules of events in the name of an author; see `EventSettings.set_events`."""
    rules = stored_rules(max_events, off, progress_interval, content)
    if not rules:
        raise TypeError("name at least one rule: max_events=, off=, progress_interval= or content=")
    await queue.connect()
    await change_stored_rules(queue, by, rules)


async def change_stored_rules(queue: QueuePart[Any, Any], by: Author | None, rules: Mapping[str, str]) -> None:
    """Set rules of events in stored form. Needs `connect`."""
    await queue._client.functions.event_rules.set(by, rules)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def stored_rules(
    max_events: int | Unchanged | None,
    off: Sequence[EventKind] | Literal["all"] | Unchanged | None,
    progress_interval: float | timedelta | Unchanged | None,
    content: EventContent | Unchanged | None,
) -> dict[str, str]:
    """Return rules in stored form, by setting; "" for None. Raises TypeError or ValueError."""
    rules: dict[str, str] = {}
    if not isinstance(max_events, Unchanged):
        most = max_events if max_events is None else whole_number("max_events", max_events, least=1, most=MAX_EVENTS)
        rules["max_events"] = "" if most is None else str(most)
    if not isinstance(off, Unchanged):
        rules["events_off"] = "" if off is None else _kinds_form(off)
    if not isinstance(progress_interval, Unchanged):
        rules["progress_interval"] = "" if progress_interval is None else _interval_form(progress_interval)
    if not isinstance(content, Unchanged):
        if content is not None and content not in get_args(EventContent):
            raise ValueError(f'content must be "size", "value" or None, not {content!r}')
        rules["event_content"] = content or ""
    return rules


def event_declaration(rules: EventRules) -> dict[str, str]:
    """Return the declared rules of a queue in stored form, by setting."""
    stored = stored_rules(*(getattr(rules, field.name) for field in fields(rules)))
    return {name: value for name, value in stored.items() if value}


def _kinds_form(off: Sequence[EventKind] | Literal["all"]) -> str:
    if isinstance(off, str):
        if off == _ALL:
            return _ALL
        raise TypeError(f'off must be "all" or several kinds of events, not the text {off!r}; write ({off!r},)')
    kinds = get_args(EventKind)
    for kind in off:
        if kind == _ALWAYS:
            raise ValueError(f"the event {kind!r} is always written: readers learn from it that the queue has ended")
        if kind not in kinds:
            near = get_close_matches(str(kind), kinds, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the kinds are {', '.join(kinds)}"
            raise ValueError(f"there is no event {kind!r}{hint}")
    return " ".join(sorted(set(off)))


def _interval_form(interval: float | timedelta) -> str:
    length = to_ms("progress_interval", interval)
    if not 1 <= length <= _LONGEST / timedelta(milliseconds=1):
        raise ValueError(f"progress_interval must be 0.001 s to one day, not {interval!r}")
    return str(length)


def _rules(stored: StoredSettings) -> EventRules:
    found = stored.events
    off, interval = found.get("events_off"), found.get("progress_interval")
    return EventRules(
        max_events=int(found["max_events"]) if "max_events" in found else None,
        off=_ALL if off == _ALL else cast("tuple[EventKind, ...]", tuple(off.split())) if off else None,
        progress_interval=int(interval) / 1000 if interval else None,
        content=cast("EventContent | None", found.get("event_content")),
    )


async def release_rule(queue: EventSettings[Any, Any], by: Author, setting: str) -> None:
    """End the hold of an operator on a rule: the declared rule applies again, or none."""
    await queue.connect()
    await change_stored_rules(queue, by, {setting: ""})
