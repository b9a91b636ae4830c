"""Real servers for tests: alone, as a cluster and under Sentinel, on free loopback ports or unix sockets.

Each helper is an async context manager; every process it started ends with it, at the latest
with the test run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from glidemq_async.storage import Endpoint
from glidemq_async.storage.embedded.binary import find_server
from glidemq_async.storage.redis.cluster import slot_of
from glidemq_async.storage.redis.connections import dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import ReplyError, as_list, as_text

START_SECONDS = 30.0
REPLY_SECONDS = 30.0
"""Seconds that a test waits for the reply to its own command. Much longer than a busy machine needs."""
FORMING_TIMEOUT_MS = 3_000
"""Node timeout while a cluster forms. A busy machine must not look like a dead node, whose replica would take over. A
node sends its role to each other node only once in half of this time."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class _Ports:
    """Loopback ports that no other process takes before they are used, and that are never assigned twice.

    They are below the ports that the kernel assigns to connections and to listeners without a port. A lock on one
    byte of a file, held until this process ends, shows other test processes which ports are assigned.
    """

    RANGE = range(15_000, 32_000)

    def __init__(self) -> None:
        self._given: set[int] = set()
        # A bare descriptor. It stays open until the process ends, and must not cause a warning.
        self._locks = os.open(Path(tempfile.gettempdir()) / f"glidemq-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT)

    def take(self) -> int:
        """Return a port that is free and reserved for this process."""
        for port in random.SystemRandom().sample(self.RANGE, 1_000):
            if port not in self._given and self._lock(port) and self._can_be_bound(port):
                self._given.add(port)
                return port
        raise OSError("no loopback port is free")

    def _lock(self, port: int) -> bool:
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        return True

    @staticmethod
    def _can_be_bound(port: int) -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True


_ports = _Ports()


def free_port() -> int:
    """Return a free loopback port that no other test process gets."""
    return _ports.take()


async def eventually(check: Callable[[], Awaitable[bool]], what: str, seconds: float = START_SECONDS) -> None:
    """Wait until a condition on another process holds. No event announces it, so this function polls."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        with contextlib.suppress(ReplyError, OSError):
            if await check():
                return
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.02)


def patient(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint whose connection may take as long as a busy machine needs."""
    return replace(endpoint, options={**endpoint.options, "socket_connect_timeout": REPLY_SECONDS})


class Server:
    """One server process and its data directory; it can be killed, stopped and started again."""

    def __init__(
        self,
        directory: Path,
        options: Sequence[str] = (),
        *,
        binary: str | None = None,
        unix: bool = False,
        mode: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.path = str(directory / "s") if unix else None
        self.port = 0 if unix else free_port()
        self.bus = 0
        self._binary = binary or find_server()
        self.options = list(options)
        if "--cluster-enabled" in options:
            # The default is the port plus 10,000. Another process may use that port, because it is not reserved.
            self.bus = free_port()
            self.options += ["--cluster-port", str(self.bus)]
        self._mode = list(mode)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the URL of the server."""
        return f"unix://{self.path}" if self.path else f"redis://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        listens = ["--unixsocket", self.path] if self.path else ["--bind", "127.0.0.1"]
        # A sentinel has its options in a file that it rewrites. Other servers have them on the command line.
        base = [*self._mode, "--port", str(self.port), *listens, "--dir", str(self.directory)]
        if "--sentinel" in self._mode:
            return [self._binary, *base, *self.options]
        defaults = ["--save", "", "--daemonize", "no", "--enable-debug-command", "yes", "--logfile", "log"]
        return [self._binary, *base, *defaults, *self.options]

    async def start(self) -> None:
        """Start the server and wait until it replies."""
        self.process = subprocess.Popen(  # noqa: ASYNC220
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
        await eventually(self._answers, f"the server in {self.directory} must reply")

    async def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server in {self.directory} ended during its start"
        return bool(await self.command("PING"))

    async def command(self, *words: str | bytes | int) -> object:
        """Run one command on a new connection; raise its error."""
        endpoint = Endpoint(path=self.path) if self.path else Endpoint("127.0.0.1", self.port)
        wire = await dial(patient(endpoint))
        try:
            reply = await wire.send(pack(*words), asyncio.get_running_loop().time() + REPLY_SECONDS)
        finally:
            wire.drop("answered")
            await asyncio.sleep(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def info(self, section: str) -> dict[str, str]:
        """Return one section of INFO as text."""
        pairs = (line.partition(":") for line in as_text(await self.command("INFO", section)).splitlines())
        return {name: value for name, colon, value in pairs if colon}

    def kill(self) -> None:
        """Kill the server with SIGKILL and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """Terminate the server and wait for its end."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop its execution. Connections stay open and silent."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume its execution."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def restart(self) -> None:
        """Restart the server."""
        self.stop()
        await self.start()


@contextlib.contextmanager
def _room() -> Generator[Path]:
    # A short path, because it contains a unix socket.
    room = Path(tempfile.mkdtemp(prefix="gmq-"))
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


@contextlib.asynccontextmanager
async def standalone(
    *options: str, binary: str | None = None, unix: bool = False, replica_of: Server | None = None
) -> AsyncGenerator[Server]:
    """Start one server on a loopback port or a unix socket."""
    with _room() as room:
        more = [] if replica_of is None else ["--replicaof", "127.0.0.1", str(replica_of.port)]
        server = Server(room, [*more, "--repl-diskless-sync-delay", "0", *options], binary=binary, unix=unix)
        try:
            await server.start()
            if replica_of is not None:
                await eventually(lambda: _linked(server), "the replica must be in sync")
            yield server
        finally:
            server.kill()


async def _linked(server: Server) -> bool:
    return (await server.info("replication")).get("master_link_status") == "up"


def redis7_binary() -> str | None:
    """Return a Redis 7 server on the path, for example from Debian."""
    return os.environ.get("GLIDEMQ_TEST_REDIS7") or shutil.which("redis-server")


@contextlib.asynccontextmanager
async def redis7(*options: str) -> AsyncGenerator[Server]:
    """Start one Redis 7 server; `redis7_binary()` must have found one."""
    async with standalone(*options, binary=redis7_binary()) as server:
        yield server


class Cluster:
    """Three primaries, each with one replica."""

    def __init__(self, primaries: list[Server], replicas: list[Server]) -> None:
        self.primaries = primaries
        self.replicas = replicas

    @property
    def servers(self) -> list[Server]:
        """Return all servers."""
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        """Return the URL with the first primaries as seeds."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{one.port}' for one in self.primaries)}"

    async def owner(self, key: str) -> Server:
        """Return the primary that serves a key now, according to a live server."""
        slot = slot_of(key)
        for server in self.servers:
            if server.process is None:
                continue
            for part in as_list(await server.command("CLUSTER", "SLOTS")) or []:
                first, last, primary, *_ = as_list(part) or []
                assert isinstance(first, int)
                assert isinstance(last, int)
                if first <= slot <= last:
                    port = (as_list(primary) or [])[1]
                    return next(one for one in self.servers if one.port == port)
        raise LookupError(key)

    async def replica_of(self, primary: Server) -> Server:
        """Return the replica of a primary."""
        for server in self.servers:
            role = as_list(await server.command("ROLE")) if server.process is not None else None
            if role and role[0] == b"slave" and role[2] == primary.port:
                return server
        raise LookupError(f"no replica of port {primary.port}")


async def node_id(server: Server) -> str:
    """Return the id of a cluster node."""
    return as_text(await server.command("CLUSTER", "MYID"))


@contextlib.asynccontextmanager
async def cluster(*options: str, timeout_ms: int = 1000) -> AsyncGenerator[Cluster]:
    """Start a cluster of three primaries and three replicas. `timeout_ms`: after which silence a node has failed."""
    with _room() as room:
        servers: list[Server] = []
        try:
            for number in range(6):
                more = [
                    "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
                    "--cluster-node-timeout", str(FORMING_TIMEOUT_MS), "--appendonly", "yes",
                    "--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0",
                ]  # fmt: skip
                servers.append(Server(room / str(number), [*more, *options]))
            await asyncio.gather(*(server.start() for server in servers))
            made = Cluster(servers[:3], servers[3:])
            await _form(made)
            for server in servers:
                await server.command("CONFIG", "SET", "cluster-node-timeout", timeout_ms)
            yield made
        finally:
            for server in servers:
                server.kill()


async def _form(made: Cluster) -> None:
    first, *others = made.servers
    bounds = [(0, 5460), (5461, 10922), (10923, 16383)]
    for primary, (low, high) in zip(made.primaries, bounds, strict=True):
        await primary.command("CLUSTER", "ADDSLOTSRANGE", low, high)
    for number, other in enumerate(made.servers):
        await other.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for other in others:
        await first.command("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus)
    for server in made.servers:
        await eventually(partial(_knows, server, 6), "the nodes must know each other")
    for primary, replica in zip(made.primaries, made.replicas, strict=True):
        await replica.command("CLUSTER", "REPLICATE", await node_id(primary))
    for replica in made.replicas:
        await eventually(partial(_linked, replica), "the replicas must be in sync")
    for server in made.servers:
        await eventually(partial(_cluster_ok, server), "the cluster must be complete")


async def _knows(server: Server, count: int) -> bool:
    text = as_text(await server.command("CLUSTER", "NODES"))
    return text.count("127.0.0.1") >= count and "handshake" not in text


async def _cluster_ok(server: Server) -> bool:
    slots = as_list(await server.command("CLUSTER", "SLOTS")) or []
    whole = len(slots) == 3 and all(len(as_list(part) or []) == 4 for part in slots)
    return whole and "cluster_state:ok" in as_text(await server.command("CLUSTER", "INFO"))


class SentinelGroup:
    """A primary, its replicas and three sentinels."""

    service = "main"

    def __init__(self, primary: Server, replicas: list[Server], sentinels: list[Server]) -> None:
        self.primary = primary
        self.replicas = replicas
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        """Return the URL of the service."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.sentinels)}/{self.service}"

    async def current(self) -> Server:
        """Return the primary that the first live sentinel names."""
        sentinel = next(one for one in self.sentinels if one.process is not None)
        answer = await sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        port = int(as_text((as_list(answer) or [])[1]))
        return next(one for one in [self.primary, *self.replicas] if one.port == port)


@contextlib.asynccontextmanager
async def sentinel(replicas: int = 1, down_ms: int = 500) -> AsyncGenerator[SentinelGroup]:
    """Start a primary with replicas under three sentinels."""
    async with contextlib.AsyncExitStack() as stack:
        primary = await stack.enter_async_context(standalone("--appendonly", "yes"))
        followers = [
            await stack.enter_async_context(standalone("--appendonly", "yes", replica_of=primary))
            for _ in range(replicas)
        ]
        room = stack.enter_context(_room())
        sentinels: list[Server] = []
        try:
            for number in range(3):
                sentinels.append(await _sentinel(room / str(number), primary, down_ms))  # noqa: PERF401
            made = SentinelGroup(primary, followers, sentinels)
            for one in sentinels:
                await eventually(partial(_watches, one, replicas), "the sentinels must know each other")
            yield made
        finally:
            for one in sentinels:
                one.kill()


async def _sentinel(directory: Path, primary: Server, down_ms: int) -> Server:
    directory.mkdir(parents=True)  # noqa: ASYNC240
    config = directory / "sentinel.conf"
    config.write_text(
        f"sentinel monitor {SentinelGroup.service} 127.0.0.1 {primary.port} 2\n"
        f"sentinel down-after-milliseconds {SentinelGroup.service} {down_ms}\n"
        f"sentinel failover-timeout {SentinelGroup.service} 3000\n"
        f"sentinel parallel-syncs {SentinelGroup.service} 1\n"
    )
    server = Server(directory, mode=[str(config), "--sentinel"])
    await server.start()
    # A sentinel that was not scheduled for two seconds enters the TILT mode and takes no action for 30 seconds. On a
    # busy machine that happens although no clock jumped.
    await server.command("SENTINEL", "DEBUG", "TILT-TRIGGER", "60000")
    return server


async def _watches(one: Server, replicas: int) -> bool:
    others = as_list(await one.command("SENTINEL", "SENTINELS", SentinelGroup.service)) or []
    followers = as_list(await one.command("SENTINEL", "REPLICAS", SentinelGroup.service)) or []
    return len(others) == 2 and len(followers) == replicas
