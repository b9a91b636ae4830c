"""Sharded channels: one subscriber connection per route, which reconnects until it is closed.

Messages are hints. A message that is published while a link is down is lost, and `on_change` reports these times.
A user without a permission for a channel is refused by the server. The link stays up for the other channels and asks
for the refused ones again every `REFUSED_SECONDS`, because an administrator may add the permission.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.errors import GlideMQError
from glidemq_async.storage.redis.access import missing_rule, prefix_of, warn
from glidemq_async.storage.redis.connections import LoginRefused
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.retry import TRY_SECONDS, RetryPauses
from glidemq_async.storage.redis.wire import Reply, ReplyError, Wire, as_list

OnMessage: TypeAlias = Callable[[bytes], None]
OnChange: TypeAlias = Callable[[bool], None]

_V = TypeVar("_V")

REFUSED_SECONDS: Final = 30.0
"""Pause before a channel is asked for again after the server refused it for lack of a permission."""

LONGEST_LOGIN_PAUSE: Final = 30.0
"""Longest pause between two logins that the server refuses. Many failed logins can lock the user, or fill its log."""

log: Final = logging.getLogger("glidemq_async.storage")
_FAILED: Final = "a callback of channel %s failed"


class NodeFinder(Protocol):
    """The part of Servers that subscriptions use: the node of a key, and a report that this node fails."""

    url: str

    def route(self, key: str) -> int: ...

    async def find_node(self, key: str) -> Node: ...

    async def recheck_node(self, key: str, problem: Exception) -> bool: ...


class ChannelSubscription:
    """One subscriber of one channel."""

    def __init__(self, link: SubscriberLink, channel: bytes, on_message: OnMessage, on_change: OnChange) -> None:
        self.link = link
        self.channel = channel
        self._on_message = on_message
        self._on_change = on_change
        self._up = False
        self._closed = False

    def reset(self) -> None:
        """Drop the link of this channel and connect again."""
        if not self._closed:
            self.link.reset("reset by the subscriber")

    async def close(self) -> None:
        """Unsubscribe; idempotent."""
        if not self._closed:
            self._closed = True
            await self.link.remove(self)

    def message(self, payload: bytes) -> None:
        """Deliver a message."""
        if not self._closed:
            # Not by `_guarded`, because a message may start a job, and each call delays it.
            try:
                self._on_message(payload)
            except Exception:
                log.exception(_FAILED, self.channel.decode(errors="replace"))

    def changed(self, up: bool) -> None:
        """Report the state of the link if it has changed."""
        if up != self._up and not self._closed:
            self._up = up
            _guarded(self._on_change, up, self.channel)

    def refused(self) -> None:
        """Report that the server refused the channel. The channel need not have been up before."""
        self._up = True
        self.changed(False)


def _guarded(callback: Callable[[_V], None], value: _V, channel: bytes) -> None:
    try:
        callback(value)
    except Exception:
        log.exception(_FAILED, channel.decode(errors="replace"))


# A link goes through every state while callers add and remove channels, so each reply is judged by the state at its
# arrival. Three interleavings decide the order of the statements below:
#
# 1. A channel is left and joined again before the first reply comes. SUNSUBSCRIBE and SSUBSCRIBE are then both in
#    flight. `add` takes the channel out of `_leaving`, so the reply to SUNSUBSCRIBE finds it neither leaving nor
#    confirmed and has no effect. The reply to SSUBSCRIBE confirms the channel.
# 2. A server that hands a cluster slot to another node ends the subscriptions of that slot and sends `sunsubscribe`
#    without a request. The channel is then confirmed and not leaving. This is the only sign of the move, and the link
#    reconnects.
# 3. An error reply does not name its channel. `_asked` therefore contains the requests in their order. Replies that
#    belong to no request (case 2) are searched in it and may be missing.
#
# Messages are never counted or acknowledged. Every reader of a channel also polls, so a lost message costs time and no
# job.
class SubscriberLink:
    """The subscriber connection of one route and its channels."""

    def __init__(self, hub: SubscriptionHub, storage: NodeFinder, route: int, key: str) -> None:
        self._hub = hub
        self._storage = storage
        self._route = route
        self._key = key
        self._channels: dict[bytes, list[ChannelSubscription]] = {}
        self._confirmed: set[bytes] = set()
        self._leaving: set[bytes] = set()
        # Requests without a reply, in order: an error reply does not name its channel.
        self._asked: deque[tuple[str, bytes]] = deque()
        self._refused: set[bytes] = set()
        self._wire: Wire | None = None
        self._problem: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._running = BackgroundTasks()
        self._running.start(self._run())

    def add(self, subscription: ChannelSubscription) -> None:
        """Add a subscription. If its channel is already confirmed or refused, report it in the next loop iteration."""
        channel = subscription.channel
        self._channels.setdefault(channel, []).append(subscription)
        self._leaving.discard(channel)
        if self._wire is None:
            return
        if channel in self._confirmed or channel in self._refused:
            # Not immediately: the subscriber does not have its subscription object before `subscribe` has returned, and
            # its callback may use it.
            asyncio.get_running_loop().call_soon(self._announce, subscription)
        else:
            self._ask(self._wire, [channel])

    def _announce(self, subscription: ChannelSubscription) -> None:
        if subscription.channel in self._refused:
            subscription.refused()
        else:
            subscription.changed(subscription.channel in self._confirmed)

    async def remove(self, subscription: ChannelSubscription) -> None:
        """Unsubscribe one; the last one closes the link."""
        subscribers = self._channels.get(subscription.channel, [])
        if subscription in subscribers:
            subscribers.remove(subscription)
        if subscribers:
            return
        self._channels.pop(subscription.channel, None)
        if not self._channels:
            self._hub.forget(self._route, self)
            await self.close()
        elif subscription.channel in self._refused:
            self._refused.discard(subscription.channel)
        elif self._wire is not None:
            self._leaving.add(subscription.channel)
            self._confirmed.discard(subscription.channel)
            self._send(self._wire, "SUNSUBSCRIBE", subscription.channel)

    def reset(self, reason: str) -> None:
        """Drop the connection. The link reconnects."""
        if self._wire is not None:
            self._wire.drop(reason)

    async def close(self) -> None:
        """Close the link."""
        await self._running.close()
        self.reset("closed")

    # Connecting and reading replies

    async def _run(self) -> None:
        backoff, logins = RetryPauses(), RetryPauses(longest=LONGEST_LOGIN_PAUSE)
        while True:
            pause = backoff
            try:
                node = await self._storage.find_node(self._key)
                wire = await node.dial()
                logins = RetryPauses(longest=LONGEST_LOGIN_PAUSE)
                backoff, problem = await self._serve(wire, backoff)
                pause = backoff
                if problem is not None:
                    await self._storage.recheck_node(self._key, problem)
            except (OSError, TimeoutError, GlideMQError) as error:
                log.debug("subscriber connection to %s failed: %s", self._storage.url, error)
                await self._look_again(error)
                if isinstance(error, LoginRefused):
                    pause = logins
            except Exception:
                log.exception("subscriber connection to %s failed", self._storage.url)
            await asyncio.sleep(pause.next())

    async def _look_again(self, error: Exception) -> None:
        with contextlib.suppress(OSError, TimeoutError, GlideMQError):
            await self._storage.recheck_node(self._key, error)

    async def _serve(self, wire: Wire, backoff: RetryPauses) -> tuple[RetryPauses, Exception | None]:
        self._problem = None
        try:
            self._forget()
            self._wire = wire
            wire.listen(self._reply)
            self._ask(wire, list(self._channels))
            await asyncio.shield(wire.lost)
        finally:
            wire.drop("the link ended")
            self._wire = None
            self._stop_timer()
            # Read before `_forget` clears it. Only a link that worked resets the backoff. A server that accepts
            # connections and then drops them would otherwise be called hundreds of times a second.
            was_up = bool(self._confirmed or self._refused)
            self._forget()
            # After `_forget`, because a callback may look at the link or change its channels.
            for subscription in self._everyone():
                subscription.changed(False)
        return RetryPauses() if was_up else backoff, self._problem

    def _forget(self) -> None:
        for channels in (self._confirmed, self._leaving, self._refused, self._asked):
            channels.clear()
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _ask(self, wire: Wire, channels: list[bytes]) -> None:
        # Send one request per channel, so that a refusal affects only its own channel.
        for channel in channels:
            self._send(wire, "SSUBSCRIBE", channel)
        if channels and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TRY_SECONDS, self._overdue)

    def _send(self, wire: Wire, command: str, channel: bytes) -> None:
        self._asked.append((command, channel))
        wire.write(pack(command, channel))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        self._timer = None
        if not self._complete():
            self.reset("a subscription was not confirmed in time")

    def _complete(self) -> bool:
        return not self._channels.keys() - self._confirmed - self._refused

    def _everyone(self) -> list[ChannelSubscription]:
        return [one for subscribers in self._channels.values() for one in subscribers]

    def _reply(self, reply: Reply) -> None:
        # A handler may wait for a message, so it comes first and is not matched against a pattern.
        message = cast("list[bytes]", reply)
        if type(message) is list and message[0] == b"smessage":
            _, channel, payload = message
            for subscription in tuple(self._channels.get(channel, ())):
                subscription.message(payload)
            return
        if isinstance(reply, Exception):
            self._failed(reply)
            return
        match as_list(reply):
            case [b"ssubscribe", bytes(channel), _]:
                self._answered("SSUBSCRIBE", channel)
                self._subscribed(channel)
            case [b"sunsubscribe", bytes(channel), _]:
                self._answered("SUNSUBSCRIBE", channel)
                self._unsubscribed(channel)
            case _:
                pass

    def _answered(self, command: str, channel: bytes) -> None:
        # A server that moves a slot ends its subscriptions, so this reply may belong to no request.
        with contextlib.suppress(ValueError):
            self._asked.remove((command, channel))

    def _failed(self, problem: Exception) -> None:
        command, channel = self._asked.popleft() if self._asked else ("", b"")
        is_denied = isinstance(problem, ReplyError) and str(problem).startswith("NOPERM")
        if not is_denied or not command:
            self._problem = problem
            self.reset(f"the server refused a subscription: {problem}")
        elif command == "SSUBSCRIBE":
            self._denied(channel, problem)
        else:
            self._leaving.discard(channel)

    def _denied(self, channel: bytes, problem: Exception) -> None:
        text = channel.decode(errors="replace")
        warn(self._storage.url, [missing_rule(str(problem), prefix_of(text))])
        if channel in self._channels:
            self._refused.add(channel)
            for subscription in tuple(self._channels[channel]):
                subscription.refused()
        if self._complete():
            self._stop_timer()
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._ask_again)

    def _ask_again(self) -> None:
        self._again = None
        refused, self._refused = self._refused, set()
        if self._wire is not None:
            self._ask(self._wire, [channel for channel in refused if channel in self._channels])

    def _subscribed(self, channel: bytes) -> None:
        self._confirmed.add(channel)
        if self._complete():
            self._stop_timer()
        for subscription in tuple(self._channels.get(channel, ())):
            subscription.changed(True)

    def _unsubscribed(self, channel: bytes) -> None:
        if channel in self._leaving:
            self._leaving.discard(channel)
        elif channel in self._channels and channel in self._confirmed:
            self._problem = ConnectionError("the slot has moved to another node")
            self.reset("the server ended the subscription")


class SubscriptionHub:
    """The links of one storage."""

    def __init__(self, storage: NodeFinder) -> None:
        self._storage = storage
        self._links: dict[int, SubscriberLink] = {}

    def subscribe(self, key: str, channel: str, on_message: OnMessage, on_change: OnChange) -> ChannelSubscription:
        """Add a subscriber, on a new link if the route has none."""
        route = self._storage.route(key)
        link = self._links.get(route)
        if link is None:
            link = self._links[route] = SubscriberLink(self, self._storage, route, key)
        subscription = ChannelSubscription(link, channel.encode(), on_message, on_change)
        link.add(subscription)
        return subscription

    def forget(self, route: int, link: SubscriberLink) -> None:
        """Remove a link that is about to close."""
        if self._links.get(route) is link:
            del self._links[route]

    def reset(self, routes: set[int] | None = None) -> None:
        """Drop every link, or the links of some routes. Each one reconnects."""
        for route, link in tuple(self._links.items()):
            if routes is None or route in routes:
                link.reset("another server may be responsible now")

    async def close(self) -> None:
        """Close every link."""
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            await link.close()
