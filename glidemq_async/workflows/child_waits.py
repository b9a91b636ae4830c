"""The waits of a run for the ends of its children."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

CHILD_ENDED: Final[list[Any]] = []
"""The result of the future of a wait whose child has ended. The wait has the end itself."""


class End(NamedTuple):
    """The end of a child: its result, or the reason why it has none."""

    result: Any = None
    reason: str | None = None


Known: TypeAlias = tuple[Mapping[str, End | None], int]
"""The children of a job by their ids, with their ends, and how many ends the server has counted."""


async def _no_children() -> Known:
    return {}, 0


class ChildWait:
    """The wait for the end of one child. `follow` waits for it on the server, while the run is not suspended."""

    def __init__(
        self, waits: ChildWaits, child_id: str, follow: Callable[[], Awaitable[End]], future: asyncio.Future[Any]
    ) -> None:
        self.child_id = child_id
        self.end = End()
        self.future = future
        self._waits = waits
        self._follow = follow
        self._following: asyncio.Future[End] | None = None

    def start(self) -> None:
        """Follow the child."""
        self._following = asyncio.ensure_future(self._follow())
        self._following.add_done_callback(self._followed)

    def stop(self) -> None:
        """Stop following the child."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()

    def end_with(self, end: End) -> None:
        """End the wait."""
        self.end = end
        self.future.set_result(CHILD_ENDED)

    def _followed(self, following: asyncio.Future[End]) -> None:
        error = None if following.cancelled() else following.exception()
        # The run may have been suspended in this turn of the event loop. Then its next run reads the end.
        if following.cancelled() or following is not self._following or self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
            return
        self._waits.known_ends += 1
        self.end_with(following.result())


# The server counts the ends of the children, and resumes a suspended run when the count exceeds `known_ends`. A count
# that is too small costs a needless run. A count that is too large would leave the run suspended for ever. So each end
# must be counted once, from one of two sources: the ends that a read has found, and the ones that were followed since.
#
# The function of a suspended run can continue in the next run. The run follows no child while it is suspended. The next
# run reads all ends first and then follows the children that still run. No child is added before the end of this read,
# because the read could count the end of a child that is being followed.
class ChildWaits:
    """The open waits of one run for children."""

    def __init__(self) -> None:
        self.known_ends = 0
        """The number of children of the job that have ended, as far as the run knows."""
        self.read: Callable[[], Awaitable[Known]] = _no_children
        """Reads the children of the job."""
        self._open: dict[ChildWait, None] = {}
        self._reading: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_reading(self) -> bool:
        """True while the run reads how its children have ended."""
        return self._reading is not None and not self._reading.done()

    def open(self, child_id: str, follow: Callable[[], Awaitable[End]], future: asyncio.Future[Any]) -> ChildWait:
        """Begin to wait for a child."""
        wait = ChildWait(self, child_id, follow, future)
        self._open[wait] = None
        wait.start()
        return wait

    def close(self, wait: ChildWait) -> None:
        """End a wait."""
        wait.stop()
        del self._open[wait]

    def pause(self) -> None:
        """Follow no child, because the run is suspended."""
        for wait in self._open:
            wait.stop()

    def go_on(self) -> None:
        """Read which children have ended while the run was suspended, and follow the others."""
        if self._open:
            self._reading = asyncio.create_task(self._catch_up())

    def end(self) -> None:
        """End the read of a run that has ended. Tasks that it has left behind wait until their children end."""
        if self.is_reading and self._reading is not None:
            self._reading.cancel()
            for wait in self._left():
                wait.start()

    async def caught_up(self) -> None:
        """Wait until the run knows how its children have ended."""
        if self._reading is not None and not self._reading.done():
            await asyncio.wait([self._reading])

    async def _catch_up(self) -> None:
        try:
            known, self.known_ends = await self.read()
        except Exception as error:  # noqa: BLE001 - the calls raise it, as in a run that starts again
            for wait in self._left():
                wait.future.set_exception(error)
            return
        for wait in self._left():
            end = known.get(wait.child_id)
            if end is None:
                wait.start()
            else:
                wait.end_with(end)

    def _left(self) -> list[ChildWait]:
        return [wait for wait in self._open if not wait.future.done()]
