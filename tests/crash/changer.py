"""The limits of a limit stress run, and the process that changes them, pauses keys and changes jobs during the run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from dataclasses import dataclass

from glidemq_async import JobNotFound, JobStateError, Queue, RateLimit, TokenBucket
from glidemq_async.stored.record import State
from tests.crash.bounds import Change, LimitName
from tests.crash.journal import Journal, Line
from tests.crash.replay import CHANGE_BEGINS, CHANGE_ENDS, QUEUE_ITSELF
from tests.crash.roles import Payload, connect_to, run_loop

ONE, SOME, PACED, PAID = "one", "some", "paced", "paid"
KEYS = {ONE: 24, SOME: 6, PACED: 1, PAID: 2}
WINDOW_MS = 500
#: The first number of the changes that follow the changes of the changer.
AFTER_THE_CHANGER = 1_000_000

#: The initial limits. Keys `one` have no limits, so their jobs run one at a time.
FIRST = [
    Change(QUEUE_ITSELF, "concurrency", (80,)),
    Change(QUEUE_ITSELF, "rate", (140, WINDOW_MS)),
    *(Change(f"{SOME}-{n}", "concurrency", (3,)) for n in range(KEYS[SOME])),
    *(Change(f"{PACED}-{n}", "concurrency", (6,)) for n in range(KEYS[PACED])),
    *(Change(f"{PACED}-{n}", "rate", (8, WINDOW_MS)) for n in range(KEYS[PACED])),
    *(Change(f"{PAID}-{n}", "concurrency", (4,)) for n in range(KEYS[PAID])),
    *(Change(f"{PAID}-{n}", "bucket", (6_000, 12_000)) for n in range(KEYS[PAID])),
]


@dataclass(frozen=True)
class ChangerRole:
    """A process that raises and lowers limits, pauses keys and changes jobs until it is killed.

    It writes each change of a limit to the journal before it makes the change.
    """

    url: str
    queue: str
    journal: Journal
    seed: int

    def __call__(self) -> None:
        """Change limits until killed."""
        run_loop(self._change_for_ever())

    async def _change_for_ever(self) -> None:
        draw = random.Random(self.seed)
        async with connect_to(self.url) as storage, Queue[Payload, int](self.queue, storage) as queue:
            for number in itertools.count(len(FIRST)):
                await asyncio.sleep(draw.uniform(0.05, 0.3))
                await set_limit(queue, self.journal, number, _another(draw))
                await queue.pause_key(_a_key(draw, ONE, SOME), draw.uniform(0.02, 0.2))
                await change_random_job(queue, draw)


async def change_random_job(queue: Queue[Payload, int], draw: random.Random) -> None:
    """Remove, revoke, promote or reprioritize a job in its present state."""
    state: State = draw.choice(("key-waiting", "key-waiting", "active", "delayed"))
    jobs = await queue.get_jobs(state, 0, 30)
    if not jobs:
        return
    job = draw.choice(jobs)
    what = draw.choice(("remove", "revoke", "promote", "priority", "priority"))
    # The job may have moved since it was listed.
    with contextlib.suppress(JobStateError, JobNotFound):
        if what == "revoke":
            await job.revoke()
        elif what == "promote":
            await job.promote()
        elif what == "priority":
            await job.change_priority(draw.randint(0, 5))
        # A producer may repeat the add of a job whose id it chose. After a removal, that would create another job of
        # the same id.
        elif not job.id.startswith("own-"):
            await job.remove()


def _a_key(draw: random.Random, *kinds: str) -> str:
    kind = draw.choice(kinds)
    return f"{kind}-{draw.randrange(KEYS[kind])}"


def _another(draw: random.Random) -> Change:
    """Return a new value for one of the limits. A rate keeps its window, so that every window can be checked."""
    kind = draw.choice(("queue", "window", SOME, SOME, PACED, PAID))
    if kind == "queue":
        return Change(QUEUE_ITSELF, "concurrency", (draw.choice((40, 60, 80, 100)),))
    if kind == "window":
        return Change(QUEUE_ITSELF, "rate", (draw.choice((90, 140, 200)), WINDOW_MS))
    if kind == SOME:
        return Change(_a_key(draw, SOME), "concurrency", (draw.choice((1, 2, 3, 4)),))
    if kind == PACED:
        return Change(_a_key(draw, PACED), "rate", (draw.choice((6, 8, 12)), WINDOW_MS))
    return Change(_a_key(draw, PAID), "bucket", draw.choice(((6_000, 12_000), (4_000, 16_000), (10_000, 8_000))))


async def set_limit(queue: Queue[Payload, int], journal: Journal, number: int, change: Change) -> None:
    """Set one limit, between two events that mark the time of the change in the history of the server."""
    target, limit, figures = change
    journal.write("change", number, target or "-", limit, *figures)
    await queue.pause_key(f"{CHANGE_BEGINS}{number}", 0)
    if limit == "bucket":
        await queue.set_key_limits(target, token_bucket=TokenBucket(figures[0] / 1000, figures[1] / 1000))
    elif limit == "rate":
        rate = RateLimit(figures[0], figures[1] / 1000)
        await (queue.set_key_limits(target, rate_limit=rate) if target else queue.set_global_rate_limit(rate))
    elif target:
        await queue.set_key_limits(target, concurrency=figures[0])
    else:
        await queue.set_global_concurrency(figures[0])
    await queue.pause_key(f"{CHANGE_ENDS}{number}", 0)


async def set_first_limits(url: str, queue_name: str, journal: Journal, number: int) -> None:
    """Set the initial limits; the changes are numbered from `number`."""
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        for one, change in enumerate(FIRST, number):
            await set_limit(queue, journal, one, change)


def read_changes(lines: list[Line]) -> dict[int, Change]:
    """Return the changes in the journal, by number."""
    changes: dict[int, Change] = {}
    for line in lines:
        if line.kind == "change":
            number, target, limit, *figures = line.words
            name: LimitName = "rate" if limit == "rate" else "bucket" if limit == "bucket" else "concurrency"
            changes[int(number)] = Change(target if target != "-" else QUEUE_ITSELF, name, tuple(map(int, figures)))
    return changes
