"""Typed calls of the functions for alerts: `alerts.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import Arg, Calls, Record, record, text, texts

MOST_OBSERVATIONS: Final = 20
"""Maximum number of observations in one call."""
Transition: TypeAlias = Literal["opened", "closed"]


class Holds(NamedTuple):
    """The times in ms for which a condition must be true before its episode opens, and false before it closes."""

    to_open: int
    to_close: int


class Observation(NamedTuple):
    """A target of a rule, and whether the condition is true for it. `episode` and `document` are for a new episode."""

    target: str
    is_true: bool
    episode: str = ""
    document: bytes = b""


class Turn(NamedTuple):
    """The turn of an evaluator. `fence` is 0 if it has none. `states` are by rule, line feed and target."""

    fence: int
    rules: dict[str, bytes]
    states: dict[str, str]


class StoredAlerts(NamedTuple):
    """The stored rules by name. `evaluated_ms` is the last time that `evaluator` looked, None for never."""

    evaluator: str
    evaluated_ms: int | None
    rules: dict[str, bytes]


class AlertCalls(Calls):
    """Calls of the functions in `alerts.lua`, with the base key of the queue `system/alerts`."""

    __slots__ = ()

    async def put(self, name: str, rule: bytes) -> bool:
        """Store a rule. Return False if there are too many rules."""
        return await self._caller.once("putAlert", [name, rule]) == 1

    async def remove(self, name: str) -> bool:
        """Remove a rule, and end its episodes. Return whether it existed."""
        return await self._caller.once("removeAlert", [name]) == 1

    async def stored(self) -> StoredAlerts:
        """Return the rules."""
        evaluator, evaluated, flat = cast("tuple[bytes, bytes, object]", await self._caller.read("listAlerts"))
        return StoredAlerts(text(evaluator), int(evaluated) if evaluated else None, _by_text(flat))

    async def begin(self, evaluator: str, lease_ms: int) -> Turn:
        """Take or renew the lease of an evaluator. `lease_ms` 0 returns it."""
        fence, rules, states = cast(
            "tuple[int, object, object]", await self._caller.call("beginAlerts", [evaluator, lease_ms])
        )
        return Turn(fence, _by_text(rules), {key: text(state) for key, state in _by_text(states).items()})

    async def note(
        self, fence: int, rule: str, holds: Holds, webhooks: int, options: bytes, seen: Sequence[Observation]
    ) -> list[str]:
        """Note at most 20 observations. Return "opened", "closed", "" or "stale" for each."""
        args: list[Arg] = [fence, rule, f"{holds.to_open} {holds.to_close}", webhooks, options]
        for each in seen:
            args += [each.target, 1 if each.is_true else 0, each.episode, each.document]
        return texts(await self._caller.once("noteAlerts", args))

    async def note_notification(self, episode: str, field: str, status: str) -> bool:
        """Note the status of a notification. Return whether the episode exists."""
        return await self._caller.once("noteNotification", [episode, field, status]) == 1

    async def episodes(self, which: Literal["open", "all"], count: int) -> list[tuple[str, Record]]:
        """Return the id and the record of at most 100 episodes; of all the newest ones, the newest first."""
        rows = cast("list[tuple[bytes, object]]", await self._caller.read("readEpisodes", [which, count]))
        return [(text(episode), record(flat)) for episode, flat in rows]

    async def episode(self, episode: str) -> Record:
        """Return the record of an episode, {} if it does not exist."""
        return record(await self._caller.read("getEpisode", [episode]))


def _by_text(flat: object) -> dict[str, bytes]:
    return {text(name): value for name, value in record(flat).items()}
