"""The base of all storages: calls with retries, confirmed writes, stream reads and key scans.

servers.py has the nodes behind a storage, and the node of each key.
"""

from __future__ import annotations

import asyncio

# redis-py imports this module when the first connection opens. While the interpreter shuts down, for example in a
# handler of `atexit`, it can no longer be imported, so it is loaded here.
import concurrent.futures.thread  # noqa: F401 # pyright: ignore[reportUnusedImport]
import contextlib
import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final, cast

from glidemq_async._internal.connectable import Connectable
from glidemq_async.errors import LibraryVersionError, QueueClosed
from glidemq_async.functions import loader
from glidemq_async.storage.protocol import Arg, Storage, StreamEntry, Subscription, Wait
from glidemq_async.storage.redis.batch_reads import read_each
from glidemq_async.storage.redis.durability import call_confirmed
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.retry import (
    FIRST_PAUSE,
    TRY_SECONDS,
    RetryPauses,
    Verdict,
    failure,
    gave_up,
    judge,
)
from glidemq_async.storage.redis.servers import Servers
from glidemq_async.storage.redis.subscriptions import OnChange, OnMessage
from glidemq_async.storage.redis.wire import Reply, Wire, as_list, as_text

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for which `connect` tries to reach a server, unless the storage has a timeout."""
CALL_TIMEOUT: Final = 30.0
"""Seconds for which a call is tried, unless the storage or the call has a timeout."""
READ_PATIENCE: Final = 30.0
"""Seconds for which a read is retried while the server cannot be reached, beyond the time it may block."""
SHORTEST_TRY: Final = 0.1
"""Minimum limit in seconds for the time without progress of a try, also if the deadline of the call is nearer."""
SCANNED_AT_ONCE: Final = 2_000
"""Number of keys whose names one SCAN compares, in about 0.2 ms of the server's time."""
LAST_MOMENT: Final = 0.5
"""Seconds beyond its deadline that a call may spend on a connection that is being opened."""
MULTI: Final = pack("MULTI")
EXEC: Final = pack("EXEC")
_function_name = cache(loader.function_name)


@lru_cache(1024)
def _packed_call(function: str, key: str) -> bytes:
    return pack("FCALL", _function_name(function), 1, key)


@dataclass(slots=True)
class Retries:
    """The attempts of one call: its time limit, and what they have learned so far."""

    what: str
    key: str
    seconds: float
    started: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    find: bool = True
    """True if each attempt needs the node of `key`."""
    pauses: RetryPauses = field(default_factory=RetryPauses)
    loads: int = 0
    """Number of attempts that found no library."""

    @property
    def deadline(self) -> float:
        """Loop time at which the call gives up."""
        return self.started + self.seconds


class ServerStorage(Connectable):
    """Base of the storages that talk to a server; see `Storage` for the methods."""

    _connect_timeout: float | None = None
    """Seconds for which `connect` tries where it may have to start a server; None: the storage's timeout."""

    def __init__(self, servers: Servers, *, timeout: float | None = None, socket_timeout: float | None = None) -> None:
        self._servers = servers
        self._timeout = timeout
        self._call_timeout = CALL_TIMEOUT if timeout is None else timeout
        self._try_seconds = socket_timeout

    @property
    def url(self) -> str:
        """The address for messages and logs; passwords are masked."""
        return self._servers.url

    @property
    def timeout(self) -> float:
        """Seconds for which a call is tried before it raises `StorageUnavailable`."""
        return self._call_timeout

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the storage belongs to, None before its first use and once it is closed."""
        return self._servers.loop

    # Life

    @abstractmethod
    def clone(self) -> ServerStorage:
        """Return a storage for the same servers with separate connections."""

    async def connect(self) -> None:
        """Connect to every primary, check the server and load the library; idempotent."""
        self._servers.bind()
        timeout = self._connect_timeout or self._timeout or CONNECT_TIMEOUT
        await self._persist(Retries("connect", "", timeout, find=False), self._open_all)

    async def _open_all(self, _node: Node | None, deadline: float) -> Reply:
        async with asyncio.timeout_at(deadline + LAST_MOMENT):
            await self._servers.open_all()
        return None

    async def close(self) -> None:
        """Close every connection. Waiting calls raise `QueueClosed`. Idempotent.

        Raises RuntimeError if the storage belongs to another loop that is still running.
        """
        await self._servers.close()

    # Calls

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,
        wait: Wait = "default",
        messages_first: bool = False,
    ) -> object:
        """Call a library function; see `Storage.call`."""
        # Nearly every call takes the short way: its node is known and connected, and the reply comes. This way awaits
        # one future and sets up neither a deadline nor a backoff. Everything else (no connection, a congested one, an
        # error) continues in `_persist`, with this attempt counted as the first.
        #
        # The call is packed once, here. Each attempt sends these same bytes, with the same number, so that the server
        # can recognize a repetition; see `retry`. A closed storage has no open connection left, so `bind` below is
        # reached and refuses the call.
        #
        # An attempt has less time than the call: five seconds without progress. A connection that died silently, for
        # example behind a firewall that drops its packets, is then replaced while the call still has time for other
        # attempts.
        if timeout is None:
            timeout = self._call_timeout
        name = _function_name(function)
        packed = pack("FCALL_RO" if readonly else "FCALL", name, 1, key, *args)
        if wait != "default":
            return await self._confirmed(function, key, packed, timeout, wait)
        loop = asyncio.get_running_loop()
        problem: Exception | None = None
        servers = self._servers
        node = servers.known_node(key)
        started = loop.time()
        if node is not None and loop is servers.home:
            wire = node.wire
            if wire is not None and not wire.congested:
                idle_timeout = min(timeout, self._try_seconds or TRY_SECONDS)
                send = wire.send_behind_ping if messages_first else wire.send
                reply = await send(packed, started + idle_timeout, idle_timeout)
                if not isinstance(reply, Exception):
                    return reply
                problem = reply
        servers.bind()

        async def attempt(node: Node, deadline: float) -> Reply:
            wire = await _opened(node, deadline)
            # Waiting for the peer is not part of the time limit. The connection's own deadlines end the wait: if the
            # peer takes no bytes, an earlier request is overdue and drops the connection. A deadline that has passed
            # during the wait is why the last try has a minimum length.
            if wire.congested:
                await wire.writable()
            now = loop.time()
            idle_timeout = self._try_seconds or TRY_SECONDS
            return await wire.send(packed, max(now + SHORTEST_TRY, min(deadline, now + idle_timeout)))

        return await self._persist(Retries(function, key, timeout, started), attempt, problem)

    def sends_at_once(self, key: str) -> bool:
        """Return whether `call` would send its request now; see `PromptStore.sends_at_once`."""
        servers = self._servers
        node = servers.known_node(key)
        wire = None if node is None or asyncio.get_running_loop() is not servers.home else node.wire
        return wire is not None and not wire.congested

    def call_after_silence(self, function: str, key: str) -> None:
        """Send a call whose reply is not read; see `PromptStore.call_after_silence`."""
        servers = self._servers
        node = servers.known_node(key)
        wire = None if node is None or asyncio.get_running_loop() is not servers.home else node.wire
        if wire is not None:
            wire.send_after_silence(
                _packed_call(function, key), min(self._call_timeout, self._try_seconds or TRY_SECONDS)
            )

    async def transact(self, key: str, commands: Sequence[Sequence[Arg]]) -> list[object] | None:
        """Try once to execute commands as one transaction; see `TransactionStore.transact`."""
        loop = asyncio.get_running_loop()
        servers = self._servers
        node = servers.known_node(key)
        wire = None if node is None or loop is not servers.home else node.wire
        if wire is None or wire.congested:
            return None
        idle_timeout = min(self._call_timeout, self._try_seconds or TRY_SECONDS)
        # A user may lack the permission for MULTI. The commands after it would then run one by one.
        if wire.transacts is None:
            tried = await wire.send(MULTI + EXEC, loop.time() + idle_timeout, idle_timeout, replies=2)
            wire.transacts = tried == []
        if not wire.transacts:
            return None
        packed = b"".join([MULTI, *(pack(*command) for command in commands), EXEC])
        reply = await wire.send(packed, loop.time() + idle_timeout, idle_timeout, replies=len(commands) + 2)
        return as_list(reply)

    async def read_each(self, function: str, keys: Sequence[str], args: Sequence[Arg]) -> list[object]:
        """Try once to call a function that only reads for each key; see `BatchStore.read_each`."""
        if asyncio.get_running_loop() is not self._servers.home:
            return [None] * len(keys)
        idle_timeout = min(self._call_timeout, self._try_seconds or TRY_SECONDS)
        return await read_each(self._servers, _function_name(function), keys, args, idle_timeout)

    async def _confirmed(self, function: str, key: str, packed: bytes, timeout: float, wait: Wait) -> object:
        self._servers.bind()

        async def attempt(node: Node, deadline: float) -> Reply:
            await _opened(node, deadline)
            return await call_confirmed(node, packed, key, wait, deadline)

        return await self._persist(Retries(function, key, timeout), attempt)

    async def _persist(
        self, retries: Retries, attempt: Callable[..., Awaitable[Reply]], problem: Exception | None = None
    ) -> Reply:
        """Make attempts until one succeeds, one fails for good or the time is up."""
        while True:
            # `close` may run during any await of this loop. It ends the connections, so the attempt fails with an error
            # that looks temporary. The flag is therefore checked before each attempt and after each pause. A waiting
            # call then ends with QueueClosed immediately instead of connecting again until its timeout.
            self._refuse_closed(retries.what)
            if problem is not None:
                await self._prepare_next(retries, problem)
                self._refuse_closed(retries.what)
            reply = await self._attempt(retries, attempt, problem)
            if not isinstance(reply, Exception):
                return reply
            problem = reply

    async def _attempt(
        self, retries: Retries, attempt: Callable[..., Awaitable[Reply]], problem: Exception | None
    ) -> Reply:
        """Find the node and make one attempt there. Return its reply or its error."""
        try:
            node = None
            if retries.find:
                async with asyncio.timeout_at(retries.deadline + LAST_MOMENT):
                    node = await self._servers.find_node(retries.key)
                    if problem is not None and judge(problem) is Verdict.LOAD:
                        await node.load_library()
            return await attempt(node, retries.deadline)
        except (OSError, TimeoutError) as error:
            return error

    async def _refuse_unknown(self, function: str, key: str) -> None:
        """Raise `LibraryVersionError` if the library that is loaded has no such function."""
        with contextlib.suppress(OSError, TimeoutError):
            node = await self._servers.find_node(key)
            if await node.lacks(_function_name(function)):
                library = self._servers.library
                raise LibraryVersionError(
                    f"{self.url} has no function {function} in {library.name} although version {library.version} or "
                    "newer is loaded. Client and library do not fit: upgrade the client."
                )

    def _refuse_closed(self, what: str) -> None:
        if self._servers.closed:
            raise QueueClosed(f"the storage {self.url} was closed during {what}")

    async def _prepare_next(self, retries: Retries, problem: Exception) -> None:
        """Pause before the next attempt. Raise the error of the call if another attempt cannot succeed."""
        verdict = judge(problem)
        if verdict is Verdict.FAIL:
            raise failure(problem, retries.what, self.url)
        # A missing library is loaded by the next attempt itself, so it needs no pause.
        immediate = verdict is Verdict.LOAD
        retries.loads += immediate
        if retries.loads > 2:
            # Either the library has no such function, or another client keeps removing it.
            await self._refuse_unknown(retries.what, retries.key)
            immediate = False
        elif verdict is Verdict.ELSEWHERE:
            immediate = await self._recheck(retries, problem)
        await self._pause(retries, problem, immediate=immediate)

    async def _recheck(self, retries: Retries, problem: Exception) -> bool:
        """Return True if the store key has another node now."""
        try:
            async with asyncio.timeout_at(retries.deadline):
                return await self._servers.recheck_node(retries.key, problem)
        except (OSError, TimeoutError):
            return False

    async def _pause(self, retries: Retries, problem: Exception, *, immediate: bool) -> None:
        now = asyncio.get_running_loop().time()
        left = retries.deadline - now
        # A pause takes at most half of the time that is left. A server that returns shortly before the deadline is then
        # still reached, and a call does not give up before its time. The pauses shrink towards the deadline, so the
        # attempts end when less time is left than the shortest pause.
        if left <= (0.0 if immediate else FIRST_PAUSE):
            # The frames of the last attempt belong to this library and to asyncio. They are about 60 lines above the
            # error of the call.
            cause = problem.with_traceback(None)
            raise gave_up(problem, retries.what, self.url, now - retries.started) from cause
        await asyncio.sleep(0.0 if immediate else min(retries.pauses.next(), left / 2))

    # Streams, channels and keys

    async def read_stream(self, key: str, after: str, count: int, block: float) -> list[StreamEntry]:
        """Read entries of a stream; see `Storage.read_stream`."""
        self._servers.bind()
        options: list[Arg] = ["COUNT", count]
        if block > 0:
            options += ["BLOCK", max(1, round(block * 1000))]
        packed = pack("XREAD", *options, "STREAMS", key, after)

        async def attempt(node: Node, deadline: float) -> Reply:
            # On the shared connection, a blocking XREAD would hold up all calls behind it.
            async with node.borrow(deadline) as wire:
                return await wire.send(packed, asyncio.get_running_loop().time() + block + TRY_SECONDS)

        reply = await self._persist(Retries("read_stream", key, block + READ_PATIENCE), attempt)
        return _entries(reply)

    async def subscribe(self, key: str, channel: str, on_message: OnMessage, on_change: OnChange) -> Subscription:
        """Subscribe to a sharded channel; see `Storage.subscribe`."""
        self._servers.bind()
        return self._servers.hub.subscribe(key, channel, on_message, on_change)

    async def scan(self, match: str) -> AsyncIterator[bytes]:
        """Iterate over the keys that match; see `Storage.scan`."""
        self._servers.bind()
        cursor: Reply = b"0"
        # Remove the escapes of the pattern. With them, its hash tag would select another cluster slot.
        key = re.sub(r"\\(.)", r"\1", match)
        while True:
            packed = pack("SCAN", as_text(cursor), "MATCH", match, "COUNT", 1000)

            async def attempt(node: Node, deadline: float, packed: bytes = packed) -> Reply:
                wire = await _opened(node, deadline)
                return await wire.send(packed, asyncio.get_running_loop().time() + TRY_SECONDS)

            reply = await self._persist(Retries("scan", key, READ_PATIENCE), attempt)
            cursor, keys = as_list(reply) or [b"0", []]
            for found in as_list(keys) or []:
                if isinstance(found, bytes):
                    yield found
            if cursor == b"0":
                return


def servers_of(storage: ServerStorage) -> Servers:
    """Return the internals of a storage, for the layers above."""
    return storage._servers  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def close_owned(storage: Storage, reason: str | None) -> None:
    """Close a storage that its user does not know. Later calls raise QueueClosed with the reason, if there is one."""
    if reason is not None and isinstance(storage, ServerStorage):
        servers_of(storage).closed_reason = reason
    await storage.close()


async def find_keys(storage: ServerStorage, match: str) -> list[bytes]:
    """Return the keys of all primaries that match a pattern, each once. Does not load the function library.

    On a cluster every primary but the last one is read twice. Only a key that moves to another node twice during the
    call may be missing. A walk that fails starts again on the primaries of that moment. Raises `StorageUnavailable`
    when no walk succeeds in time, `PermissionDenied` when the user may not run SCAN.
    """
    servers = servers_of(storage)
    servers.bind()

    async def attempt(_: object, deadline: float) -> Reply:
        # A set, because SCAN may return a key twice, and because a cluster slot that moves during the walk has its
        # keys on two nodes.
        #
        # One walk misses a key that moves from a node that is not read yet to a node that was read before. After the
        # walk this key is on another node than the last one, so a second walk over the other nodes finds it. The
        # primaries are listed again, because the key may have moved to a new one. Reading the map of the cluster before
        # and after the walk would not show such a move: a slot that moves key by key changes its owner at the end.
        found: set[bytes] = set()
        last: Node | None = None
        for _ in range(2):
            for node in [each for each in await servers.primaries() if each is not last]:
                keys = await _scan_node(node, match, deadline)
                if isinstance(keys, Exception):
                    return keys
                found.update(keys)
                last = node
        return cast("Reply", sorted(found))

    walk = storage._persist  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return cast("list[bytes]", await walk(Retries("find_keys", "", storage.timeout, find=False), attempt))


async def _opened(node: Node, deadline: float) -> Wire:
    """Return the shared connection of a node; raises `TimeoutError` when it does not open in time."""
    async with asyncio.timeout_at(deadline + LAST_MOMENT):
        return await node.open()


def _entries(reply: Reply) -> list[StreamEntry]:
    # [[key, [[id, [field, value, ...]], ...]]], or nil
    streams = cast("list[tuple[bytes, list[tuple[bytes, list[bytes] | None]]]] | None", reply)
    if not streams:
        return []
    return [
        (entry_id, dict(zip(words, words)))  # noqa: B905 - fields and values by turns, so always as many
        for entry_id, fields in streams[0][1]
        for words in [iter(fields or [])]
    ]


async def _scan_node(node: Node, match: str, deadline: float) -> list[bytes] | Exception:
    """Return the keys of one node that match, or the error reply of a SCAN."""
    found: list[bytes] = []
    cursor: Reply = b"0"
    async with node.borrow(deadline) as wire:
        while True:
            packed = pack("SCAN", as_text(cursor), "MATCH", match, "COUNT", SCANNED_AT_ONCE)
            reply = await wire.send(packed, asyncio.get_running_loop().time() + TRY_SECONDS)
            if isinstance(reply, Exception):
                return reply
            cursor, keys = as_list(reply) or [b"0", []]
            found += cast("list[bytes]", keys)
            if cursor == b"0":
                return found
