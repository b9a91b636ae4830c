"""Failovers as the sentinels announce them, so that a client leaves the old primary before it takes more writes.

A sentinel that is told to fail over promotes a replica first and demotes the old primary some ten seconds later. All
that time the old primary still acknowledges writes, and loses them when it is demoted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.retry import Backoff
from glidemq_async.storage.redis.wire import Reply, Wire, as_list

Address: TypeAlias = tuple[str, int]

PROMOTING: Final = b"+failover-state-send-slaveof-noone"
"""A replica is going to be promoted within some 100 ms: `slave <name> <ip> <port> @ <service> <old ip> <old port>`."""
PROMOTED: Final = b"+promoted-slave"
"""The replica is the primary now; the text is the same."""
SWITCHED: Final = b"+switch-master"
"""The failover is complete: `<service> <old ip> <old port> <new ip> <new port>`."""
ABORTED: Final = (b"-failover-abort-no-good-slave", b"-failover-abort-slave-timeout", b"-failover-abort-not-elected")
"""The old primary stays: `master <service> <ip> <port>`."""
CHECK_SECONDS: Final = 10.0
"""Seconds of silence after which a sentinel is asked for a sign of life; as many later its connection is dropped."""
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to reach a sentinel, at most."""

log: Final = logging.getLogger("glidemq_async.storage")


class SentinelWatch:
    """Listens to every sentinel of a service.

    The callbacks run in the event loop: `on_leaving(old primary)` when a failover begins, `on_switched(sentinel, old
    primary)` when that sentinel knows the new primary, `on_stayed()` when a failover was given up.
    """

    def __init__(
        self,
        sentinels: Sequence[Endpoint],
        service: str,
        on_leaving: Callable[[Address], None],
        on_switched: Callable[[Endpoint, Address], None],
        on_stayed: Callable[[], None],
    ) -> None:
        self._service = service.encode()
        self._on_leaving = on_leaving
        self._on_switched = on_switched
        self._on_stayed = on_stayed
        self._tasks = [asyncio.ensure_future(self._watch(sentinel)) for sentinel in sentinels]

    async def close(self) -> None:
        """Stop listening."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, sentinel: Endpoint) -> None:
        backoff = Backoff(longest=LONGEST_PAUSE)
        while True:
            try:
                wire = await dial(sentinel)
                backoff = Backoff(longest=LONGEST_PAUSE)
                await self._listen(sentinel, wire)
            except OSError as error:
                log.debug("the sentinel %s cannot be listened to: %s", sentinel.where, error)
            except Exception:
                log.exception("listening to the sentinel %s failed", sentinel.where)
            await asyncio.sleep(backoff.next())

    async def _listen(self, sentinel: Endpoint, wire: Wire) -> None:
        heard = True

        def receive(reply: Reply) -> None:
            nonlocal heard
            heard = True
            match as_list(reply):
                case [b"message", bytes(channel), bytes(text)]:
                    self._event(sentinel, channel, text.split(b" "))
                case _:
                    if isinstance(reply, Exception):
                        wire.drop(f"the sentinel refused the subscription: {reply}")

        try:
            wire.listen(receive)
            wire.write(pack("SUBSCRIBE", PROMOTING, PROMOTED, SWITCHED, *ABORTED))
            while wire.alive:
                await asyncio.wait([wire.lost], timeout=CHECK_SECONDS)
                if not heard:
                    wire.drop("the sentinel is silent")
                heard = False
                wire.write(pack("PING"))
        finally:
            wire.drop("the watch ended")

    def _event(self, sentinel: Endpoint, channel: bytes, words: list[bytes]) -> None:
        match channel, words:
            case b"+switch-master", [self._service, host, port, _, _]:
                self._on_switched(sentinel, _address(host, port))
            case b"+promoted-slave", [b"slave", _, _, _, b"@", self._service, host, port]:
                self._on_switched(sentinel, _address(host, port))
            case b"+failover-state-send-slaveof-noone", [b"slave", _, _, _, b"@", self._service, host, port]:
                self._on_leaving(_address(host, port))
            case _, [b"master", self._service, *_] if channel in ABORTED:
                self._on_stayed()
            case _:
                pass


def _address(host: bytes, port: bytes) -> Address:
    return host.decode(), int(port)
