"""No wake-up is lost: who sleeps, who was woken, and whether somebody will come for the jobs that can start.

What the workers know is followed here, not what the server keeps for it: the server may keep it as it likes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from tests.model.driver import BASE, Connection, Snapshot
from tests.model.lines import Lines

SECOND_LATER_MS = 100
"""A second worker sleeps a little longer than the first, in case that one is dead."""
QUESTIONS = itertools.count()


@dataclass
class Sleeper:
    """A worker that listens on its channel."""

    slots: int = 0
    alarm: int = 0  # when it wakes by itself; 0: never
    asleep: bool = False
    woken: bool = False  # told to claim, or not yet answered


class Wakeups:
    """The listening side of the workers."""

    def __init__(self, wire: Connection, workers: Iterable[str]) -> None:
        self._wire = wire
        self._sleepers = {name: Sleeper() for name in workers}
        self._lost = 0  # slots that were woken and died before they claimed
        self._dead = set(self._sleepers)
        self._told: list[tuple[str, str]] = []
        self._question = ""
        wire.write("SSUBSCRIBE", _channel("nobody"))  # a connection without a channel answers PING in another form
        for name in self._sleepers:
            self._listen(name)
        self._told.clear()

    def _listen(self, name: str) -> None:
        if name in self._dead:
            self._dead.discard(name)
            self._wire.write("SSUBSCRIBE", _channel(name))
            self.ask()
            self._read()

    def ask(self) -> None:
        """Begin to listen: what was published up to now is heard by the next `hear`."""
        # Numbered, for a run that failed may have left a question behind whose answer nobody read.
        self._question = str(next(QUESTIONS))
        self._wire.write("PING", self._question)

    def _read(self) -> None:
        """Read all that was published before the question."""
        while (words := self._wire.read_texts()) != ["pong", self._question]:
            if words[0] == "smessage":
                self._take(words[1].rpartition(":")[2], words[2])

    def _take(self, name: str, word: str) -> None:
        if word == "w":
            self._sleepers[name].asleep, self._sleepers[name].woken = False, True
        elif word != "s":  # which process comes at a slot is not told here
            self._told.append((name, word))

    def hear(self) -> list[tuple[str, str]]:
        """Note who was woken since; answer what else workers were told."""
        self._read()
        told, self._told = self._told, []
        return told

    def woken(self, name: str) -> bool:
        """Whether it was told to claim."""
        return self._sleepers[name].woken

    def listens(self, name: str) -> bool:
        """Whether it hears what it is told."""
        return name in self._sleepers and name not in self._dead

    def calls(self, name: str) -> None:
        """A worker claims: it is awake until it is answered."""
        sleeper = self._sleepers.get(name)
        if sleeper is None:
            return
        self._listen(name)
        sleeper.asleep, sleeper.woken, sleeper.slots = False, False, 0

    def answered(self, name: str, slots: int, alarm: int) -> None:
        """It sleeps if it has free slots, unless it was woken meanwhile."""
        sleeper = self._sleepers.get(name)
        if sleeper is not None:
            sleeper.slots, sleeper.alarm = slots, alarm
            sleeper.asleep = slots > 0 and not sleeper.woken and self.listens(name)

    def dies(self, name: str) -> None:
        """It hears nothing any more. What it was woken for waits until a worker looks by itself."""
        sleeper = self._sleepers.get(name)
        if sleeper is not None and name not in self._dead:
            self._wire.write("SUNSUBSCRIBE", _channel(name))
            self.ask()
            self._read()
            self._lost += sleeper.slots if sleeper.woken else 0
            sleeper.asleep = sleeper.woken = False
            self._dead.add(name)

    def check(self, seen: Snapshot, model: Lines, unanswered: set[str]) -> None:
        """Nobody sleeps over a job that can start, and somebody's alarm is set for the next one that is due."""
        # Of a key one counts: whoever takes it wakes the next.
        ready = 0 if model.paused else model.allowance(len(model.having("waiting", "prioritized")) + len(seen.ready))
        if ready and (model.gate or any(model.limits)):
            ready = 1  # whoever finds the queue open again wakes the next
        self._lost = self._lost if ready else 0
        sleepers = {name: one for name, one in self._sleepers.items() if one.asleep}
        for one in sleepers.values():
            one.woken = 0 < one.alarm <= model.now  # its alarm goes off
        sleepers = {name: one for name, one in sleepers.items() if not one.woken}
        awake = [one for one in self._sleepers.values() if one.woken]
        if not sleepers or any(name in unanswered for name in self._sleepers):
            return
        coming = self._lost + sum(one.slots for one in awake)
        assert ready <= coming, f"{ready} jobs can start, slots woken for them: {coming}, asleep: {sleepers}"
        due = model.next_due(seen.sleeping)
        alarms = [one.alarm for one in sleepers.values() if one.alarm]
        if due and not awake and not self._lost and not self._dead & set(seen.idle):
            assert any(alarm <= max(due, model.now) + SECOND_LATER_MS for alarm in alarms), (
                f"a job is due at {due}, now is {model.now}, asleep: {sleepers}"
            )


def _channel(name: str) -> str:
    return f"{BASE}:wake:{name}"
