"""One connection that carries the requests of many callers in order, without retries or routing.

The connection matches replies to requests by their position. A cancelled caller abandons its future. The connection
still reads the reply and discards it, so later replies keep their positions, and no reconnect is needed. A connection
without progress is closed at the deadline. A slow connection that still transfers a large request or reply stays open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

import hiredis

from glidemq_async.storage.redis.transit import Transit

Reply: TypeAlias = object
ReplyError = hiredis.ReplyError


# All callers of a storage share one connection to a node, and many of their requests are in flight on it. A server
# answers the requests of one connection in their order, and a reply does not name its request. The position is the only
# link between the two. Four rules keep the positions right:
#
# 1. `send` appends the future and writes the request in one turn of the event loop. An `await` between the two would
#    let another caller send in between, and the two callers would get each other's replies.
# 2. A future whose caller was cancelled stays in `_pending` until its reply has come. Removing it would shift every
#    later reply by one.
# 3. A request whose reply has another form, such as SSUBSCRIBE, is never sent on a connection with such futures.
#    `listen` turns a whole connection into a subscriber.
# 4. Anything that does not fit ends the connection. A call that was in flight is then sent again with its number (see
#    `retry`), which is safe. Guessing which reply belongs to which caller is not.
class LinkLost(ConnectionError):
    """Result of a request whose connection ended before the reply. The server may have executed the request."""


def as_list(reply: Reply) -> list[Reply] | None:
    """Return the reply if it is an array, otherwise None."""
    return cast("list[Reply]", reply) if isinstance(reply, list) else None


def as_text(reply: Reply) -> str:
    """Return a string reply as text, and any other reply as its `str`."""
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


class _Missing:
    pass


_MISSING: Final = _Missing()

_NEVER: Final = float("inf")
LATE: Final = 0.1
"""A check of the deadlines that runs this many seconds after its time is late."""
SILENCE: Final = 0.003
"""Seconds without a reply after which the server and the workers of a queue probably sleep."""
_PING: Final = b"*1\r\n$4\r\nPING\r\n"


class _Gathering:
    """Takes the place of the futures of several requests, and completes one future with all of their replies."""

    __slots__ = ("_count", "_future", "_replies")

    def __init__(self, future: asyncio.Future[list[Reply]], count: int) -> None:
        self._future = future
        self._count = count
        self._replies: list[Reply] = []

    def done(self) -> bool:
        return False

    def set_result(self, reply: Reply) -> None:
        self._replies.append(reply)
        if len(self._replies) == self._count and not self._future.done():
            self._future.set_result(self._replies)


class _IgnoredReply:
    """Takes the place of a future for a reply that nobody reads. Notes if the server refused permission."""

    __slots__ = ("is_refused",)

    def __init__(self) -> None:
        self.is_refused = False

    def done(self) -> bool:
        return False

    def set_result(self, reply: Reply) -> None:
        if isinstance(reply, ReplyError) and str(reply).startswith("NOPERM"):
            self.is_refused = True


class Wire(asyncio.Protocol):
    """A connection that `dial` in `connections` has opened."""

    _transport: asyncio.Transport
    _transit: Transit

    def __init__(self, where: str, keep: object = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.where = where
        self._keep = keep  # lives as long as the connection; see `handover`
        self._parser = hiredis.Reader(notEnoughData=_MISSING)
        self._pending: deque[tuple[asyncio.Future[Reply] | _Gathering | _IgnoredReply, float, float]] = deque()
        self._ping_reply = _IgnoredReply()
        self._unread_reply = _IgnoredReply()
        self._timer: asyncio.TimerHandle | None = None
        self._check_at = _NEVER
        self._excused = _NEVER
        """The deadline whose check was late."""
        self._progress = 0.0
        """Loop time of the last received bytes, or of the last check that found sent bytes on their way."""
        self._resumed: asyncio.Future[None] | None = None
        self._listener: Callable[[Reply], None] | None = None
        self.lost: asyncio.Future[LinkLost] = self._loop.create_future()
        self.transacts: bool | None = None
        """True if the user may send transactions over this connection, None before the first attempt."""

    @property
    def alive(self) -> bool:
        """True while requests can be sent."""
        return not self.lost.done()

    @property
    def busy(self) -> bool:
        """True while replies are outstanding."""
        return bool(self._pending)

    def send(
        self, packed: bytes, deadline: float, idle_timeout: float | None = None, *, replies: int = 1
    ) -> asyncio.Future[Reply]:
        """Send a packed request and return the future of its reply, the last one of `replies`.

        The result is the reply, a `ReplyError` or a `LinkLost`. Errors are results and are never raised. The
        connection is closed if no reply has arrived by `deadline` (loop time) and there was no progress for
        `idle_timeout` seconds. Its default is the time until the deadline.
        """
        # Errors are results and not exceptions. A caller inspects the error in any case to decide about a retry, and
        # may leave a future unread (see `call_confirmed`). asyncio logs each exception that is never retrieved.
        future: asyncio.Future[Reply] = self._loop.create_future()
        if self.lost.done():
            future.set_result(self.lost.result())
            return future
        if idle_timeout is None:
            idle_timeout = deadline - self._loop.time()
        # The replies before the last one belong to futures that are not read. They may all be the same one.
        if replies > 1:
            unread: asyncio.Future[Reply] = self._loop.create_future()
            self._pending.extend([(unread, deadline, idle_timeout)] * (replies - 1))
        self._pending.append((future, deadline, idle_timeout))
        # One timer serves all requests of the connection. A new request only ever sets it to an earlier time, and a
        # reply does not cancel it. A timer per request would have to be set and cancelled for each call. This one runs
        # at most once per deadline, finds the next request that could be overdue, and waits again.
        if deadline < self._check_at:
            self._check_again(deadline)
        self._transport.write(packed)
        return future

    # A server writes to its clients when a command has ended. The client whose output began last comes first. That is
    # the caller, because the reply follows the messages that a function publishes. This write wakes the process of the
    # caller. The process that has to start a job is woken by the next write, and may also wait until the caller leaves
    # the processor. After the reply to a PING the caller is the client whose output began first.
    def send_behind_ping(self, packed: bytes, deadline: float, idle_timeout: float) -> asyncio.Future[Reply]:
        """Send a packed request so that the server sends the messages it publishes before its reply; see `send`."""
        if self._ping_reply.is_refused or self.lost.done():
            return self.send(packed, deadline, idle_timeout)
        self._pending.append((self._ping_reply, deadline, idle_timeout))
        return self.send(_PING + packed, deadline, idle_timeout)

    # The request is written in a packet of its own, so that the server works on it while the caller prepares the next
    # one.
    def send_after_silence(self, packed: bytes, idle_timeout: float) -> None:
        """Send a packed request whose reply is ignored, if this connection has been silent for SILENCE.

        The connection is closed as in `send` if no reply arrives within `idle_timeout` seconds. A request that follows
        must be of the same kind: once one was refused for lack of a permission, none is sent.
        """
        now = self._loop.time()
        if self._pending or now - self._progress < SILENCE or self._unread_reply.is_refused or self.lost.done():
            return
        self._pending.append((self._unread_reply, now + idle_timeout, idle_timeout))
        if now + idle_timeout < self._check_at:
            self._check_again(now + idle_timeout)
        self._transport.write(packed)

    def send_each(self, packed: Sequence[bytes], deadline: float, idle_timeout: float) -> asyncio.Future[list[Reply]]:
        """Send several packed requests together and return the future of their replies; see `send`."""
        future: asyncio.Future[list[Reply]] = self._loop.create_future()
        if self.lost.done():
            future.set_result([self.lost.result()] * len(packed))
            return future
        self._pending.extend([(_Gathering(future, len(packed)), deadline, idle_timeout)] * len(packed))
        if deadline < self._check_at:
            self._check_again(deadline)
        self._transport.write(b"".join(packed))
        return future

    async def writable(self) -> None:
        """Wait until the peer has accepted most of the sent bytes."""
        while self._resumed is not None and self.alive:
            await asyncio.shield(self._resumed)

    @property
    def congested(self) -> bool:
        """True while a sender should wait in `writable` first."""
        return self._resumed is not None

    def listen(self, listener: Callable[[Reply], None]) -> None:
        """Pass each further reply to `listener`, for subscriptions."""
        self._listener = listener

    def write(self, packed: bytes) -> None:
        """Send a request whose replies go to the listener."""
        if not self.lost.done():
            self._transport.write(packed)

    def drop(self, reason: str = "dropped") -> None:
        """Close immediately. Outstanding requests end with `LinkLost`."""
        self._end(LinkLost(f"connection to {self.where} ended: {reason}"))

    def _end(self, loss: LinkLost) -> None:
        if self.lost.done():
            return
        # `lost` comes first. `abort` makes the event loop call `connection_lost`, which calls this method again, and
        # the check above then ends it.
        self.lost.set_result(loss)
        # `close` would first try to send the rest of the buffer. A peer that takes no bytes would keep the connection
        # open.
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, deque()
        for future, _, _ in pending:
            if not future.done():
                future.set_result(loss)
        # Senders that wait in `writable` would otherwise wait for ever, because a dead transport never resumes.
        self.resume_writing()
        self._listener = None

    def _check_again(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._check_at = at
        self._timer = self._loop.call_at(at, self._check_deadlines)

    # A deadline limits the time without progress, not the time of the transfer. A reply of 50 MB over a slow link can
    # need minutes. If its connection were dropped after five seconds, the retry would start the transfer from the
    # beginning, and the call would never succeed (tests/storage/test_slow_links.py).
    #
    # Progress belongs to the connection and not to one request. A small request that waits behind a large reply cannot
    # be answered before that reply has arrived, so bytes of any reply extend the time of all requests.
    #
    # Received bytes count immediately (`data_received`). Sent bytes need a question to the kernel (`Transit`), so they
    # count only here, after a deadline has passed. A server that has the whole request and stays silent makes no
    # progress in either sense.
    #
    # A check is late if the event loop was blocked or the process was suspended. A reply may still be on its way then.
    # So the check is repeated after the same delay, but not after more than the time of a request: a process that was
    # suspended for an hour would otherwise wait for a dead server for an hour. Each deadline is extended only once.
    def _check_deadlines(self) -> None:
        wanted, self._timer, self._check_at = self._check_at, None, _NEVER
        soonest = self._soonest()
        now = self._loop.time()
        if soonest <= now and self._transit.moves(self._least_idle_timeout()):
            # The request itself is still being transferred: the server cannot have answered it yet.
            self._progress = now
            soonest = self._soonest()
        if soonest <= now and now - wanted >= LATE and self._excused != soonest:
            self._excused = soonest
            self._check_again(now + min(now - wanted, max(LATE, self._least_idle_timeout())))
        elif soonest <= now:
            self.drop("no reply in time")
        elif soonest < _NEVER:
            self._check_again(soonest)

    def _least_idle_timeout(self) -> float:
        """Return the shortest idle timeout of the pending requests."""
        return min(idle_timeout for _, _, idle_timeout in self._pending)

    def _soonest(self) -> float:
        """Return the loop time at which the first request is overdue unless bytes arrive before."""
        progress = self._progress
        return min(
            (max(deadline, progress + idle_timeout) for _, deadline, idle_timeout in self._pending), default=_NEVER
        )

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream always has a two-way transport; its type says less.
        self._transport = cast("asyncio.Transport", transport)
        self._transit = Transit(self._transport)

    def data_received(self, data: bytes) -> None:
        self._progress = self._loop.time()
        parser = self._parser
        try:
            parser.feed(data)
            reply = parser.gets()
            while reply is not _MISSING:
                if self._listener is not None:
                    # The listener may drop this connection, for example after a refused subscription. The replies
                    # that the parser still holds then belong to a connection that has ended.
                    self._listener(reply)
                    if self.lost.done():
                        return
                else:
                    future, _, _ = self._pending.popleft()
                    if not future.done():
                        future.set_result(reply)
                reply = parser.gets()
        except (hiredis.ProtocolError, IndexError) as error:
            # IndexError: a reply came without a request. Every position after it would be wrong.
            self.drop(f"unexpected data ({error})")

    def pause_writing(self) -> None:
        if self._resumed is None:
            self._resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            resumed.set_result(None)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(LinkLost(f"connection to {self.where} was lost: {exc or 'closed by the server'}"))
