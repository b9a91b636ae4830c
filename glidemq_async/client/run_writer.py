"""Combines what the runs of one worker write to their jobs. While one call is in flight, new items collect."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.errors import QueueClosed

MAX_ITEMS: Final = 250
"""Maximum number of items in one call."""
MAX_BYTES: Final = 1024 * 1024
"""Size of the items in bytes at which a call is full."""

Item = TypeVar("Item")


class RunKey(NamedTuple):
    """A run: its job, and its lease token."""

    job_id: str
    entry: str


class Written(NamedTuple, Generic[Item]):
    """An item of one run. Its future gets the status of the call."""

    run: RunKey
    item: Item
    size: int
    status: asyncio.Future[str]


# The sender is a task. It takes its first step after the current turn of the event loop, so it meets the items of all
# runs that write in this turn. Only one call is in flight, so the items of a run arrive in their order.
class RunWriter(ABC, Generic[Item]):
    """The items of one client that have no reply yet."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._line: deque[Written[Item]] = deque()
        self._sender = BackgroundTasks()
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    @abstractmethod
    async def _send(self, groups: Sequence[tuple[RunKey, list[Item]]]) -> list[str]:
        """Send the items of these runs. Return the status of each run, perhaps only of the first ones."""

    def put(self, job_id: str, entry: str, item: Item, size: int) -> asyncio.Future[str]:
        """Add an item of a run. The future has the status once the server has stored or refused the item."""
        if self._is_closed:
            raise QueueClosed(f"the worker of job {job_id} is closed; write nothing more when the run is cancelled")
        status: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._line.append(Written(RunKey(job_id, entry), item, size, status))
        if self._sending is None:
            self._sending = self._sender.start(self._send_all())
            self._sending.add_done_callback(self._on_end)
        return status

    async def close(self) -> None:
        """End the calls. The futures of items without a reply raise QueueClosed."""
        self._is_closed = True
        await self._sender.close()

    async def _send_all(self) -> None:
        batch: list[Written[Item]] = []
        try:
            while self._line:
                batch = self._next_batch()
                try:
                    await self._send_batch(batch)
                except Exception as error:  # noqa: BLE001 - each caller raises it
                    _refuse(batch, error)
        finally:
            # Nothing is awaited between the last look at `_line` and this line, so no item is left without a sender.
            # Only a cancellation leaves items here.
            self._end(batch)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if self._sending is task:  # it was cancelled before its first step, so `_send_all` did not run
            self._end([])

    def _end(self, batch: Sequence[Written[Item]]) -> None:
        self._sending = None
        _refuse([*batch, *self._line], QueueClosed(f"the worker was closed before the {self._what} was stored"))
        self._line.clear()

    def _next_batch(self) -> list[Written[Item]]:
        batch: list[Written[Item]] = []
        size = 0
        while self._line and len(batch) < MAX_ITEMS:
            size += self._line[0].size
            if batch and size > MAX_BYTES:
                break
            batch.append(self._line.popleft())
        return batch

    async def _send_batch(self, batch: list[Written[Item]]) -> None:
        runs: dict[RunKey, list[Written[Item]]] = {}
        for one in batch:
            runs.setdefault(one.run, []).append(one)
        waiting = list(runs.items())
        while waiting:
            statuses = await self._send([(run, [one.item for one in items]) for run, items in waiting])
            for (_, items), status in zip(waiting, statuses, strict=False):
                for one in items:
                    if not one.status.done():  # otherwise its caller was cancelled
                        one.status.set_result(status)
            # The server ends a call that takes too long. The other items are sent again.
            waiting = waiting[len(statuses) :]


def _refuse(items: Sequence[Written[Item]], error: Exception) -> None:
    for one in items:
        if not one.status.done():
            one.status.set_exception(error)
