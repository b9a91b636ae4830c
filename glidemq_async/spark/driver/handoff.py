"""`Handoff`: a bounded buffer between threads that must not wait and one thread that adds jobs."""

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
BATCH_SIZE: Final = 100
FIRST_PAUSE: Final = 0.1
MAX_PAUSE: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HandoffStats:
    """Counts of a handoff. `received` is the sum of all others.

    `left_out`: items without a job. `dropped`: items that were refused because the buffer was full or closed. `failed`:
    items whose job could not be built or added.
    """

    received: int
    added: int = 0
    duplicates: int = 0
    left_out: int = 0
    dropped: int = 0
    failed: int = 0
    pending: int = 0


class Delivered(NamedTuple):
    """Counts of one delivery. Items that none of them counts have failed."""

    added: int = 0
    duplicates: int = 0
    left_out: int = 0


class Handoff(Generic[T]):
    """A buffer of up to `capacity` items. A daemon thread passes them to `deliver` in batches of up to 100.

    `deliver` returns the counts of a batch. If it raises StorageUnavailable, the batch is retried until it succeeds.
    After any other error each item is delivered alone, and an item that still fails is logged and counted. If the
    buffer is full, "drop" refuses further items and counts them, and "block" makes `put` wait.
    """

    # Spark calls listeners in its listener bus, and a callback that blocks delays all queries of the session. Therefore
    # `put` never calls the server. The price is the loss of the buffer if the process dies, so an item is delivered at
    # most once. One condition guards all state, and items count as pending until `_count` has seen their result:
    # otherwise `close` could return True while the last batch is still in flight.

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
        self._delivering = 0
        self._thread: threading.Thread | None = None
        self._closing = False
        self._deadline = float("inf")

    def _after_fork(self) -> object:
        """Close the handoff in a forked child. The items and the thread belong to the parent; see `forks`."""
        # The condition may be locked by a thread that does not exist in the child, so the child gets a new one. The old
        # objects are returned, and `forks` keeps them referenced.
        parents = (self._changed, self._waiting, self._thread)
        self._begin()
        self._closing = True
        return parents

    def put(self, item: T) -> bool:
        """Append an item and return True, or False if it was dropped.

        Waits only if the buffer is full and "block" is set.
        """
        with self._changed:
            self._received += 1
            if self._overflow == "block":
                self._changed.wait_for(lambda: self._has_room() or self._closing)
            # Check both again: with "block" the wait may have ended by `close`, and then the thread may have ended too.
            if self._closing or not self._has_room():
                self._dropped += 1
                return False
            self._waiting.append(item)
            self._ensure_thread()
            self._changed.notify_all()
            return True

    def _ensure_thread(self) -> None:
        # The thread starts with the first item, and not in the constructor: a listener may be created before a fork,
        # which would leave the child without the thread.
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"glidemq-{self._name}", daemon=True)
            self._thread.start()

    def _has_room(self) -> bool:
        return len(self._waiting) + self._delivering < self._capacity

    @property
    def stats(self) -> HandoffStats:
        """The current counts."""
        with self._changed:
            pending = len(self._waiting) + self._delivering
            return HandoffStats(self._received, *self._delivered, self._dropped, self._failed, pending)

    def close(self, timeout: float) -> bool:
        """Refuse further items and wait for the delivery of the others.

        Return False if it takes longer than `timeout`.
        """
        with self._changed:
            self._closing = True
            self._deadline = time.monotonic() + timeout
            self._changed.notify_all()
            thread = self._thread
        if thread is None:
            return True
        # The thread notices the deadline by itself between two retries. The second more is for a delivery in progress.
        thread.join(timeout + 1)
        return not thread.is_alive() and not self.stats.pending

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                items = [self._waiting.popleft() for _ in range(min(BATCH_SIZE, len(self._waiting)))]
                self._delivering = len(items)
            delivered = self._deliver_with_retries(items)
            if not delivered:  # the timeout of `close` is over: the rest stays pending
                return

    def _deliver_with_retries(self, items: Sequence[T]) -> bool:
        """Deliver items, with retries. Return False if the timeout of `close` expired before."""
        pause = FIRST_PAUSE
        while True:
            try:
                delivered = self._deliver(items)
            except StorageUnavailable as error:
                _log.warning("%s: the queue is unreachable, and %d items wait: %r", self._name, len(items), error)
            except Exception:  # noqa: BLE001 - one bad item must not stop the others
                # The batch failed for one of its items, and the error does not name it. Items that the failed call has
                # added already are duplicates in the second attempt, because their ids are deterministic.
                if len(items) > 1:
                    return all(self._deliver_with_retries([item]) for item in items)
                _log.exception("%s: an item could not be added", self._name)
                self._count(len(items), Delivered())
                return True
            else:
                self._count(len(items), delivered)
                return True
            with self._changed:
                if time.monotonic() + pause > self._deadline:
                    return False
                self._changed.wait(pause)
            pause = min(MAX_PAUSE, 2 * pause)

    def _count(self, items: int, delivered: Delivered) -> None:
        with self._changed:
            self._delivered = Delivered(*map(operator.add, self._delivered, delivered))
            self._failed += items - sum(delivered)
            self._delivering -= items
            self._changed.notify_all()
