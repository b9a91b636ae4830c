"""Wake-ups are never lost: which workers sleep, which were woken, and whether a worker will come for the jobs that can
start.

This module follows what the workers know. It does not look at the data that the server keeps for this purpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from glidemq_async.functions.push import KINDS, JobsPushed, read_push
from tests.model.driver import BASE, Connection, Snapshot
from tests.model.lines import Lines

SECOND_LATER_MS = 100
"""A second worker sleeps a little longer than the first, in case the first one is dead."""
QUESTIONS = itertools.count()


@dataclass
class Listener:
    """A worker that listens on its channel."""

    slots: int = 0
    alarm: int = 0  # when it wakes by itself; 0: never
    asleep: bool = False
    woken: bool = False  # notified to claim, or waiting for a reply


class Wakeups:
    """The workers as their channels see them: asleep, woken or dead."""

    def __init__(self, wire: Connection, workers: Iterable[str]) -> None:
        self._wire = wire
        self._listeners = {name: Listener() for name in workers}
        self._lost = 0  # slots that were woken and died before they claimed
        self._dead = set(self._listeners)
        self._messages: list[tuple[str, str]] = []
        self._pushes: list[tuple[str, JobsPushed]] = []
        self._question = ""
        wire.write("SSUBSCRIBE", _channel("nobody"))  # a connection without a channel answers PING in another form
        for name in self._listeners:
            self._listen(name)
        self._messages.clear()

    def _listen(self, name: str) -> None:
        if name in self._dead:
            self._dead.discard(name)
            self._wire.write("SSUBSCRIBE", _channel(name))
            self.ask()
            self._read()

    def ask(self) -> None:
        """Start listening. The next `read_messages` reads the messages published before it."""
        # The PING is numbered, because a failed run may have left a PING whose reply was not read.
        self._question = str(next(QUESTIONS))
        self._wire.write("PING", self._question)

    def _read(self) -> None:
        """Read all messages that were published before the PING."""
        while (words := self._wire.read_texts()) != ["pong", self._question]:
            if words[0] == "smessage":
                self._receive(words[1].rpartition(":")[2], words[2])

    def _receive(self, name: str, message: str) -> None:
        if message == "w":
            self._listeners[name].asleep, self._listeners[name].woken = False, True
        elif message[:1].encode() in KINDS:
            self._push(name, read_push(message.encode(errors="surrogateescape")))
        elif message != "s":  # a scheduler's process is not known here
            self._messages.append((name, message))

    def _push(self, name: str, pushed: JobsPushed) -> None:
        """Note a push. A worker with more free slots calls next."""
        listener = self._listeners[name]
        assert len(pushed.jobs) <= listener.slots, f"{name} has {listener.slots} free slots, pushed were {pushed}"
        listener.slots -= len(pushed.jobs)
        listener.asleep, listener.woken = False, listener.slots > 0
        self._pushes.append((name, pushed))

    def reconnects(self, name: str) -> None:
        """Note that a worker has lost its connection, and a message with it. It calls when it is connected again."""
        self._listeners[name].woken = True

    def read_pushes(self) -> list[tuple[str, JobsPushed]]:
        """Return the pushes since."""
        self.ask()
        self._read()
        pushes, self._pushes = self._pushes, []
        return pushes

    def read_messages(self) -> list[tuple[str, str]]:
        """Note the workers that were woken since; return the other messages for workers."""
        self._read()
        messages, self._messages = self._messages, []
        return messages

    def woken(self, name: str) -> bool:
        """Return whether the worker was notified to claim."""
        return self._listeners[name].woken

    def listens(self, name: str) -> bool:
        """Return whether the worker listens on its channel."""
        return name in self._listeners and name not in self._dead

    def calls(self, name: str) -> None:
        """Note that a worker claims: it is awake until it has the reply."""
        listener = self._listeners.get(name)
        if listener is None:
            return
        self._listen(name)
        listener.asleep, listener.woken, listener.slots = False, False, 0

    def registers(self, name: str, slots: int) -> None:
        """Note the free slots that a claim has registered. From now on the worker can be woken for them, even before it
        has the reply, so they are lost if it dies without the reply.
        """
        listener = self._listeners.get(name)
        if listener is not None:
            listener.slots = slots

    def answered(self, name: str, alarm: int) -> None:
        """Put the worker to sleep if it has free slots and was not woken since."""
        listener = self._listeners.get(name)
        if listener is not None:
            listener.alarm = alarm
            listener.asleep = listener.slots > 0 and not listener.woken and self.listens(name)

    def dies(self, name: str, now: int) -> None:
        """Stop listening. The jobs that it was woken for, also by its alarm, wait until a worker polls."""
        listener = self._listeners.get(name)
        if listener is not None and name not in self._dead:
            self._wire.write("SUNSUBSCRIBE", _channel(name))
            self.ask()
            self._read()
            rang = listener.asleep and 0 < listener.alarm <= now
            self._lost += listener.slots if listener.woken or rang else 0
            listener.asleep = listener.woken = False
            self._dead.add(name)

    def check(self, seen: Snapshot, model: Lines, unanswered: set[str]) -> None:
        """Check that no job that can start waits while all workers sleep, and that an alarm is set for the next due
        job.
        """
        # Only one job of a key counts. The worker that claims it wakes the next worker.
        ready = 0 if model.paused else model.allowance(len(model.having("waiting", "prioritized")) + len(seen.ready))
        if ready and (model.gate or any(model.limits)):
            ready = 1  # the worker that finds the queue open again wakes the next one
        self._lost = self._lost if ready else 0
        asleep = {name: one for name, one in self._listeners.items() if one.asleep}
        for one in asleep.values():
            one.woken = 0 < one.alarm <= model.now  # its alarm goes off
        asleep = {name: one for name, one in asleep.items() if not one.woken}
        awake = [one for one in self._listeners.values() if one.woken]
        if not asleep or any(name in unanswered for name in self._listeners):
            return
        coming = self._lost + sum(one.slots for one in awake)
        assert ready <= coming, f"{ready} jobs can start, slots woken for them: {coming}, asleep: {asleep}"
        due = model.next_due(seen.sleeping)
        alarms = [one.alarm for one in asleep.values() if one.alarm]
        if due and not awake and not self._lost and not self._dead & set(seen.idle):
            assert any(alarm <= max(due, model.now) + SECOND_LATER_MS for alarm in alarms), (
                f"a job is due at {due}, the time is {model.now}, asleep: {asleep}"
            )


def _channel(name: str) -> str:
    return f"{BASE}:wake:{name}"
