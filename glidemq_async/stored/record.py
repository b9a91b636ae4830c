"""The Python side of a job's stored record; the Lua side is functions/record.lua.

This module only parses. docs/internals/stored-data.md lists the fields of the record.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from glidemq_async.functions.calling import Record

State: TypeAlias = Literal[
    "waiting",
    "active",
    "delayed",
    "prioritized",
    "key-waiting",
    "rate-limited",
    "waiting-children",
    "suspended",
    "completed",
    "failed",
]
STATES: tuple[State, ...] = get_args(State)
WAITING: Final[tuple[State, ...]] = ("waiting", "prioritized", "key-waiting", "rate-limited")
"""The states of waiting jobs that are not delayed."""
FINAL: frozenset[str] = frozenset({"completed", "failed"})


class Location(NamedTuple):
    """The location of a job: its state, and its entry there."""

    state: State
    entry: str


class Route(NamedTuple):
    """The way in which a job waits when it is ready; see functions/routes.lua."""

    priority: int = 0
    lifo: bool = False
    key: str | None = None
    cost: float = 1.0


PLAIN: Final = Route()


def route_of(stored: bytes | None) -> Route:
    """Return the route of a record."""
    if not stored:
        return PLAIN
    kind, _, rest = stored.decode().partition(" ")
    if kind == "k":
        # The key is the last part, because it may contain spaces.
        priority, _, cost, _, key = rest.split(" ", 4)
        return Route(int(priority), key=key, cost=int(cost) / 1000)
    return Route(lifo=True) if kind == "l" else Route(int(rest))


class Claim(NamedTuple):
    """The last claim of a job. Times and durations are in milliseconds."""

    fence: int
    started: int
    lock: int


def place_of(record: Record) -> Location:
    """Return the location of a job from its record."""
    state, _, entry = record[b"place"].decode().partition(" ")
    # The record does not know whether it waits for its key's limit. The server adds this field to its reply.
    if b"limited" in record:
        state = "rate-limited"
    return Location(cast("State", state), entry)


def claim_of(record: Record) -> Claim | None:
    """Return the last claim, None if the job was never claimed."""
    words = record.get(b"claim", b"0").split()
    if words[0] == b"0":
        return None
    return Claim(int(words[0]), int(words[1]), int(words[2]))


def created_ms(added: bytes | None, entry: str, route: bytes | None = None) -> int:
    """Return when the job was added: from its own field, a keyed route, or the time of its first stream entry."""
    if added:
        return int(added)
    if route and route[:1] == b"k":
        return int(route.split(b" ", 5)[4])
    # The id of an entry of `fifo` ends with the millisecond at which it was created. A job that has waited there since
    # its add therefore needs no field for its creation time.
    return int(entry[1:].partition("-")[2]) if entry[:1] == "p" else 0


def whole(record: Record, field: bytes) -> int:
    """Return a counter, 0 if it was never written."""
    return int(record.get(field, b"0"))
