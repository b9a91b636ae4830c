"""Posting: jobs for another queue wait in the outbox until a relayer delivers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.model.parts import Job, Origin
from tests.model.suspending import SuspendingLines

NAME = "queue"
MOST_POSTED = 8
RELAY_STEP = 2
RELAY_HOLD_MS = 5_000


class Posted(NamedTuple):
    """One entry of the outbox: a dead letter on its way to the queue `to`."""

    to: str
    id: str
    name: str
    data: str
    options: tuple[int | None, int | None]  # lease, time to live of the result
    origin: Origin


class PostingQueue(SuspendingLines):
    """A queue whose dead letters are moved to another one."""

    def __init__(self, now: int, *, step: int) -> None:
        super().__init__(now, step=step)
        self.dead_letter = ""  # the name of the dead-letter queue; "": none
        self.outbox: list[Posted] | None = None  # None: the key does not exist
        self.entries: list[str] = []  # of the outbox, named by the server
        self.last_entry = ""  # of a removed outbox
        self.relaying: tuple[int, str] | None = None  # end of the relayer's turn, and its id
        self.posts: list[Posted] = []  # of the present step, in no order

    def post(self, job: Job, cause: str, reason: str) -> None:
        """Post a job that failed for good, unless a user revoked it or it had been moved here."""
        if self.dead_letter and cause != "revoked" and job.origin is None:
            origin = Origin(NAME, job.id, cause, reason, job.failures, self.now, job.route)
            options = job.lease, job.result_ttl
            self.posts.append(Posted(self.dead_letter, f"{NAME}/{job.id}/", job.name, job.data, options, origin))

    def accept(self, rows: Sequence[Posted]) -> None:
        """Check the entries that a step wrote to the outbox: everything that was posted, in some order, up to the room
        in it.
        """
        room = MOST_POSTED - len(self.outbox or ())
        assert len(rows) == min(len(self.posts), room), f"{self.posts} in an outbox with room for {room} made {rows}"
        for row in rows:
            assert row in self.posts, f"{row} was posted, the model expects one of {self.posts}"
            self.posts.remove(row)
            self.note("dead-lettered", row.origin.id, row.to)
        self.outbox = [*(self.outbox or ()), *rows] if rows else self.outbox
        self.posts.clear()

    @property
    def has_outbox(self) -> bool:
        return self.outbox is not None or bool(self.posts)

    def relay(self, holder: str, after: str, done: Sequence[str]) -> tuple[str, list[tuple[str, Posted]]]:
        """Remove delivered entries; return the entries after `after`, if no other relayer has its turn."""
        for entry in done:
            if entry in self.entries and self.outbox is not None:
                del self.outbox[self.entries.index(entry)]
                self.entries.remove(entry)
        if self.relaying is not None and self.relaying[1] != holder and self.relaying[0] > self.now:
            return "", []
        rows = [row for row in zip(self.entries, self.outbox or (), strict=True) if _number(row[0]) > _number(after)]
        if not rows:
            self.relaying = None
            if self.outbox == []:
                self.outbox = None
            return "", []
        self.relaying = self.now + RELAY_HOLD_MS, holder
        return rows[:RELAY_STEP][-1][0], rows[:RELAY_STEP]


def _number(entry: str) -> tuple[int, ...]:
    return tuple(int(word) for word in entry.split("-")) if entry else (0, 0)
