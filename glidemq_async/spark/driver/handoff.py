"""A bounded hand-off: threads that must not wait leave things, one thread of its own makes jobs of them."""

from __future__ import annotations

import logging
import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from glidemq_async._internal import forks
from glidemq_async.errors import StorageUnavailable
from glidemq_async.options.validation import whole_number

T = TypeVar("T")

Overflow: TypeAlias = Literal["drop", "block"]
OVERFLOWS: Final[tuple[Overflow, ...]] = get_args(Overflow)
MOST_AT_ONCE: Final = 100
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HandoffStats:
    """What became of what was left: `received` is the sum of all others.

    `left_out`: no job was wanted; `dropped`: there was no room; `failed`: no job could be made or added.
    """

    received: int
    added: int = 0
    duplicates: int = 0
    left_out: int = 0
    dropped: int = 0
    failed: int = 0
    pending: int = 0


class Delivered(NamedTuple):
    """What became of things that were delivered; what is in none of these numbers failed."""

    added: int = 0
    duplicates: int = 0
    left_out: int = 0


class Handoff(Generic[T]):
    """Keeps up to `capacity` things until `deliver` has taken them, up to 100 at once, in a daemon thread.

    `deliver` answers what became of them. StorageUnavailable is tried again until it succeeds; after whatever else it
    raises each thing is tried alone, and what still raises is logged and counted as failed. When there is no room,
    "drop" drops what comes and counts it, "block" lets who brings it wait.
    """

    def __init__(
        self, deliver: Callable[[Sequence[T]], Delivered], capacity: int, overflow: Overflow, name: str
    ) -> None:
        if overflow not in OVERFLOWS:
            raise ValueError(f"overflow must be one of {', '.join(OVERFLOWS)}, got {overflow!r}")
        self._capacity = whole_number("capacity", capacity, least=1)
        self._deliver = deliver
        self._overflow = overflow
        self._name = name
        self._received = self._dropped = self._failed = 0
        self._delivered = Delivered()
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[T] = deque()
        self._in_hand = 0
        self._thread: threading.Thread | None = None
        self._closing = False
        self._give_up_at = float("inf")

    def after_fork(self) -> object:
        """Be closed in a forked child: what waits is the parent's, and so is the thread; see `forks`."""
        parents = (self._changed, self._waiting, self._thread)
        self._begin()
        self._closing = True
        return parents

    def put(self, thing: T) -> bool:
        """Leave something; answers whether it was taken. Does not wait, unless there is no room and "block" says so."""
        with self._changed:
            self._received += 1
            if self._overflow == "block":
                self._changed.wait_for(lambda: self._has_room() or self._closing)
            if self._closing or not self._has_room():
                self._dropped += 1
                return False
            self._waiting.append(thing)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"glidemq-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def _has_room(self) -> bool:
        return len(self._waiting) + self._in_hand < self._capacity

    @property
    def stats(self) -> HandoffStats:
        """The counts until now."""
        with self._changed:
            pending = len(self._waiting) + self._in_hand
            return HandoffStats(self._received, *self._delivered, self._dropped, self._failed, pending)

    def close(self, timeout: float) -> bool:
        """Take nothing more, and wait until all that was left is delivered; answers False after `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._give_up_at = time.monotonic() + timeout
            self._changed.notify_all()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout + 1)
        return not thread.is_alive() and not self.stats.pending

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                things = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
                self._in_hand = len(things)
            delivered = self._hand_over(things)
            if not delivered:  # the time is over: what is pending stays that
                return

    def _hand_over(self, things: Sequence[T]) -> bool:
        """Deliver things; answers False when the time was over before."""
        pause = FIRST_PAUSE
        while True:
            try:
                delivered = self._deliver(things)
            except StorageUnavailable as error:
                _log.warning("%s: the queue cannot be reached, %d wait for it: %r", self._name, len(things), error)
            except Exception:  # noqa: BLE001 - a thing that cannot be added must not keep the others from it
                if len(things) > 1:
                    return all(self._hand_over([thing]) for thing in things)
                _log.exception("%s: one could not be added", self._name)
                self._count(len(things), Delivered())
                return True
            else:
                self._count(len(things), delivered)
                return True
            with self._changed:
                if time.monotonic() + pause > self._give_up_at:
                    return False
                self._changed.wait(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _count(self, things: int, delivered: Delivered) -> None:
        with self._changed:
            self._delivered = Delivered(*map(operator.add, self._delivered, delivered))
            self._failed += things - sum(delivered)
            self._in_hand -= things
            self._changed.notify_all()
