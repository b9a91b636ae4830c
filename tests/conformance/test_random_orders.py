"""Random calls on jobs of every order under changing limits: stored data stay correct, and no job stays for ever."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from glidemq_async import Deduplication, JobNotFound, JobStateError, RateLimit, TokenBucket
from tests.support.clocked_queue import SECOND, Timed
from tests.support.fake_worker import Lease
from tests.support.helpers import AnyJob, counts

STEPS: Final = 120
WHATEVER: Final = (*["add"] * 3, *["claim", "settle"] * 2, "stall", "meddle", "limit_keys", "limit", "wait", "leave")
ENDS: Final = (
    ("c", ""),
    ("f", ";retries_exhausted;no"),
    ("r", "0 no"),
    ("r", "20000 no"),
    ("d", "15000"),
    ("b", ""),
    ("l", "10000"),
)


class RandomUser:
    """A user who makes random calls to a queue."""

    def __init__(self, timed: Timed, seed: int, *, keyed: bool) -> None:
        self.timed = timed
        self.dice = random.Random(seed)
        self.keyed = keyed
        self.held: list[Lease] = []
        self.jobs: list[AnyJob] = []

    async def step(self) -> str:
        """Make one call; return its name."""
        name = self.dice.choice(WHATEVER)
        await getattr(self, name)()
        return name

    async def add(self) -> None:
        dice = self.dice
        options: dict[str, Any] = {"attempts": 9}
        if self.keyed or dice.random() < 0.4:
            options |= {"key": dice.choice("abc"), "priority": dice.choice([0, 0, 2])}
        else:
            options |= dice.choice([{}, {"lifo": True}, {"priority": 1}, {"priority": 2}])
        options |= dice.choice([{}, {}, {"delay": 30}, {"ttl": 40}, {"cost": 3}])
        mode: Any = dice.choice(["simple", "throttle", "debounce"])
        if dice.random() < 0.3:
            options["deduplication"] = Deduplication(dice.choice("de"), ttl=15, mode=mode)
        self.jobs.append(await self.timed.queue.add("n", **options))

    async def claim(self) -> None:
        self.held += await self.timed.fake_worker.claim(self.dice.randint(1, 4))

    async def settle(self) -> None:
        if self.held:
            lease = self.held.pop(self.dice.randrange(len(self.held)))
            await self.timed.fake_worker.settle(lease, *self.dice.choice(ENDS))

    async def stall(self) -> None:
        if self.held:
            await self.timed.fake_worker.vanish(self.held.pop())
            await self.timed.fake_worker.sweep(max_stalled=2)

    async def meddle(self) -> None:
        if not self.jobs:
            return
        job = self.dice.choice(self.jobs)
        try:
            match self.dice.randrange(6):
                case 0:
                    await job.remove()
                case 1:
                    await job.revoke()
                case 2:
                    await job.promote()
                case 3:
                    await job.retry()
                case 4:
                    await job.change_delay(self.dice.choice([0, 20]))
                case _:
                    await job.change_priority(self.dice.choice([0, 1, 3]))
        except (JobNotFound, JobStateError):
            pass

    async def limit_keys(self) -> None:
        dice, queue, key = self.dice, self.timed.queue, self.dice.choice(["a", "b", None])
        match dice.randrange(4):
            case 0:
                await queue.set_key_limits(key, concurrency=dice.choice([None, 1, 2, 3]))
            case 1:
                await queue.set_key_limits(key, rate_limit=dice.choice([None, RateLimit(2, 10)]))
            case 2:
                await queue.set_key_limits(key, token_bucket=dice.choice([None, TokenBucket(4, 0.5)]))
            case _:
                await queue.pause_key(key or "c", dice.choice([0, 10]))

    async def limit(self) -> None:
        dice, queue = self.dice, self.timed.queue
        match dice.randrange(3):
            case 0:
                await queue.set_global_concurrency(dice.choice([None, 1, 3]))
            case 1:
                await queue.set_global_rate_limit(RateLimit(dice.choice([1, 3]), 10))
            case _:
                await queue.remove_global_rate_limit()

    async def wait(self) -> None:
        await self.timed.clock.advance(self.dice.choice([1, 5, 20]) * SECOND)

    async def leave(self) -> None:
        await self.timed.fake_worker.leave()
        self.held.clear()


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "mixed"])
@pytest.mark.parametrize("seed", range(10))
async def test_no_sequence_of_calls_leaves_a_job_for_ever(timed: Timed, seed: int, keyed: bool) -> None:
    meddler = RandomUser(timed, seed, keyed=keyed)
    for number in range(STEPS):
        name = await meddler.step()
        findings = await timed.queue.check()
        assert not findings, f"after step {number}, {name}: {findings}"
    for lease in meddler.held:
        await timed.fake_worker.settle(lease)
    for _ in range(300):
        await timed.clock.advance(20 * SECOND)
        if not await timed.run() and set(await counts(timed.queue)) <= {"completed", "failed"}:
            break
    assert set(await counts(timed.queue)) <= {"completed", "failed"}
    await timed.clock.advance(60 * SECOND)
    await timed.fake_worker.sweep()
    left = {key.partition("}:")[2].partition(":")[0] for key in await timed.store.keys()}
    lines = {"keyq", "keyz", "keyrest", "keyed"}
    assert left.isdisjoint(lines | {"running", "resting", "ready", "sleeping", "deduped", "pauses"})
