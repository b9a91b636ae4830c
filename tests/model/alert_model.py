"""A model of alerts in plain Python, and a driver that makes random calls to it and to the functions.

Time passes in ticks. A tick is much longer than a run of the driver, so both sides see the same number of ticks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from glidemq_async.functions.alerts import AlertCalls, Holds, Observation, Transition
from tests.support.clocked_queue import Timed

TICK_MS: Final = 1_000_000
LEASE_MS: Final = 3 * TICK_MS // 2
RULES: Final = ("slow", "broken")
TARGETS: Final = ("mail", "images")
EVALUATORS: Final = ("a", "b")
TO_OPEN: Final = 2
TO_CLOSE: Final = 1
HOLDS: Final = Holds(TO_OPEN * TICK_MS - TICK_MS // 2, TO_CLOSE * TICK_MS - TICK_MS // 2)
WEBHOOKS: Final = 2
State: TypeAlias = Literal["pending", "open", "clearing"]


class HeldState(NamedTuple):
    """The state of a target of a rule: its name, the tick of its start, and its episode."""

    name: State
    since: int
    episode: str


@dataclass
class AlertModel:
    """The rules, the states of their targets, the episodes by their end, the notifications, and the lease."""

    rules: set[str] = field(default_factory=set[str])
    states: dict[tuple[str, str], HeldState] = field(default_factory=dict[tuple[str, str], HeldState])
    episodes: dict[str, str] = field(default_factory=dict[str, str])
    notifications: list[str] = field(default_factory=list[str])
    holder: str = ""
    fence: int = 0
    lease: tuple[int, int] = (0, 0)
    """The tick in which the lease was taken or renewed, and the tick in which it ends, exclusive."""

    def remove(self, rule: str) -> bool:
        """Remove a rule, and end its episodes."""
        for key in [key for key in self.states if key[0] == rule]:
            episode = self.states.pop(key).episode
            if episode:
                self.episodes[episode] = "the rule was removed"
        existed = rule in self.rules
        self.rules.discard(rule)
        return existed

    def begin(self, evaluator: str, now: int) -> int:
        """Take or renew the lease, and return its fencing token."""
        is_mine, is_held = self.holder == evaluator, self.lease[0] <= now < self.lease[1]
        if (not is_mine and is_held) or not self.rules:
            return 0
        self.fence += 0 if is_mine and is_held else 1
        self.holder, self.lease = evaluator, (now, now + 2)
        return self.fence

    def give_back(self, evaluator: str) -> None:
        """End the lease of this evaluator."""
        if self.holder == evaluator:
            self.lease = (0, 0)

    def note(self, fence: int, rule: str, seen: Observation, now: int) -> Transition | Literal["", "stale"]:
        """Note one observation."""
        if not fence or fence != self.fence or rule not in self.rules:
            return "stale"
        key = rule, seen.target
        held = self.states.get(key)
        if held is not None and held.since > now and held.name != "open":  # the clock was set back
            held = held._replace(since=now)
        following, change = self._next(held, seen, now)
        if following is None:
            self.states.pop(key, None)
        else:
            self.states[key] = following
        if change:
            episode = seen.episode if change == "opened" else (held.episode if held is not None else "")
            self.episodes[episode] = "" if change == "opened" else "the condition has ended"
            self.notifications += [f"{episode}:{change}:{number}" for number in range(1, WEBHOOKS + 1)]
        return change

    def _next(
        self, held: HeldState | None, seen: Observation, now: int
    ) -> tuple[HeldState | None, Transition | Literal[""]]:
        if not seen.is_true:
            return self._after_end(held, now)
        if held is None:
            return HeldState("pending", now, ""), ""
        if held.name == "open":
            return held, ""
        if held.name == "clearing":
            return HeldState("open", now, held.episode), ""
        if now - held.since >= TO_OPEN:
            return HeldState("open", now, seen.episode), "opened"
        return held, ""

    def _after_end(self, held: HeldState | None, now: int) -> tuple[HeldState | None, Transition | Literal[""]]:
        if held is None or held.name == "pending":
            return None, ""
        since = now if held.name == "open" else held.since
        if now - since >= TO_CLOSE:
            return None, "closed"
        return HeldState("clearing", since, held.episode), ""


class AlertDriver:
    """Makes random calls to the functions and to the model, and compares all that can be read after each call."""

    def __init__(self, timed: Timed, calls: AlertCalls, start_ms: int, seed: int) -> None:
        self._timed = timed
        self._calls = calls
        self._start_ms = start_ms
        self._random = random.Random(seed)
        self._model = AlertModel()
        self._now = 1
        self._fences = [0]
        self._episodes = 0

    async def run(self, steps: int) -> None:
        """Make this number of steps."""
        for _ in range(steps):
            await self._random.choice([self._pass, self._put, self._begin, self._note, self._note, self._note])()
            if self._random.random() < 0.1:
                await self._random.choice([self._remove, self._give_back, self._set_back])()
            await self._compare()

    async def _pass(self) -> None:
        self._now += 1
        await self._timed.clock.advance(TICK_MS)

    async def _set_back(self) -> None:
        if self._now > 1:
            self._now -= 1
            await self._timed.clock.advance(-TICK_MS)

    async def _put(self) -> None:
        rule = self._random.choice(RULES)
        assert await self._calls.put(rule, b"rule")
        self._model.rules.add(rule)

    async def _remove(self) -> None:
        rule = self._random.choice(RULES)
        assert await self._calls.remove(rule) == self._model.remove(rule)

    async def _begin(self) -> None:
        evaluator = self._random.choice(EVALUATORS)
        turn, fence = await self._calls.begin(evaluator, LEASE_MS), self._model.begin(evaluator, self._now)
        assert turn.fence == fence
        if fence:
            self._fences.append(fence)
            assert set(turn.rules) == self._model.rules
            assert self._ticks(turn.states) == self._model.states

    async def _give_back(self) -> None:
        evaluator = self._random.choice(EVALUATORS)
        assert (await self._calls.begin(evaluator, 0)).fence == 0
        self._model.give_back(evaluator)

    async def _note(self) -> None:
        fence = self._random.choice(self._fences[-3:])
        rule, seen = self._random.choice(RULES), list[Observation]()
        for target in self._random.sample(TARGETS, self._random.randint(1, 2)):
            self._episodes += 1
            seen.append(Observation(target, self._random.random() < 0.6, f"e{self._episodes}", b"document"))
        found = await self._calls.note(fence, rule, HOLDS, WEBHOOKS, b"", seen)
        assert found == [self._model.note(fence, rule, each, self._now) for each in seen]

    def _ticks(self, states: dict[str, str]) -> dict[tuple[str, str], HeldState]:
        found: dict[tuple[str, str], HeldState] = {}
        for key, text in states.items():
            rule, _, target = key.partition("\n")
            name, since, *episode = text.split()
            tick = (int(since) - self._start_ms) // TICK_MS + 1
            found[rule, target] = HeldState(cast("State", name), tick, "".join(episode))
        return found

    async def _compare(self) -> None:
        rows = await self._calls.episodes("all", 100)
        newest = {episode: record.get(b"ended_by", b"").decode() for episode, record in rows}
        assert newest.items() <= self._model.episodes.items()
        assert len(newest) == min(100, len(self._model.episodes))
        opened = {episode for episode, _ in await self._calls.episodes("open", 100)}
        assert opened == {each.episode for each in self._model.states.values() if each.episode}
        counts = await self._timed.queue.get_job_counts()
        assert counts["waiting"] == len(self._model.notifications)
