"""A job's stored record as Python reads it; the Lua side of it is functions/record.lua.

Only parsing lives here. The record's fields are listed in ARCHITECTURE.md.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from glidemq_async.functions.callers import Record

State: TypeAlias = Literal[
    "waiting", "active", "delayed", "prioritized", "key-waiting", "rate-limited", "completed", "failed"
]
STATES: tuple[State, ...] = get_args(State)
WAITING: Final[tuple[State, ...]] = ("waiting", "prioritized", "key-waiting", "rate-limited")
"""The states of jobs that wait and are not delayed."""
FINAL: frozenset[str] = frozenset({"completed", "failed"})


class Place(NamedTuple):
    """Where a job stands: its state, and the entry that holds it there."""

    state: State
    entry: str


class Route(NamedTuple):
    """How a job waits when it is ready; see functions/routes.lua."""

    priority: int = 0
    lifo: bool = False
    key: str | None = None


PLAIN: Final = Route()


def route_of(stored: bytes | None) -> Route:
    """Return the route of a record."""
    if not stored:
        return PLAIN
    kind, _, rest = stored.decode().partition(" ")
    if kind == "k":
        priority, _, _, _, key = rest.split(" ", 4)
        return Route(int(priority), key=key)
    return Route(lifo=True) if kind == "l" else Route(int(rest))


class Claim(NamedTuple):
    """The last claim of a job; instants and durations in milliseconds."""

    fence: int
    started: int
    lock: int


def place_of(record: Record) -> Place:
    """Return where the record says the job stands."""
    state, _, entry = record[b"place"].decode().partition(" ")
    if b"limited" in record:
        state = "rate-limited"
    return Place(cast("State", state), entry)


def claim_of(record: Record) -> Claim | None:
    """Return the last claim, None for a job that was never claimed."""
    words = record.get(b"claim", b"0").split()
    if words[0] == b"0":
        return None
    return Claim(int(words[0]), int(words[1]), int(words[2]))


def created_ms(added: bytes | None, entry: str, route: bytes | None = None) -> int:
    """Return when the job was added: its own field, else that of a keyed route, else the first stream entry's time."""
    if added:
        return int(added)
    if route and route[:1] == b"k":
        return int(route.split(b" ", 5)[4])
    return int(entry[1:].partition("-")[0]) if entry[:1] == "s" else 0


def whole(record: Record, field: bytes) -> int:
    """Return a counter, 0 when it was never written."""
    return int(record.get(field, b"0"))
