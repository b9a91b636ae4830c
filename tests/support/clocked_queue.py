"""A queue on a server whose clock the test moves, and a fake worker that claims on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glidemq_async import Queue
from glidemq_async.storage import Endpoint, MemoryStorage, Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore

SECOND = 1_000
MINUTE = 60_000
HOUR = 3_600_000
DAY = 24 * HOUR


class Clock:
    """The server's clock."""

    def __init__(self, storage: Storage, base: str) -> None:
        self._storage = storage
        self._base = base
        self._shift = 0

    async def advance(self, ms: int) -> None:
        """Move the clock by this many milliseconds."""
        self._shift += ms
        await self._storage.call("testControl", self._base, ["clock_shift", self._shift])

    async def reset(self) -> None:
        """Let the clock show the present time."""
        await self.advance(-self._shift)


@dataclass(frozen=True)
class Timed:
    """A queue on an empty server, that server's clock, and one fake worker."""

    queue: AnyQueue
    clock: Clock
    fake_worker: FakeWorker
    store: RunningStore

    async def pass_time(self, ms: int) -> None:
        """Let time pass on the server, for the keys that expire too."""
        await self.clock.advance(ms)
        for key, left in (await self.store.lifetimes(await self.store.keys())).items():
            if left >= 0:
                await self.store.ask("PEXPIRE", key, left - ms)

    async def names(self, slots: int = 100) -> list[str]:
        """Claim up to this many jobs; return their names in order."""
        return [lease.name for lease in await self.fake_worker.claim(slots)]

    async def run(self, slots: int = 100) -> list[str]:
        """Claim up to this many jobs and complete them; return their names in order."""
        leases = await self.fake_worker.claim(slots)
        for lease in leases:
            assert await self.fake_worker.settle(lease) is None
        return [lease.name for lease in leases]


def timed(storage: MemoryStorage, name: str) -> Timed:
    """Return a queue with a movable clock, on a storage with a test build of the functions."""
    queue = Queue[Any, Any](name, storage)
    store = store_of(storage)
    return Timed(queue, Clock(storage, f"glide:{{{name}}}"), FakeWorker(queue, store), store)


def store_of(storage: MemoryStorage) -> RunningStore:
    """Return the store of an open embedded server."""
    return RunningStore("memory", storage.url, (Endpoint(path=storage.socket),))
