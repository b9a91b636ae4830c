"""The explanation of each job agrees with a claim that follows it, in random states of a queue."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from glidemq_async import JobStateError, RateLimit, TokenBucket
from tests.support.clocked_queue import Timed
from tests.support.fake_worker import Lease

# Every instant of the test is this far from the next one, and the test is much shorter. So no instant passes between an
# explanation and the claim that follows it.
UNIT: Final = 1_000
UNIT_MS: Final = UNIT * 1_000
KEYS: Final = ("a", "b", "c")
MOST_JOBS: Final = 9


class RandomQueue:
    """Random operations on one queue."""

    def __init__(self, timed: Timed, dice: random.Random) -> None:
        self._timed = timed
        self._queue = timed.queue
        self._dice = dice
        self.open: dict[str, None] = {}
        """The ids of the jobs that have not ended, in the order of their adds."""
        self.running: list[Lease] = []

    def _units(self, most: int = 3) -> int:
        return self._dice.randint(1, most) * UNIT

    async def add(self) -> None:
        if len(self.open) >= MOST_JOBS:
            return
        dice = self._dice
        keyed = {"key": dice.choice(KEYS), "priority": dice.randint(0, 2)}
        kinds: list[dict[str, Any]] = [{}, {}, {"priority": dice.randint(1, 3)}, {"lifo": True}, keyed, keyed, keyed]
        kinds.append({"key": dice.choice(KEYS), "cost": dice.choice([0.5, 1, 2])})
        options = {**dice.choice(kinds)}
        if dice.random() < 0.2:
            options["delay"] = self._units()
        if dice.random() < 0.1:
            options["ttl"] = self._units()
        job = await self._queue.add("job", None, **options)
        self.open[job.id] = None

    async def pause(self) -> None:
        await (self._queue.pause() if self._dice.random() < 0.3 else self._queue.resume())

    async def limit(self) -> None:
        await self._queue.set_global_concurrency(self._dice.choice([None, None, 1, 2, 3]))

    async def limit_rate(self) -> None:
        if self._dice.random() < 0.5:
            await self._queue.remove_global_rate_limit()
        else:
            await self._queue.set_global_rate_limit(RateLimit(self._dice.randint(1, 3), self._units(2)))

    async def limit_key(self) -> None:
        dice = self._dice
        await self._queue.set_key_limits(
            dice.choice([None, *KEYS]),
            concurrency=dice.choice([None, 1, 2]),
            rate_limit=dice.choice([None, RateLimit(dice.randint(1, 2), self._units(2))]),
            token_bucket=dice.choice([None, None, TokenBucket(2, 1 / UNIT)]),
        )

    async def pause_key(self) -> None:
        await self._queue.pause_key(self._dice.choice(KEYS), self._dice.choice([0, UNIT, 2 * UNIT]))

    async def pass_time(self) -> None:
        await self._timed.clock.advance(self._dice.randint(1, 2) * UNIT_MS)

    async def settle(self) -> None:
        if not self.running:
            return
        lease = self.running.pop(self._dice.randrange(len(self.running)))
        code = self._dice.choice("ccccfrrdlb")
        option = {"r": f"{self._units() * 1000} again", "d": str(self._units() * 1000), "l": str(UNIT_MS)}.get(code)
        await self._timed.fake_worker.settle(lease, code, option)
        if code in "cf":
            self.open.pop(lease.id, None)

    async def change(self) -> None:
        if not self.open:
            return
        job = await self._queue.get_job(self._dice.choice(list(self.open)))
        assert job is not None
        act: Callable[[], Awaitable[Any]] = self._dice.choice([job.promote, lambda: job.change_priority(1), job.remove])
        try:
            await act()
        except JobStateError:
            return
        if act == job.remove:
            self.open.pop(job.id)

    async def step(self) -> None:
        """Do a few random operations."""
        acts = [self.add] * 5 + [self.settle] * 3 + [self.pass_time, self.pass_time, self.pause, self.change]
        acts += [self.limit, self.limit_rate, self.limit_key, self.pause_key]
        for _ in range(self._dice.randint(1, 3)):
            await self._dice.choice(acts)()

    async def forget_ended(self) -> None:
        """Forget the jobs that have expired."""
        for job_id in list(self.open):
            job = await self._queue.get_job(job_id)
            if job is None or job.state == "failed":
                self.open.pop(job_id)


async def compare(timed: Timed, seed: int, states: int) -> tuple[int, int]:
    """Compare explanations with claims in this many states. Return how many claims started a job, and how many none."""
    world = RandomQueue(timed, random.Random(seed))
    started = refused = 0
    for number in range(states):
        await world.step()
        # A worker's call promotes the jobs that are due.
        await timed.fake_worker.claim_in_one_call(0)
        explained = {job_id: await timed.queue.explain(job_id) for job_id in world.open}
        free = [job_id for job_id, one in explained.items() if one.is_next]
        leases = await timed.fake_worker.claim(1, lock_ms=1_000 * UNIT_MS)
        assert [lease.id for lease in leases] == free, (seed, number, leases, explained)
        world.running += leases
        started, refused = started + len(leases), refused + (not leases)
        await world.forget_ended()
    return started, refused


@pytest.mark.parametrize(
    "states",
    [pytest.param(1_000, marks=pytest.mark.untidy), pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.untidy])],
)
@pytest.mark.timeout(300)
async def test_a_claim_starts_exactly_the_job_without_a_closed_gate(timed: Timed, states: int) -> None:
    started, refused = await compare(timed, states, states)
    assert started > states // 10
    assert refused > states // 10
