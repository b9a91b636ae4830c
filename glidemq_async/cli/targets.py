"""The target of a command: an open queue, or the servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from glidemq_async.cli.apps import app_of
from glidemq_async.cli.exits import INTERRUPTED, NOT_FOUND, UNAVAILABLE, USAGE, CommandError
from glidemq_async.cli.loops import run_interruptible
from glidemq_async.cli.options import CommandTarget
from glidemq_async.cli.server_checks import check_server, dial, report_unreachable
from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.errors import GlideMQError
from glidemq_async.queues.queue import Queue
from glidemq_async.storage import FileStorage, open_storage
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.server import SCANNED_AT_ONCE, ServerStorage, servers_of
from glidemq_async.storage.redis.wire import Reply, Wire, as_list
from glidemq_async.stored.names import SYSTEM, QueueKeys

if TYPE_CHECKING:
    from glidemq_async.ops.actor import Source
    from glidemq_async.ops.core import Ops
    from glidemq_async.tasks.app import GlideMQ

ASK_SECONDS: Final = 10.0
LOADING_PAUSE: Final = 0.05

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work of a command. Ctrl-C ends it, and an invalid value is a usage error."""
    # `run_interruptible` returns None after an interruption. The result is passed in a list, because None may also be
    # the result of the work.
    done: list[T] = []

    async def collect() -> bool:
        done.append(await work)
        return True

    try:
        finished = run_interruptible(collect())
    except GlideMQError:
        raise
    # The library raises these errors for invalid arguments, and here all arguments were typed by the user.
    except (ValueError, TypeError) as error:
        raise CommandError(str(error), USAGE) from error
    if not finished:
        raise typer.Exit(INTERRUPTED)
    return done[0]


class NoStore(CommandError):
    """Raised for a target that was never used, because a command that only reads must not create it."""


@dataclass(frozen=True, slots=True)
class Store:
    """A storage that is not connected yet, and the settings for reading its queues."""

    storage: ServerStorage
    prefix: str
    app: GlideMQ[Any] | None

    def queue(self, name: str) -> Queue[Any, Any]:
        """Return a queue, which may not exist yet."""
        if self.app is not None:
            return self.app.queue(name)
        return Queue(name, self.storage, prefix=self.prefix)

    async def require(self, name: str) -> None:
        """Raise CommandError if a queue does not exist."""
        await _require(self.storage, QueueKeys(self.prefix, name))

    @asynccontextmanager
    async def existing(self, name: str) -> AsyncGenerator[Queue[Any, Any]]:
        """Provide an open queue that already exists, because reading must not create it. Raises CommandError."""
        await self.require(name)
        async with self.queue(name) as queue:
            yield queue


@asynccontextmanager
async def open_store(target: CommandTarget, *, make: bool = False, check: bool = True) -> AsyncGenerator[Store]:
    """Provide the target. Raises NoStore, CommandError, ValueError.

    - `make`: the target may not exist yet.
    - `check`: raise CommandError now if the server cannot be reached. Services pass False: they may start
      before their server, so they wait for it as a client does.
    """
    app = None if target.spec is None else await app_of(target.spec, target.app)
    if app is not None and target.url is not None:
        _relocate(app, target.url)
    storage = open_storage(target.url) if app is None else app.storage
    if not isinstance(storage, ServerStorage):
        raise CommandError(f"{storage.url} is not a server, so this command does not apply to it", USAGE)
    own = DEFAULT_PREFIX if app is None else _prefix_of(app)
    prefix = own if target.prefix is None else target.prefix
    try:
        if not make:
            _check_made(storage)
        if check:
            await check_server(storage)
        yield Store(storage, prefix, app)
    finally:
        if app is not None:
            await app.close()
        await storage.close()


def _relocate(app: GlideMQ[Any], url: str) -> None:
    from glidemq_async.tasks.app import core_of

    core_of(app).relocate(url)


def _prefix_of(app: GlideMQ[Any]) -> str:
    from glidemq_async.tasks.app import core_of

    return str(core_of(app).settings.shared["prefix"])


def _check_made(storage: ServerStorage) -> None:
    # Connecting to a `file://` URL would create the directory and start a server in it. A command that only looks,
    # perhaps with a typing error in its URL, must not leave that behind.
    if not isinstance(storage, FileStorage) or storage.exists():
        return
    directory = storage.directory
    if directory.is_dir():
        found = f"the directory {directory} contains no queues"
    else:
        there = next((one for one in directory.parents if one.is_dir()), directory)
        found = f"{there} contains no {directory.relative_to(there).parts[0]!r}"
    raise NoStore(f"there are no queues at {storage.url}, and this command creates none: {found}", NOT_FOUND)


@asynccontextmanager
async def open_queue(name: str, target: CommandTarget) -> AsyncGenerator[Queue[Any, Any]]:
    """Provide an open queue that already exists. Raises CommandError."""
    async with open_store(target) as store, store.existing(name) as queue:
        yield queue


@asynccontextmanager
async def open_ops(target: CommandTarget, *, source: Source = "cli", check: bool = True) -> AsyncGenerator[Ops]:
    """Provide the operations core of a target, for the user of this machine. Raises the errors of `open_store`."""
    async with open_store(target, check=check) as store, ops_of(store, source) as ops:
        yield ops


@asynccontextmanager
async def open_change(name: str, target: CommandTarget) -> AsyncGenerator[tuple[Ops, Queue[Any, Any]]]:
    """Provide the operations core, and an open queue that already exists. Raises CommandError."""
    async with open_store(target) as store:
        await store.require(name)
        async with ops_of(store) as ops:
            yield ops, await ops.queue(name)


def ops_of(store: Store, source: Source = "cli") -> Ops:
    """Return the operations core of a store for the user of this machine. It is not open yet."""
    from glidemq_async.ops.actor import Actor
    from glidemq_async.ops.core import Ops

    actor = Actor(source, f"{Actor.here().name}@{socket.gethostname()}")
    if store.app is not None:
        return Ops.of(store.app, actor=actor)
    return Ops(store.storage, prefix=store.prefix, actor=actor)


async def _require(storage: ServerStorage, keys: QueueKeys) -> None:
    # Opening a queue creates it, so its existence is checked first with a plain EXISTS.
    if await _exists(storage, keys):
        return
    # Only after the queue was not found, because `queue_names` scans all keys of the server.
    near = get_close_matches(keys.queue, await queue_names(storage, keys.prefix), 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    raise CommandError(f"there is no queue {keys.queue!r} on {storage.url}{hint}", NOT_FOUND)


async def _exists(storage: ServerStorage, keys: QueueKeys) -> bool:
    # A separate connection with one attempt, because a client would wait until an unreachable server returns.
    with report_unreachable(storage):
        wire = await dial(storage, keys.base)
    try:
        return await ask(wire, "EXISTS", keys.key("meta")) == 1
    finally:
        wire.drop("asked")


async def queue_names(storage: ServerStorage, prefix: str) -> list[str]:
    """Return the names of all queues. It scans all keys of the server, some thousands per call."""
    pattern = QueueKeys.pattern(prefix)
    # A set, because SCAN may return a key twice. Each primary is scanned, because a Cluster distributes the queues over
    # them.
    found: set[bytes] = set()
    async with open_wires(storage) as wires:
        for wire in wires:
            cursor: Reply = b"0"
            while True:
                reply = as_list(await ask(wire, "SCAN", _text(cursor), "MATCH", pattern, "COUNT", SCANNED_AT_ONCE))
                cursor, keys = reply or [b"0", []]
                found.update(key for key in as_list(keys) or [] if isinstance(key, bytes))
                if cursor == b"0":
                    break
    return [name for name in QueueKeys.found(found) if not name.startswith(SYSTEM)]


@asynccontextmanager
async def open_wires(storage: ServerStorage) -> AsyncGenerator[list[Wire]]:
    """Provide a connection to each primary without loading the function library. Raises StorageUnavailable."""
    servers = servers_of(storage)
    servers.bind()
    wires: list[Wire] = []
    try:
        with report_unreachable(storage):
            for node in await servers.primaries():
                wires.append(await node.dial())  # noqa: PERF401 - a failure must close the opened ones
        yield wires
    finally:
        for wire in wires:
            wire.drop("asked")
        # `drop` aborts the transports, and the event loop closes their sockets in its next iteration, which this waits
        # for.
        await asyncio.sleep(0)


async def ask(wire: Wire, *words: str | bytes | int) -> Reply:
    """Send one command and return its reply. Waits while the server loads its data from disk.

    Raises CommandError if the server refuses the command or the connection ends.
    """
    loop = asyncio.get_running_loop()
    # A person waits for this command. So it does not repeat the call for 30 seconds as a client does, and it waits only
    # for a server that reports that it is loading.
    deadline = loop.time() + ASK_SECONDS
    while True:
        reply = await wire.send(pack(*words), deadline)
        if not isinstance(reply, Exception):
            return reply
        if not str(reply).startswith("LOADING") or loop.time() + LOADING_PAUSE > deadline:
            raise CommandError(f"{words[0]!s} failed on {wire.where}: {reply}", UNAVAILABLE)
        await asyncio.sleep(LOADING_PAUSE)


def _text(value: Reply) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
