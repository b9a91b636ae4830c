"""The wait of one caller for the end of one job."""

from __future__ import annotations

import asyncio

from glidemq_async._internal.wait_point import WaitPoint, raise_soon
from glidemq_async.client.ended import Ended


# A future would do the same, but its owner must be able to stop waiting for a moment, in order to read the record.
# `asyncio.wait` does that with a second future and two more turns of the event loop. A future also resumes its caller
# in the next iteration of the loop. Here a message continues the caller in its own callback, see `wait_point`. The
# cancellation of the caller reaches only the point of its present turn, and never the end.
class Waiter:
    """Receives the end of a job once: an Ended, or None if the job does not exist, or an error."""

    __slots__ = ("_ended", "_error", "_is_done", "_turn")

    def __init__(self) -> None:
        self._is_done = False
        self._ended: Ended | None = None
        self._error: Exception | None = None
        self._turn: WaitPoint | None = None

    def done(self) -> bool:
        """Return whether the end, or an error, has arrived."""
        return self._is_done

    def result(self) -> Ended | None:
        """Return the end. Raises the error. Only for a waiter that is done."""
        if self._error is not None:
            raise self._error
        return self._ended

    def set_result(self, ended: Ended | None) -> None:
        """Store the end, and wake the caller in the next iteration of the loop."""
        self._ended = ended
        self._finish()

    def resume(self, ended: Ended | None) -> None:
        """Store the end, and continue the caller up to its next wait. Only outside of every task."""
        self._ended = ended
        self._is_done = True
        if self._turn is not None and self._turn.is_waiting:
            try:
                self._turn.resume()
            except (KeyboardInterrupt, SystemExit) as error:  # of the caller
                raise_soon(error)

    def set_exception(self, error: Exception) -> None:
        """Store an error, and wake the caller."""
        self._error = error
        self._finish()

    async def wait(self, seconds: float) -> None:
        """Wait until the waiter is done, for at most this time. Only one task waits at a time."""
        if self._is_done:
            return
        loop = asyncio.get_running_loop()
        turn = self._turn = WaitPoint(loop)
        timer = loop.call_later(seconds, _wake, turn)
        try:
            await turn
        finally:
            timer.cancel()
            self._turn = None

    def _finish(self) -> None:
        self._is_done = True
        if self._turn is not None:
            _wake(self._turn)


def _wake(turn: WaitPoint) -> None:
    if turn.is_waiting:
        turn.resume_soon()
