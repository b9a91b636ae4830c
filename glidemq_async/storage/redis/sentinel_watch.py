"""Failovers as the sentinels announce them, so that a client leaves the old primary before it takes more writes.

On `SENTINEL FAILOVER`, a sentinel first promotes a replica and demotes the old primary some ten seconds later. In these
seconds the old primary still acknowledges writes, and its demotion loses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.retry import TRY_SECONDS, RetryPauses
from glidemq_async.storage.redis.wire import Reply, Wire, as_list, as_text

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
"""Seconds of silence after which a sentinel gets a PING. Its connection is dropped after the same time again."""
LONGEST_PAUSE: Final = 5.0
"""Maximum pause in seconds between two attempts to reach a sentinel."""

log: Final = logging.getLogger("glidemq_async.storage")


# Why each sentinel, and not one? Only the sentinel that leads a failover announces PROMOTING and PROMOTED, and any of
# them can lead. The others announce SWITCHED later, when they have learned the new configuration. If the event of an
# unplanned failover is missed, lost connections and the check with ROLE lead to the new primary too. In a planned
# failover only the events do.
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
        self._heard = [asyncio.Event() for _ in sentinels]
        self._watches = BackgroundTasks()
        for sentinel, heard in zip(sentinels, self._heard, strict=True):
            self._watches.start(self._watch(sentinel, heard))

    async def wait_heard(self, seconds: float) -> None:
        """Wait until each sentinel has reported on a failover or cannot be reached, but not longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for heard in self._heard:
                    await heard.wait()

    async def close(self) -> None:
        """Stop listening."""
        await self._watches.close()

    async def _watch(self, sentinel: Endpoint, heard: asyncio.Event) -> None:
        backoff = RetryPauses(longest=LONGEST_PAUSE)
        while True:
            try:
                wire = await dial(sentinel)
                backoff = RetryPauses(longest=LONGEST_PAUSE)
                await self._listen(sentinel, wire, heard)
            except OSError as error:
                log.debug("cannot listen to the sentinel %s: %s", sentinel.where, error)
            except Exception:
                log.exception("cannot listen to the sentinel %s", sentinel.where)
            # Also after a failure: `wait_heard` must not hold up the first connection for a sentinel that is down.
            heard.set()
            await asyncio.sleep(backoff.next())

    async def _listen(self, sentinel: Endpoint, wire: Wire, asked: asyncio.Event) -> None:
        heard = True
        subscribed = asyncio.get_running_loop().create_future()

        def receive(reply: Reply) -> None:
            nonlocal heard
            heard = True
            match as_list(reply):
                case [b"message", bytes(channel), bytes(text)]:
                    self._event(sentinel, channel, text.split(b" "))
                case [b"subscribe", *_] if not subscribed.done():
                    subscribed.set_result(None)
                case _:
                    if isinstance(reply, Exception):
                        wire.drop(f"the sentinel refused the subscription: {reply}")

        try:
            wire.listen(receive)
            wire.write(pack("SUBSCRIBE", PROMOTING, PROMOTED, SWITCHED, *ABORTED))
            # The subscription does not announce a failover that began before it, so ask for one. Ask only after the
            # subscription is confirmed: then a failover that begins between the two is announced.
            await asyncio.wait([wire.lost, subscribed], timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if subscribed.done():
                await self._ask_for_failover(sentinel)
                asked.set()
            while wire.alive:
                await asyncio.wait([wire.lost], timeout=CHECK_SECONDS)
                # A dead sentinel may end without closing its connection, for example with its machine. A subscription
                # then waits for ever, and the next failover would be missed.
                if not heard:
                    wire.drop("the sentinel is silent")
                heard = False
                wire.write(pack("PING"))
        finally:
            wire.drop("the watch ended")

    async def _ask_for_failover(self, sentinel: Endpoint) -> None:
        """Leave the primary if this sentinel leads a failover of it now. The other sentinels do not set this flag."""
        # A second connection, because a subscribed connection of RESP2 takes no other commands.
        wire = await dial(sentinel)
        try:
            deadline = asyncio.get_running_loop().time() + TRY_SECONDS
            reply = as_list(await wire.send(pack("SENTINEL", "MASTER", self._service), deadline))
        finally:
            wire.drop("answered")
        texts = [as_text(text) for text in reply or []]
        known = dict(zip(texts[::2], texts[1::2], strict=False))
        if "failover_in_progress" in known.get("flags", "").split(","):
            self._on_leaving((known["ip"], int(known["port"])))

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
