"""The keeper of a `file://` directory: a small process that owns its server, apart from every client.

It is started by path and imports only the standard library, so that it starts within milliseconds. It must not import
the package. Exit status: 0 done, 3 another keeper has the directory, 4 the server does not start.
"""

# Why a keeper? Several processes share the server of a directory, so no client can own it: a client may end or be
# killed while others still need the server. Four rules keep exactly one server per directory:
#
# 1. Two locks. The keeper holds `keeper.lock` for its whole life, so only one keeper acts on a directory. The server
#    itself holds `server.lock`: it inherits the descriptor, and the keeper closes its own copy after the fork. The
#    kernel releases the lock when the server ends, however it ends. A new keeper therefore waits for the server of a
#    killed keeper. Two servers that append to one file would destroy it.
# 2. The socket is deleted before a start, and only under `server.lock`. No living server can lose its socket this way.
# 3. The server gets SIGTERM when its keeper dies (Linux). The keeper may die between the fork and the request for this
#    signal, so the child compares its parent id afterwards. On other systems the next keeper asks the server to end.
# 4. A client that cannot connect starts a keeper. If it finds `keeper.lock` taken, it exits with status 3, and the
#    client tries the socket again. So any number of clients may start keepers at the same time.
#
# The keeper counts clients with INFO on its own connection. It stops the server after `linger` seconds with no other
# client. A client that connects during the stop loses its connection, and its next attempt starts a new keeper.

# pathlib would take longer to import than all the rest.
# ruff: noqa: PTH105, PTH108, PTH116, PTH123

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LOCKED = 3
"""The exit status of a keeper that found another one in the directory."""
FAILED = 4
"""The exit status of a keeper that cannot run its server. The file `FAILURE` contains the reason."""

KEEPER_LOCK = "keeper.lock"
SERVER_LOCK = "server.lock"
FAILURE = "keeper.failed"
LOG = "server.log"

_LOG_LIMIT = 1 << 20
"""Maximum size of the server's log in bytes. The keeper then starts a new file and keeps the former one."""
_TAKEOVER_SECONDS = 60.0
"""Seconds that the server of a dead keeper may take to write its data and end."""
_STOP_SECONDS = 30.0
"""Seconds that the server may take to end before the keeper kills it."""
_SOCKET_SECONDS = 5.0
"""Seconds in which a server creates its socket. It does so before it reads its data."""
_STABLE_SECONDS = 5.0
"""A server that ran for this many seconds did not fail at its start, so it is restarted without a pause."""
_EXIT_SECONDS = 1.0
"""Seconds that the server may still run after its connection is lost. After that, only the connection was lost."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 2.0
"""Pause in seconds before a dead server is restarted. Each early death doubles it."""
_PR_SET_PDEATHSIG = 1


class StartFailed(Exception):
    """The server cannot be run. The text is shown to the client."""


class Stopped(Exception):
    """The keeper was asked to end."""


def _on_term(_number: int, _frame: FrameType | None) -> None:
    raise Stopped


class KeeperConnection:
    """A connection to the server for the few commands of the keeper."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(5.0)
        try:
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def ask(self, line: str) -> str:
        """Send one inline command and return the reply. Raises `OSError` if the connection is lost."""
        self._socket.sendall(line.encode() + b"\r\n")
        data = self._receive()
        if data.startswith(b"$"):
            head, _, body = data.partition(b"\r\n")
            while len(body) < int(head[1:]) + 2:
                body += self._receive()
            data = body
        return data.decode(errors="replace")

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the server ends."""
        select.select([self._socket], [], [], seconds)

    def close(self) -> None:
        self._socket.close()


class Keeper:
    """Runs the server of one directory while it has clients."""

    def __init__(self, directory: str, server: str, path: str, linger: float) -> None:
        self._directory = directory
        self._server = server
        self._path = path
        self._linger = linger
        self._identity = os.stat(".")
        self._pid = 0
        self._socket: os.stat_result | None = None

    def run(self) -> None:
        """Start the server, and stop it when it had no client for the linger time."""
        pause = _FIRST_PAUSE
        while True:
            self._start(self._take_server_lock())
            began = time.monotonic()
            if self._attend():
                return
            # The server died. It is restarted immediately, or after a growing pause if it dies repeatedly.
            pause = _FIRST_PAUSE if time.monotonic() - began > _STABLE_SECONDS else min(pause * 2, _LONGEST_PAUSE)
            time.sleep(pause)

    def _attend(self) -> bool:
        """Watch the running server. Return true when it was stopped, and false when it died."""
        # A lost connection does not prove that the server is dead. The end of the process does, so `_reap` decides. A
        # server that is alive gets a new connection. Starting a second one next to it is impossible, because it holds
        # `server.lock`.
        while True:
            link = self._await_ready()
            if link is None:
                return False
            try:
                finished = self._watch(link)
            finally:
                link.close()
            if finished:
                self._stop()
                return True
            # Either the server has ended, or a user has closed this connection with CLIENT KILL.
            if self._reap(_EXIT_SECONDS):
                return False

    def _take_server_lock(self) -> int:
        """Wait until no server runs in this directory, and return the locked descriptor for the next one."""
        held = os.open(SERVER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _TAKEOVER_SECONDS
        asked = 0.0
        while not _locked(held):
            now = time.monotonic()
            if now > deadline:
                raise StartFailed("the server of an earlier keeper still runs in this directory; end its process")
            if now - asked > 1.0:
                # Its keeper is gone. Without a death signal it must be asked to end. It writes its data first.
                asked = now
                with contextlib.suppress(OSError):
                    KeeperConnection(self._path).ask("SHUTDOWN NOSAVE")
            time.sleep(0.01)
        return held

    def _start(self, held: int) -> None:
        with contextlib.suppress(OSError):
            if os.stat(LOG).st_size > _LOG_LIMIT:
                os.replace(LOG, LOG + ".1")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        keeper = os.getpid()
        # The last preparations happen before the fork, so the child only makes a few system calls before `execv`.
        prctl = _prctl()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                if prctl is not None:
                    prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
                # The keeper may have died after the fork and before the request above. The kernel sends no death signal
                # for that.
                if os.getppid() != keeper:
                    os._exit(1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.set_inheritable(held, True)
                os.execv(self._server, self._command())  # noqa: S606
            finally:
                os._exit(127)
        # From here on only the server holds the lock, until it ends.
        os.close(held)

    def _command(self) -> list[str]:
        return [
            self._server, "--port", "0", "--unixsocket", self._path, "--unixsocketperm", "700", "--dir", ".",
            "--daemonize", "no", "--appendonly", "yes", "--appendfsync", "everysec",
            "--aof-load-truncated", "yes", "--save", "", "--maxmemory-policy", "noeviction",
            "--stream-node-max-entries", "10", "--io-threads", "1", "--logfile", LOG,
        ]  # fmt: skip

    def _await_ready(self) -> KeeperConnection | None:
        """Return a connection to the server when it replies; None if its socket was deleted and it was stopped."""
        # The socket may be deleted before the keeper has connected, because clients can be faster.
        latest = time.monotonic() + _SOCKET_SECONDS
        while True:
            if self._reap(0.0):
                raise StartFailed(f"the server ended while it started; the last lines of its log:\n{_log_tail()}")
            link = self._try_link()
            if link is not None:
                return link
            if os.path.lexists(self._path):
                latest = time.monotonic() + _SOCKET_SECONDS
            elif time.monotonic() > latest:
                self._stop()
                return None
            time.sleep(0.003)

    def _try_link(self) -> KeeperConnection | None:
        """Return a connection to the server, or None while it does not reply."""
        try:
            self._socket = os.lstat(self._path)
            link = KeeperConnection(self._path)
        except OSError:
            return None
        try:
            # A server that still reads its data replies with an error, which is a reply too.
            link.ask("PING")
        except OSError:
            link.close()
            return None
        return link

    def _watch(self, link: KeeperConnection) -> bool:
        """Return true when the server should be stopped, and false when it died."""
        tick = max(0.02, min(1.0, self._linger / 4))
        used = time.monotonic()
        while True:
            try:
                answer = link.ask("INFO clients")
            except TimeoutError:
                # No reply for five seconds: the server may be swapped out, or run a long command. It is not killed for
                # that. The caller opens a new connection, because a late reply on this one would be taken for the reply
                # to the next question.
                return not self._still_there()
            except OSError:
                return False
            now = time.monotonic()
            # One client is this connection. An error reply means that the server still reads its data, which counts as
            # use.
            if answer.startswith("-") or _clients(answer) > 1:
                used = now
            elif now - used >= self._linger:
                return True
            # A removed directory cannot be used any more, and its files only live on as open descriptors. `samestat`
            # also notices a new directory under the same name, which needs a new keeper.
            if not self._still_there():
                return True
            if not self._serves_socket():
                # No client can connect any more, and a server cannot create its socket again. Restart it.
                self._stop()
                return False
            link.wait(tick)

    def _still_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._directory), self._identity)
        except OSError:
            return False

    def _serves_socket(self) -> bool:
        """Return whether the path leads to the socket of this server; it may have been deleted or replaced."""
        try:
            return self._socket is not None and os.path.samestat(os.lstat(self._path), self._socket)
        except OSError:
            return False

    def _reap(self, timeout: float) -> bool:
        """Collect the server if it ends within some seconds."""
        deadline = time.monotonic() + timeout
        while self._pid:
            done, _ = os.waitpid(self._pid, os.WNOHANG)
            if done:
                self._pid = 0
            elif time.monotonic() >= deadline:
                return False
            else:
                time.sleep(0.005)
        return True

    def _stop(self) -> None:
        """Ask the server to end, and kill it if that takes too long."""
        if self._pid:
            os.kill(self._pid, signal.SIGTERM)
            if not self._reap(_STOP_SECONDS):
                os.kill(self._pid, signal.SIGKILL)
                self._reap(_STOP_SECONDS)
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def end(self) -> None:
        """End the server, in any state of the keeper."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._stop()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prctl() -> Callable[..., int] | None:
    """Return `prctl`, which requests the death signal, or None if this is not Linux. Called before the fork."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        call: Callable[..., int] = ctypes.CDLL(None).prctl
        return call  # noqa: TRY300
    except (ImportError, OSError, AttributeError):
        return None


def _clients(info: str) -> int:
    for line in info.splitlines():
        name, _, value = line.partition(":")
        if name == "connected_clients":
            return int(value)
    return 0


def _log_tail() -> str:
    try:
        with open(LOG, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-8:])
    except OSError as error:
        return f"(no log: {error})"


def main(arguments: list[str] | None = None) -> int:
    """Run the server of one directory."""
    parser = argparse.ArgumentParser(prog="keeper", description="Run the server of a file:// directory.")
    parser.add_argument("directory")
    parser.add_argument("--server", required=True, help="the server binary")
    parser.add_argument("--socket", required=True, help="the unix socket to serve")
    parser.add_argument("--linger", type=float, default=10.0, help="seconds to stay after the last client left")
    options = parser.parse_args(arguments)
    # First, so that every file that follows, including the socket, belongs to this user alone.
    os.umask(0o077)
    os.chdir(options.directory)
    lock = os.open(KEEPER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # FAILURE is deleted only under the lock. Another keeper that has just failed may have written it for its client.
    if not _locked(lock):
        return LOCKED
    # Ctrl-C and the end of a terminal are meant for the client. Other processes may use this server.
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(FAILURE)
    keeper = Keeper(options.directory, options.server, options.socket, options.linger)
    try:
        signal.signal(signal.SIGTERM, _on_term)
        keeper.run()
    except Stopped:
        pass
    except (StartFailed, OSError) as error:
        with open(FAILURE, "w") as failure:
            failure.write(str(error))
        return FAILED
    finally:
        keeper.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
