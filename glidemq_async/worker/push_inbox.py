"""Receives the jobs that adds push to an idle worker, and decides which pushes are valid."""

from __future__ import annotations

from typing import Final

from glidemq_async.functions.push import JobsPushed

FRESH_SHARE: Final = 0.25
"""The part of a lease after which a push is not started any more."""


# A push can be late: the connection was slow, the loop was blocked by a handler, or the process was suspended. By then
# the worker may have called, or the lease may have ended. Two rules make sure that each pushed job starts once:
#
# - A push has the number of the worker's last call that the server knew. The worker's next call either says that it has
#   the push, or its reply contains the jobs. So a push is valid only while the worker has sent no call with a higher
#   number. A push with the number of the call in flight has overtaken the reply, and waits for it here.
# - The lease of a push is not renewed while the push is on its way. So a push that is older than a quarter of the lease
#   is dropped. The worker calls instead, and the reply contains the jobs that it may still start. The age is the
#   difference between two times of the server: the time of the push, and the present, counted from the last reply.
class PushInbox:
    """Keeps a push until the claim loop starts its jobs."""

    def __init__(self, lock_ms: int) -> None:
        self._fresh_ms = lock_ms * FRESH_SHARE
        self._waiting: JobsPushed | None = None
        self._accepted = self._answered = 0
        self._server_ms = 0
        self._replied_at = 0.0

    def __bool__(self) -> bool:
        """Return whether a push waits for the claim loop."""
        return self._waiting is not None

    @property
    def has_last(self) -> bool:
        """True if the push after the last answered call was accepted."""
        return self._accepted == self._answered > 0

    def answered(self, number: int, server_ms: int, at: float) -> None:
        """Note the reply to the call of this number: the server's time, and the loop time of its arrival."""
        self._answered, self._server_ms, self._replied_at = number, server_ms, at

    def receive(self, pushed: JobsPushed, last_number: int) -> bool:
        """Keep a push. Return False, and drop it, if a call with a higher number was sent."""
        if pushed.number != last_number:
            return False
        self._waiting = pushed
        return True

    def take(self, at: float, *, is_safe: bool) -> JobsPushed | None:
        """Return the push that waits and accept it; None, and drop it, if its jobs must not start.

        `at`: loop time; `is_safe`: leases are renewed in time.
        """
        pushed, self._waiting = self._waiting, None
        return pushed if pushed is not None and is_safe and self.accept(pushed.number, pushed.claimed_at, at) else None

    def decline(self) -> None:
        """Take back the acceptance of the last push, because none of its jobs has started."""
        self._accepted = 0

    def accept(self, number: int, claimed_at: int, at: float) -> bool:
        """Accept a push with these fields at a loop time. Return False if its jobs must not start."""
        if number != self._answered:
            return False
        now = self._server_ms + (at - self._replied_at) * 1000
        if abs(now - claimed_at) > self._fresh_ms:
            return False
        self._accepted = number
        return True
