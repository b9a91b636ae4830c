"""Typed call of the function that reads the settings of a queue, and the authors of changes: `settings.lua`."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgpack

from glidemq_async.functions.calling import Calls, text

Origin: TypeAlias = Literal["operator", "code", "release"]
_RULES: Final = {"off": "events_off", "interval": "progress_interval", "content": "event_content"}
"""The setting of each field of `event_rules`."""


class Author(NamedTuple):
    """The author of a change of a setting; `settings.lua` describes the origins."""

    origin: Origin
    who: str
    note: str = ""


class Declared(NamedTuple):
    """A stored value of a setting, who has set it, when (ms), and the note."""

    value: str
    who: str
    at: int
    note: str = ""


class StoredSettings(NamedTuple):
    """Reply of `getSettings`."""

    paused: str
    """ "1", "1 <end, ms>", or another text if the queue is not paused."""
    now: int
    limits: dict[str, str]
    holds: dict[str, Declared]
    """By name: the values that operators have set."""
    declared: dict[str, Declared]
    """By name: the values that the code has declared."""
    version: str
    """The version of the limits of the queue."""
    events: dict[str, str]
    """The rules of events that apply, by setting."""


class SettingCalls(Calls):
    """Calls of the functions in `settings.lua`."""

    __slots__ = ()

    async def get(self) -> StoredSettings:
        """Return the limits and the pause of a queue, and who has set them."""
        reply = cast("list[object]", await self._caller.read("getSettings"))
        paused, now, limits, kept, version, rules, most = reply
        found: dict[str, dict[str, Declared]] = {"o": {}, "c": {}}
        flat = cast("list[bytes]", kept)
        for name, packed in zip(flat[::2], flat[1::2], strict=True):
            whole = name.decode()
            found[whole[0]][whole[1:]] = Declared(*cast("tuple[str, str, int]", msgpack.unpackb(packed)))
        events = {_RULES[field]: value for field, value in _by_name(rules).items() if field in _RULES}
        if text(most):
            events["max_events"] = text(most)
        return StoredSettings(
            text(paused), cast("int", now), _by_name(limits), found["o"], found["c"], text(version), events
        )


def _by_name(flat: object) -> dict[str, str]:
    words = [word.decode() for word in cast("list[bytes]", flat)]
    return dict(zip(words[::2], words[1::2], strict=True))


def packed_author(by: Author | None) -> bytes:
    """Return the stored form of an author, b"" for None."""
    return b"" if by is None else msgpack.packb(list(by))
