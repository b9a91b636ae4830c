"""`memory://`: a private server without persistence that ends with the process that uses it.

A shell is the parent of the server and reads from a pipe of the owner. The pipe closes when the owner ends for any
reason. Then the shell kills the server and removes its directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import tempfile
import threading
from typing import Final

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.embedded.binary import find_server
from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import Library, shipped
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.standalone import OneServer
from glidemq_async.storage.redis.wire import Wire

START_SECONDS: Final = 10.0
"""Seconds that a server may take to start."""
GRACE_SECONDS: Final = 0.5
"""Seconds for which a server that has answered before is tried again. Nothing restarts it."""

# Why a shell between the owner and the server? The owner may die by SIGKILL, which no code of it survives. The shell
# notices that, because the kernel closes the pipe from which it reads. It ignores the signals of terminals and service
# managers, which would otherwise end it before it has removed the server and the directory. The order is a part of the
# cleanup: the server is killed and awaited first, because it could create files in the directory. There are no data to
# save, so SIGKILL is the right signal.
#
# $1 is the directory, the rest the command line. `read` returns when the owner closes the pipe or dies.
HOLDER: Final = """
trap '' INT HUP TERM QUIT
dir=$1; shift
"$@" </dev/null >/dev/null 2>&1 &
server=$!
read -r _
kill -9 "$server" 2>/dev/null
wait "$server" 2>/dev/null
rm -rf -- "$dir"
"""


class MemoryServer:
    """One server and the number of storages of this process that use it."""

    def __init__(self) -> None:
        self.users = 0
        self.ended = False
        self.answered = False
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = ""
        self._starting = threading.Lock()
        self._lent = False

    @property
    def path(self) -> str:
        """The unix socket."""
        return f"{self._directory}/s"

    def start(self) -> None:
        """Start the server unless it runs; blocks for a few milliseconds."""
        # A lock for threads: clones of a storage belong to other event loops in other threads (`.sync`, and the thread
        # that renews leases), and they share this server.
        with self._starting:
            if self._process is not None:
                return
            binary = find_server()
            self._directory = directory = _make_directory()
            self._process = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", HOLDER, "glidemq-memory", directory, binary, *self._options()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )

    def _options(self) -> list[str]:
        return [
            "--port", "0", "--unixsocket", self.path, "--unixsocketperm", "700", "--dir", self._directory,
            "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--daemonize", "no",
            "--stream-node-max-entries", "10", "--io-threads", "1", "--logfile", "",
        ]  # fmt: skip

    def lend(self) -> None:
        """Leave the server to the parent of this forked process. It can be used here, and ends with the parent."""
        self._starting = threading.Lock()
        if self._process is None:
            return
        self._lent = True
        # An open pipe would keep the server alive after the parent's end.
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.returncode = 0  # not a child of this process, so there is nothing to wait for

    def stop(self) -> None:
        """End the server and wait until it and its directory are gone."""
        with self._starting:
            self.ended = True
            process, self._process = self._process, None
        if process is not None and not self._lent:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            process.wait()


_registry_lock = threading.Lock()
_registry: dict[str, MemoryServer] = {}
_counter = itertools.count(1)


def _acquire(name: str) -> MemoryServer:
    with _registry_lock:
        server = _registry.get(name)
        if server is None:
            server = _registry[name] = MemoryServer()
        server.users += 1
        return server


def _share(server: MemoryServer) -> MemoryServer:
    with _registry_lock:
        server.users += 1
        return server


def _release(name: str, server: MemoryServer) -> bool:
    with _registry_lock:
        server.users -= 1
        if server.users:
            return False
        if _registry.get(name) is server:
            del _registry[name]
        return True


def _forget_after_fork() -> None:
    global _registry_lock  # noqa: PLW0603
    _registry_lock = threading.Lock()
    # Inherited storages continue to use the parent's servers. New ones start their own.
    for server in _registry.values():
        server.lend()
    _registry.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


class MemoryUse(OneServer):
    """The embedded server of one name, from its first use until `close`."""

    def __init__(self, name: str, url: str, library: Library) -> None:
        super().__init__(Endpoint(), url, library)
        self._name = name
        self.server: MemoryServer | None = None

    def acquire(self) -> MemoryServer:
        """Return the server of the name, of which this object is a user from now on."""
        if self.server is None:
            self.server = _acquire(self._name)
        return self.server

    def join(self, other: MemoryUse) -> None:
        """Use the server of `other`, under its URL."""
        self.url = other.url
        # Counted as a user from now on, so the server does not end between clone and connect.
        self.server = _share(other.acquire())

    async def dial(self) -> Wire:
        server = self.acquire()
        await asyncio.to_thread(server.start)
        endpoint = Endpoint(path=server.path)
        loop = asyncio.get_running_loop()
        # A server that has answered before needs no time to start, and nothing restarts it.
        deadline = loop.time() + (GRACE_SECONDS if server.answered else START_SECONDS)
        while True:
            try:
                wire = await dial(endpoint)
                server.answered = True
                return wire  # noqa: TRY300
            except OSError as error:
                # `ended`: the last user has stopped the server while this call connected. It will not come back.
                if isinstance(error, StorageUnavailable) or server.ended:
                    raise
                if loop.time() > deadline:
                    raise StorageUnavailable(
                        f"the embedded server of {self.url} does not answer ({error}). Its data is "
                        "lost; open a new storage."
                    ) from error
            await asyncio.sleep(0.002)

    async def close(self) -> None:
        await super().close()
        server, self.server = self.server, None
        if server is not None and _release(self._name, server):
            try:
                await asyncio.to_thread(server.stop)
            except RuntimeError:  # the interpreter ends, and starts no threads any more
                server.stop()


class MemoryStorage(ServerStorage):
    """An embedded server in memory: private without a name, shared inside the process with one.

    The server starts at the first use and ends with the last storage of its name, or with the process.
    `testing=True` loads the switches for a movable clock. `timeout` is in seconds, as for `open_storage`.
    """

    _connect_timeout = START_SECONDS

    def __init__(
        self,
        name: str = "",
        *,
        testing: bool = False,
        library: Library | None = None,
        timeout: float | None = None,
    ) -> None:
        self._name = name or f"#{next(_counter)}"
        self._library = library or shipped(testing=testing)
        self._memory = MemoryUse(self._name, f"memory://{name}", self._library)
        super().__init__(self._memory, timeout=timeout)

    def clone(self) -> MemoryStorage:
        """Return a storage on the same server with separate connections."""
        twin = MemoryStorage(self._name, library=self._library, timeout=self._timeout)
        twin._memory.join(self._memory)
        return twin

    @property
    def socket(self) -> str | None:
        """The unix socket of the server, once it has been started."""
        return None if self._memory.server is None else self._memory.server.path


def _make_directory() -> str:
    """Create the directory of a server. Only this user can enter it, and its path leaves room for a socket."""
    # mkdtemp makes it 0700. A short name, since a socket path ends at 107 bytes.
    directory = tempfile.mkdtemp(prefix="glidemq-")
    if len(os.fsencode(directory)) > 100:
        os.rmdir(directory)  # noqa: PTH106
        directory = tempfile.mkdtemp(prefix="glidemq-", dir="/tmp")
    return directory
