"""`file://`: an embedded server with an append-only file, shared by the processes of one machine.

A separate keeper process runs the server. This module starts a keeper if it cannot connect to the socket.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.embedded import keeper
from glidemq_async.storage.embedded.binary import find_server
from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import Library, shipped
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.standalone import OneServer
from glidemq_async.storage.redis.wire import Wire

LINGER_VARIABLE: Final = "GLIDEMQ_LINGER"
LINGER_SECONDS: Final = 10.0
"""Seconds for which the server runs on after its last client has disconnected."""
START_SECONDS: Final = 60.0
"""Seconds that the server may take to start. It may have to read a large file first."""
SOCKET: Final = "server.sock"
# The size of sun_path without its final zero.
LONGEST_PATH: Final = 107 if sys.platform.startswith("linux") else 103


class FileServer(OneServer):
    """The server of a directory, which its keeper runs."""

    def __init__(self, directory: str, linger: float | None, library: Library) -> None:
        super().__init__(Endpoint(path=directory), Path(directory).as_uri(), library)
        self._directory = directory
        self._linger = linger

    async def dial(self) -> Wire:
        """Open one connection. Starts a keeper if no server listens."""
        path = await asyncio.to_thread(self._prepare)
        endpoint = Endpoint(path=path)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while True:
            try:
                return await dial(endpoint)
            # It is an OSError too, but another attempt cannot succeed.
            except StorageUnavailable:
                raise
            except OSError as error:
                if loop.time() > deadline:
                    raise StorageUnavailable(
                        f"the server of {self.url} did not start within {START_SECONDS:g} s ({error}); see "
                        f"{self._directory}/{keeper.LOG}"
                    ) from error
            # Every failed attempt asks for a keeper, not only the first one. The keeper of another process may be
            # stopping: it ends when it had no client for `linger` seconds, and this client may arrive a moment later.
            await asyncio.to_thread(_ensure_keeper, self._directory, path, self._lingering())
            await asyncio.sleep(0.004)

    def _lingering(self) -> float:
        if self._linger is not None:
            return self._linger
        configured = os.environ.get(LINGER_VARIABLE)
        try:
            return float(configured) if configured else LINGER_SECONDS
        except ValueError:
            raise StorageUnavailable(f"{LINGER_VARIABLE} must be seconds, not {configured!r}") from None

    def _prepare(self) -> str:
        try:
            Path(self._directory).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageUnavailable(
                f"{self.url} cannot be used: {error}. Give a directory that this user can write: in the URL, in "
                "$GLIDEMQ_URL, or for the default directory in $XDG_STATE_HOME."
            ) from error
        if not os.access(self._directory, os.R_OK | os.W_OK | os.X_OK):
            raise StorageUnavailable(
                f"{self.url} cannot be used: this user may not write there. Change its owner or mode."
            )
        _refuse_shared(self._directory, self.url)
        return socket_path(self._directory)


class FileStorage(ServerStorage):
    """An embedded server that keeps its data in a directory.

    The server starts when a process first uses it. It ends `linger` seconds (10) after the last process disconnected.
    Acknowledged writes survive the death of any process. A power failure may lose the writes of the last second.
    `timeout` is in seconds, as for `open_storage`. `testing=True` loads the switches for a movable clock.
    """

    _connect_timeout = START_SECONDS

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        linger: float | None = None,
        testing: bool = False,
        library: Library | None = None,
        timeout: float | None = None,
    ) -> None:
        self._directory = os.path.realpath(directory)
        self._linger = linger
        self._library = library or shipped(testing=testing)
        super().__init__(FileServer(self._directory, linger, self._library), timeout=timeout)

    @property
    def directory(self) -> Path:
        """The directory of the data."""
        return Path(self._directory)

    def exists(self) -> bool:
        """Return true if a storage has used the directory before."""
        return any((self.directory / name).exists() for name in (keeper.KEEPER_LOCK, "appendonlydir"))

    def clone(self) -> FileStorage:
        """Return a storage for the same directory with separate connections."""
        return FileStorage(self._directory, linger=self._linger, library=self._library, timeout=self._timeout)


def _refuse_shared(directory: str, url: str) -> None:
    """Refuse a directory in which another user could put a socket, a server log or data."""
    found = Path(directory).stat()
    me = os.geteuid()
    if me not in (0, found.st_uid) and found.st_uid != 0:
        raise StorageUnavailable(
            f"{url} cannot be used: the directory belongs to another user ({found.st_uid}). Give a directory of this "
            "user."
        )
    others = found.st_mode & stat.S_IWOTH
    if others or (found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_gid, me)):
        raise StorageUnavailable(
            f"{url} cannot be used: other users may write in the directory (mode {stat.S_IMODE(found.st_mode):04o}). "
            f"Run chmod go-w {directory}, or give a new subdirectory, which only this user may enter."
        )


def _is_private_group(gid: int, uid: int) -> bool:
    """Return true for a private group, which has the name of the user and no other members."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def socket_path(directory: str) -> str:
    """Return the socket of a directory: in it, or in the user's runtime directory if the path would be too long."""
    path = os.path.join(directory, SOCKET)  # noqa: PTH118
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:24] + ".sock"
    return os.path.join(_runtime_directory(), name)  # noqa: PTH118


def _runtime_directory() -> str:
    configured = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [f"{configured}/glidemq"] if configured and Path(configured).is_dir() else []
    candidates += [f"{base}/glidemq-{os.geteuid()}" for base in (tempfile.gettempdir(), "/tmp")]  # noqa: S108
    for candidate in candidates:
        if len(os.fsencode(candidate)) + 30 <= LONGEST_PATH:
            return _private(candidate)
    raise StorageUnavailable("no runtime directory has a path short enough for a socket; set XDG_RUNTIME_DIR")


def _private(directory: str) -> str:
    try:
        Path(directory).mkdir(mode=0o700, exist_ok=True)
        # `lstat`, because `/tmp` belongs to everybody: another user may have created this name as a link or directory
        # before, and would then own the socket to which this process sends its jobs.
        found = os.lstat(directory)
    except OSError as error:
        raise StorageUnavailable(f"the runtime directory {directory} cannot be used: {error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StorageUnavailable(
            f"the runtime directory {directory} is not a directory that belongs to this user alone; "
            "remove it or set XDG_RUNTIME_DIR"
        )
    return directory


_keepers_lock = threading.Lock()
_keepers: dict[str, tuple[subprocess.Popen[bytes], float]] = {}


def _ensure_keeper(directory: str, path: str, linger: float) -> None:
    """Start a keeper unless this process has a running one. Raises `StorageUnavailable` if that one failed."""
    # The exit status of a keeper decides what follows:
    #
    # - It runs: wait for its server.
    # - LOCKED: another keeper has the directory, so its server is about to come up or to end. After a short wait
    #   another keeper is started, in case it was about to end.
    # - FAILED: the server cannot be run here. A retry would fail in the same way, so the client gets the reason.
    # - 0, or a signal: it ended after its linger time, or it was killed. Both leave the data in order, so another one
    #   starts.
    # - Any other status within a second: the keeper itself cannot run, for example in a directory without space.
    #
    # Callers come from threads of `asyncio.to_thread` and from several event loops, hence the lock.
    with _keepers_lock:
        current = _keepers.get(directory)
        if current is not None:
            process, began = current
            status = process.poll()
            if status is None:
                return
            del _keepers[directory]
            if status == keeper.FAILED:
                raise StorageUnavailable(f"{Path(directory).as_uri()} cannot be used: {_failure(directory)}")
            if status not in (0, keeper.LOCKED) and time.monotonic() - began < 1.0 and status > 0:
                raise StorageUnavailable(
                    f"the keeper of {Path(directory).as_uri()} ended with status {status}; check "
                    "the directory's permissions and free space"
                )
            if status == keeper.LOCKED:
                # The keeper of another process has the directory. A short wait prevents many useless starts.
                time.sleep(0.03)
        _keepers[directory] = (_start_keeper(directory, path, linger), time.monotonic())


def _start_keeper(directory: str, path: str, linger: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", keeper.__file__, directory]
    command += ["--server", find_server(), "--socket", path, "--linger", f"{linger:g}"]
    try:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C in the client's terminal must reach neither the keeper nor its server.
            start_new_session=True,
            cwd=directory,
        )
    except OSError as error:
        raise StorageUnavailable(f"the keeper of {directory} cannot be started: {error}") from error


def _failure(directory: str) -> str:
    try:
        return (Path(directory) / keeper.FAILURE).read_text()
    except OSError:
        return f"its keeper failed; see {directory}/{keeper.LOG}"


def _forget_after_fork() -> None:
    global _keepers_lock  # noqa: PLW0603
    _keepers_lock = threading.Lock()
    _disown()


def _disown() -> None:
    # Keepers outlive this process on purpose, so suppress the ResourceWarning of Popen.
    for process, _ in _keepers.values():
        process.returncode = process.returncode or 0
    _keepers.clear()


atexit.register(_disown)
os.register_at_fork(after_in_child=_forget_after_fork)
