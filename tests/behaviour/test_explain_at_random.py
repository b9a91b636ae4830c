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
WAITS: Final = ("waiting", "prioritized", "key-waiting", "rate-limited")


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
    ("seed", "states"),
    [
        pytest.param(1_000, 1_000, marks=pytest.mark.untidy),
        pytest.param(10_000, 10_000, marks=[pytest.mark.slow, pytest.mark.untidy]),
        pytest.param(10_001, 10_000, marks=[pytest.mark.slow, pytest.mark.untidy]),
    ],
)
@pytest.mark.timeout(900)
async def test_a_claim_starts_exactly_the_job_without_a_closed_gate(timed_alone: Timed, seed: int, states: int) -> None:
    started, refused = await compare(timed_alone, seed, states)
    assert started > states // 10
    assert refused > states // 10


async def explained(timed: Timed) -> dict[str, list[str]]:
    """Return the kinds of the gates of each waiting job that depend on claims, by its name."""
    jobs = [job for state in WAITS for job in await timed.queue.get_jobs(state)]
    found = {job.name: (await timed.queue.explain(job.id)).gates for job in jobs}
    return {name: [gate.kind for gate in gates if gate.kind != "no-worker"] for name, gates in found.items()}


async def test_regression_keys_whose_jobs_have_all_expired_give_their_turn_to_other_keys(timed: Timed) -> None:
    add = timed.queue.add
    await add("a1", None, key="a", ttl=UNIT)
    for name in ("b1", "b2"):
        await add(name, None, key="b", ttl=UNIT)
    await add("b3", None, key="b")
    await add("last", None, priority=1)
    await timed.clock.advance(2 * UNIT_MS)
    late = ["expired"]
    assert await explained(timed) == {"a1": late, "b1": late, "b2": late, "b3": [], "last": ["behind"]}
    assert await timed.run(1) == ["b3"]
    assert await timed.run(1) == ["last"]


async def test_regression_a_bucket_must_pay_for_the_first_job_that_has_not_expired(timed: Timed) -> None:
    add = timed.queue.add
    await timed.queue.set_key_limits("a", token_bucket=TokenBucket(2, 1 / UNIT))
    await add("a1", None, key="a")
    assert await timed.run() == ["a1"]
    await add("a2", None, key="a", cost=1, ttl=UNIT / 1000)
    await add("a3", None, key="a", cost=2)
    await add("last", None, priority=1)
    await timed.clock.advance(UNIT)
    assert await explained(timed) == {"a2": ["expired"], "a3": ["bucket", "behind"], "last": []}
    assert await timed.run(1) == ["last"]
    await timed.clock.advance(UNIT_MS)
    await timed.fake_worker.claim_in_one_call(0)
    assert await explained(timed) == {"a3": []}
    assert await timed.run(1) == ["a3"]
