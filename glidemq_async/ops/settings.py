"""The settings of a queue: their values, who has set them, and what the code declares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from glidemq_async.durations import from_ms
from glidemq_async.functions.settings import Author, Declared, StoredSettings
from glidemq_async.ops.errors import NoSuchHold
from glidemq_async.ops.part import OpsPart
from glidemq_async.queues.event_rules import EVENT_RULES, release_rule
from glidemq_async.queues.limits import change_pause, release_limit, stored_settings
from glidemq_async.queues.queue import Queue
from glidemq_async.queues.retention import hold_retention

SettingOrigin: TypeAlias = Literal["operator", "code", "none"]
PAUSED: Final = "paused"
SCHEDULE: Final = "schedule"
RETENTIONS: Final = ("keep_completed", "keep_failed")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a queue, or of an ordering key of it.

    `name` is "paused", "concurrency", "rate", "max_waiting", "bucket", "keep_completed", "keep_failed", "max_events",
    "events_off", "progress_interval", "event_content" or "schedule". `key` is the ordering key of a limit of keys, ""
    for the default of all keys, the id of a "schedule" that the code declares or an operator has paused, and None for a
    setting of the queue.

    `value` is the value that applies, None for no limit, and `declared` the value that the code declares, None if it
    declares none. `origin` says whose value applies: an "operator" holds it until it is released. `who`, `at` and
    `note` belong to that value, and `until` to a pause.
    """

    name: str
    key: str | None
    value: str | None
    declared: str | None
    origin: SettingOrigin
    who: str = ""
    at: datetime | None = None
    note: str = ""
    until: datetime | None = None


class Settings(OpsPart):
    """The methods of Ops for settings that an operator holds over the code."""

    async def settings(self, queue: str) -> list[Setting]:
        """Return the pause, the limits and the rules of events of a queue, and all declared or held settings.

        Raises QueueNotFound.
        """
        return (await self.settings_and_version(queue))[0]

    async def settings_and_version(self, queue: str) -> tuple[list[Setting], str]:
        """Return the settings of a queue, and the version of its limits for `set_limits`. Raises QueueNotFound."""
        stored = await stored_settings(await self.queue(queue))
        names = {PAUSED, "concurrency", "rate", "max_waiting", *stored.events, *stored.holds, *stored.declared}
        return [_setting(name, stored) for name in sorted(names, key=_place)], stored.version

    async def release_hold(self, queue: str, name: str, *, key: str | None = None, reason: str = "") -> None:
        """Release a setting that an operator holds: the value that the code declares applies again, or none.

        A released pause ends, also the one of a "schedule", whose id is `key`. Raises QueueNotFound, and NoSuchHold if
        no operator holds the setting.
        """
        setting = name if key is None else f"{name} {key}"
        opened = await self.queue(queue)
        async with self.changing("release hold", queue, setting, reason=reason):
            if setting not in (held := (await stored_settings(opened)).holds):
                raise NoSuchHold(queue, setting, sorted(held))
            await _release(opened, self._author(reason, "release"), name, key, setting)


async def _release(queue: Queue[Any, Any], by: Author, name: str, key: str | None, setting: str) -> None:
    if name == PAUSED:
        await change_pause(queue, by, paused=False)
    elif name == SCHEDULE and key is not None:
        await queue.resume_job_scheduler(key)
    elif name in RETENTIONS:
        await hold_retention(queue, by, {name: None})
    elif name in EVENT_RULES:
        await release_rule(queue, by, name)
    else:
        await release_limit(queue, by, setting)


def pause_of(stored: StoredSettings) -> Setting:
    """Return the pause of a queue as a setting. Its value is None if the queue is not paused."""
    return _setting(PAUSED, stored)


def setting_of_schedule(stored: StoredSettings, scheduler_id: str) -> Setting:
    """Return the setting of a job scheduler. Its value is None if it is neither declared nor paused."""
    return _setting(f"{SCHEDULE} {scheduler_id}", stored)


def _place(setting: str) -> tuple[bool, str, str]:
    name, _, key = setting.partition(" ")
    return " " in setting, key, "" if name == PAUSED else name


def _setting(setting: str, stored: StoredSettings) -> Setting:
    name, has_key, key = setting.partition(" ")
    held, declared = stored.holds.get(setting), stored.declared.get(setting)
    applies = held or declared
    value = _value(name, applies.value) if applies else None
    until: datetime | None = None
    if setting == PAUSED:
        value, until = _pause(stored)
        held = held if value else None
        applies = held
    elif name in EVENT_RULES:
        value = _value(name, stored.events.get(name, "")) or None
    elif not has_key and name not in RETENTIONS:
        value = _limit(name, stored.limits)
    origin: SettingOrigin = "operator" if held else "code" if declared and value else "none"
    return Setting(
        name,
        key if has_key else None,
        value,
        _value(name, declared.value) if declared else None,
        origin,
        *_signed(applies if value or held else None),
        until,
    )


def _signed(applies: Declared | None) -> tuple[str, datetime | None, str]:
    return (applies.who, from_ms(applies.at), applies.note) if applies else ("", None, "")


def _pause(stored: StoredSettings) -> tuple[str | None, datetime | None]:
    found = re.fullmatch(r"1(?: (\d+))?", stored.paused)
    if found is None or (found[1] and int(found[1]) <= stored.now):
        return None, None
    return "paused", from_ms(int(found[1])) if found[1] else None


def _limit(name: str, limits: dict[str, str]) -> str | None:
    if name == "rate":
        return _value(name, f"{limits['rate_max']} {limits['rate_ms']}") if "rate_max" in limits else None
    return limits.get(name)


def _value(name: str, stored: str) -> str | None:
    """Return a stored value in words."""
    first, _, second = stored.partition(" ")
    if name == "rate" and second:
        return f"{first} per {int(second) / 1000:g} s"
    if name == "events_off":
        return stored.replace(" ", ", ") or None
    if name == "progress_interval" and first:
        return f"{int(first) / 1000:g} s"
    if name in RETENTIONS and second:
        return _retention(int(first), int(second))
    if name == "bucket" and second:
        return f"{int(first) / 1000:g} tokens, {int(second) / 1000:g} per s"
    return stored or None


def _retention(count: int, age: int) -> str:
    parts = [f"{count} jobs"] if count >= 0 else []
    parts += [f"{age / 1000:g} s"] if age >= 0 else []
    return ", ".join(parts) or "all jobs"
