"""A primary that Sentinel watches.

The storage asks the sentinels for its address before each new connection. It also listens to the sentinels, so that it
leaves the old primary when a planned failover begins.
"""

# redis-py's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.redis.connections import Endpoint, connection_options, dial, known_error
from glidemq_async.storage.redis.handover import abandon
from glidemq_async.storage.redis.library import Library, pack, shipped
from glidemq_async.storage.redis.retry import TRY_SECONDS
from glidemq_async.storage.redis.sentinel_watch import Address, SentinelWatch
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.standalone import OneServer
from glidemq_async.storage.redis.wire import ReplyError, Wire, as_list

if TYPE_CHECKING:
    from redis.asyncio import Redis, Sentinel
    from redis.asyncio.connection import AbstractConnection

LEFT_SECONDS: Final = 15.0
"""Seconds for which the old primary of a failover is avoided. Sentinel demotes it within ten."""


HEAR_SECONDS: Final = 1.0
"""Maximum time in seconds that the first connection waits until the sentinels report whether a failover runs."""


# The kinds of failover, and what protects the calls in each of them:
#
# 1. Planned (`SENTINEL FAILOVER`). The old primary is alive, answers ROLE with "master" and acknowledges writes until
#    it is demoted, some ten seconds after the promotion. The demotion loses these writes. `_begin_failover` leaves it
#    before the promotion, and `_refuse_left` refuses its address for LEFT_SECONDS, although sentinels still name it.
# 2. Unplanned. The connections to a dead primary end, `recheck_node` leaves it, and calls are repeated until the
#    sentinels name another one. No event is needed for that.
# 3. The old primary comes back before it is demoted. It still believes that it is the primary. Only `_follow`, which
#    noted its address at the switch, keeps the storage away from it.
# 4. Given up. The old primary stays. `_end_refusal` ends the refusal; otherwise calls would wait LEFT_SECONDS for a new
#    primary.
#
# Replication is asynchronous. So none of this saves a write that the old primary acknowledged before the failover and
# that no replica has received; the durability "replicated" does.
class WatchedServer(OneServer):
    """The primary that the sentinels of a service name. Without `service`: of the only service that they watch."""

    def __init__(
        self,
        sentinels: Sequence[Endpoint],
        service: str | None,
        primary: Endpoint,
        url: str,
        library: Library,
        discovery: Mapping[str, Any],
    ) -> None:
        super().__init__(primary, url, library)
        self._sentinels = list(sentinels)
        self._service = service
        self._discovery = dict(discovery)
        """Options of redis-py's Sentinel: `min_other_sentinels` and `force_master_ip`."""
        self._watch: SentinelWatch | None = None
        self._left: Address | None = None
        """The old primary of a failover, which still reports the role of a primary until its demotion."""
        self._left_until = 0.0

    async def dial(self) -> Wire:
        """Ask the sentinels in turn for the primary, connect to it, and check with ROLE that it is a primary."""
        service = self._service or await self._find_service()
        await self._ensure_watch(service)
        problems: dict[str, OSError] = {}
        for sentinel in tuple(self._sentinels):
            try:
                host, port = await self._ask(sentinel, service)
                self._refuse_left((host, port))
                wire = await self._dial_primary(self.endpoint.at(host, port), service)
            except OSError as error:
                problems[sentinel.where] = error
                continue
            self._ask_first(sentinel)
            return wire
        raise _failure(f"no sentinel led to a primary of {service!r}", problems)

    async def _ensure_watch(self, service: str) -> None:
        # The watch starts with the first connection, because it needs the event loop. A forked child starts another
        # one. The first connection waits for the watch: during a planned failover the old primary still answers ROLE
        # with "master", so only the sentinels know that its demotion is near.
        if self._watch is None and not self.closed:
            self._watch = SentinelWatch(self._sentinels, service, self._begin_failover, self._follow, self._end_refusal)
        if self._watch is not None:
            await self._watch.wait_heard(HEAR_SECONDS)

    async def _find_service(self) -> str:
        """Return the only service that the sentinels watch. Raises StorageUnavailable if they watch several."""
        problems: dict[str, OSError] = {}
        for sentinel in tuple(self._sentinels):
            try:
                async with self._client(sentinel, "names no services") as client:
                    names = sorted(str(name) for name in await client.sentinels[0].sentinel_masters())
            except OSError as error:
                problems[sentinel.where] = error
                continue
            if len(names) > 1:
                raise StorageUnavailable(
                    f"{self.url} does not name a service, and its sentinels watch {len(names)} services: "
                    f"{', '.join(names)}. Pass sentinel.master_for({names[0]!r}), or the client of another service."
                )
            if names and self._service is None:  # another connection may have found it during the await
                self._service, self.url = names[0], self.url + names[0]
            if names:
                return names[0]
            problems[sentinel.where] = ConnectionError("watches no service")
        raise _failure("no sentinel named the service to use", problems)

    def _ask_first(self, sentinel: Endpoint) -> None:
        """Ask this sentinel before the others the next time."""
        self._sentinels.remove(sentinel)
        self._sentinels.insert(0, sentinel)

    # Failovers, as the sentinels announce them

    def _begin_failover(self, primary: Address) -> None:
        # Sentinel is about to promote a replica. It demotes the old primary some ten seconds later. Until then the old
        # primary acknowledges writes, and the demotion loses all of them. So the storage leaves it now, and calls
        # wait for the new primary.
        self._left, self._left_until = primary, asyncio.get_running_loop().time() + LEFT_SECONDS
        self.leave("a failover has begun")

    def _follow(self, sentinel: Endpoint, primary: Address) -> None:
        # The other sentinels may still name the old primary.
        self._ask_first(sentinel)
        # Every sentinel announces the switch. The first announcement drops the connections. Those that follow must not
        # drop the new connections to the new primary.
        known = self._left == primary and asyncio.get_running_loop().time() < self._left_until
        self._left, self._left_until = primary, asyncio.get_running_loop().time() + LEFT_SECONDS
        if not known:
            self.leave("Sentinel has switched the primary")

    def _end_refusal(self) -> None:
        self._left = None

    def _refuse_left(self, address: Address) -> None:
        if address == self._left and asyncio.get_running_loop().time() < self._left_until:
            raise ConnectionError(f"{address[0]}:{address[1]} is being replaced as the primary")

    def forget_nodes(self) -> object:
        former, self._watch = self._watch, None
        return former, super().forget_nodes()

    async def close_nodes(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        await super().close_nodes()

    async def _ask(self, sentinel: Endpoint, service: str) -> Address:
        """Return the primary that this sentinel names, found by redis-py. Raises `OSError` if there is none."""
        async with self._client(sentinel, f"names no primary of the service {service!r} that is up") as client:
            host, port = await client.discover_master(service)
        return str(host), int(port)

    @asynccontextmanager
    async def _client(self, sentinel: Endpoint, problem: str) -> AsyncGenerator[Sentinel]:
        """Lend redis-py's client of one sentinel.

        Its errors become an OSError: _SentinelDown, or a ConnectionError that begins with `problem`.
        """
        from redis.asyncio import ConnectionPool, Redis, Sentinel
        from redis.exceptions import RedisError

        # redis-py would stop at the first sentinel that answers. That sentinel may still name the former primary, so
        # each one is asked separately, and `dial` checks its answer.
        kind, kwargs = connection_options(sentinel)
        opened: list[AbstractConnection] = []

        def connection(**kwargs: Any) -> AbstractConnection:
            opened.append(kind(**kwargs))
            return opened[-1]

        client = Sentinel([], **self._discovery)  # type: ignore[no-untyped-call]
        pool = ConnectionPool(connection_class=connection, **kwargs)  # type: ignore[arg-type]
        asked = _ErrorKeeper(Redis.from_pool(pool))
        client.sentinels = [cast("Redis", asked)]
        try:
            async with asyncio.timeout(TRY_SECONDS):
                yield client
        except TimeoutError as error:
            raise _SentinelDown(f"did not reply within {TRY_SECONDS:g} s") from error
        except RedisError as error:
            raise _error_of(asked.error, sentinel, problem) from error
        finally:
            # Not `client.aclose`: it awaits, and a caller that is cancelled meanwhile would leave the connection open.
            for one in opened:
                abandon(one)

    async def _dial_primary(self, endpoint: Endpoint, service: str) -> Wire:
        wire = await dial(endpoint)
        try:
            await self._require_primary(wire, service)
        except BaseException:
            wire.drop("not known to be the primary")
            raise
        return wire

    async def _require_primary(self, wire: Wire, service: str) -> None:
        reply = await wire.send(pack("ROLE"), asyncio.get_running_loop().time() + TRY_SECONDS)
        role = as_list(reply)
        if role is not None and role[0] == b"master":
            return
        found = "a replica" if role is not None else str(reply)
        if isinstance(reply, ReplyError) and str(reply).startswith("LOADING"):
            found = "loading its data"
        raise ConnectionError(f"{wire.where} should be the primary of {service!r} and is {found}")

    async def recheck_node(self, key: str, problem: Exception) -> bool:  # noqa: ARG002
        # A lost connection may mean a failover. Then the subscriber connections lead to the old primary too.
        wire = self._node.wire
        # Several calls may report the loss of one connection. The first report has led to a new connection, and the
        # others must not drop that one. An error reply such as READONLY is different: its connection is alive and leads
        # to a server that is no longer the primary.
        if isinstance(problem, ReplyError) or wire is None or not wire.alive:
            self.leave(f"looking for the primary again after: {problem}")
        return False


class _SentinelDown(ConnectionError):
    """The sentinel cannot be reached."""


class _ErrorKeeper:
    """A client of one sentinel that keeps the error of its last call.

    redis-py's Sentinel reports such an error without its text, and with the internals of the client.
    """

    def __init__(self, client: Redis) -> None:
        self._client = client
        self.error: Exception | None = None

    async def sentinel_masters(self) -> Any:
        """Return the services that the sentinel watches."""
        try:
            return await self._client.sentinel_masters()
        except Exception as error:
            self.error = error
            raise


def _error_of(error: Exception | None, sentinel: Endpoint, problem: str) -> OSError:
    """Return the error of `dial` for the error of a call to a sentinel. None if the call had no error."""
    from redis import exceptions

    if error is None:
        return ConnectionError(problem)
    if not isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
        return ConnectionError(f"{problem} ({error})")
    known = known_error(error, sentinel)
    if isinstance(known, StorageUnavailable):  # a refused login
        return known
    return _SentinelDown(str(known or error).rstrip("."))


def _failure(aim: str, problems: Mapping[str, OSError]) -> ConnectionError:
    """Return the error after all sentinels were asked in vain. `aim` names what they did not provide."""
    are_down = all(isinstance(problem, _SentinelDown) for problem in problems.values())
    reasons = "; ".join(f"{where}: {problem}" for where, problem in problems.items())
    return ConnectionError(f"{'no sentinel can be reached' if are_down else aim} ({reasons})")


class SentinelStorage(ServerStorage):
    """The primary of a Sentinel service; `open_storage` makes it from `redis+sentinel://` URLs.

    Without `service` it is the only service that the sentinels watch.
    """

    def __init__(
        self,
        sentinels: Sequence[Endpoint],
        service: str | None,
        primary: Endpoint,
        url: str | None = None,
        library: Library | None = None,
        *,
        timeout: float | None = None,
        discovery: Mapping[str, Any] | None = None,
    ) -> None:
        shown = url or f"redis+sentinel://{','.join(one.where for one in sentinels)}/{service or ''}"
        self._settings = tuple(sentinels), service, primary, shown, library or shipped(), dict(discovery or {})
        super().__init__(
            WatchedServer(*self._settings), timeout=timeout, socket_timeout=primary.options.get("socket_timeout")
        )

    def clone(self) -> SentinelStorage:
        """Return a storage for the same service with separate connections."""
        sentinels, service, primary, url, library, discovery = self._settings
        return SentinelStorage(sentinels, service, primary, url, library, timeout=self._timeout, discovery=discovery)
