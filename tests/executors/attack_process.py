"""Runs attacks, each in a process forked from one warm interpreter: `python -m tests.executors.attack_process`.

Requests and replies are lines of JSON. The targets are created here: files, a victim process, servers.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from glidemq_async.executors import sandbox
from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox import applying, landlock, privileges
from glidemq_async.executors.sandbox.kernel import prctl
from tests.executors import usage
from tests.executors.attacks import ATTACKS, Target
from tests.executors.attacks.registry import SECRET, WON

_PATIENCE = 120
_NOBODY = 65534
_memory = ctypes.create_string_buffer(b"eight by", 8)


class Servers:
    """Servers that reply to each client, in a separate process."""

    def __init__(self, root: Path) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.granted = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(root / "unix"))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0glidemq-{os.getpid()}")
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(str(root / "datagrams"))
        self.streams = [self.tcp, self.granted, self.unix, self.abstract]
        for server in self.streams:
            server.listen()
        if os.fork() == 0:
            prctl(1, signal.SIGKILL)
            self._serve()

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        for each in (*self.streams, self.udp, self.datagrams):
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                _reply(key.fileobj)


def _reply(server: Any) -> None:
    if server.type == socket.SOCK_STREAM:
        connection, _ = server.accept()
        connection.sendall(b"hello")
        connection.close()
    else:
        _, sender = server.recvfrom(100)
        if server.family == socket.AF_INET:
            server.sendto(b"hello", sender)


def create_targets(root: Path, servers: Servers, victim: int) -> Target:
    """Create the files that one attack targets."""
    for name in ("outside", "readable", "work", "application"):
        (root / name).mkdir()
    root.chmod(0o755)
    (root / "work").chmod(0o777)
    (root / "outside" / "secret.txt").write_text(SECRET)
    (root / "outside" / "program").write_text(f"#!/bin/sh\nexit {WON}\n")
    (root / "outside" / "program").chmod(0o755)
    (root / "readable" / "file.txt").write_text("may be read")
    (root / "application" / "module.py").write_text("answer = 42\n")
    package = root / "application" / "package"
    for folder in (package / "deeper", package / ".git", root / "application" / "space" / "deploy"):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deeper" / "inner.py").write_text("answer = 43\n")
    (root / "application" / "space" / "deploy" / "run.py").write_text("")
    for secret in (".env", "id_rsa", "package/.env", "package/prod.env", "package/.git/config", "space/deploy/key.pem"):
        (root / "application" / secret).write_text(SECRET)
    return Target(
        secret=str(root / "outside" / "secret.txt"),
        readable=str(root / "readable" / "file.txt"),
        outside=str(root / "outside"),
        work=str(root / "work"),
        application=str(root / "application"),
        victim=victim,
        address=ctypes.addressof(_memory),
        tcp=servers.tcp.getsockname()[1],
        granted_tcp=servers.granted.getsockname()[1],
        udp=servers.udp.getsockname()[1],
        unix=servers.unix.getsockname(),
        datagrams=servers.datagrams.getsockname(),
        abstract=servers.abstract.getsockname()[1:].decode(),
        leaked=os.open(root / "outside" / "secret.txt", os.O_RDONLY),
        terminal=-1,
    )


def start_victim() -> int:
    """A process with a secret in its environment, which waits to be attacked."""
    pid = os.fork()
    if pid == 0:
        prctl(1, signal.SIGKILL)
        os.setsid()
        signal.alarm(_PATIENCE * 2)
        while True:
            signal.pause()
    while os.getpgid(pid) != pid:
        time.sleep(0)
    return pid


def contents(root: Path) -> list[object]:
    """Return the contents of the files that are not granted for writing."""
    found: list[object] = []
    for folder in ("outside", "readable", "application"):
        for path in sorted((root / folder).rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found.append((path.name, status.st_mode, status.st_uid, status.st_mtime, content))
    return found


def run(request: dict[str, Any], servers: Servers) -> dict[str, Any]:
    """Run one attack and report its result."""
    root = Path(tempfile.mkdtemp(prefix="glidemq-range-"))
    victim = start_victim()
    reading, writing = os.pipe()
    try:
        target = create_targets(root, servers, victim)
        before = contents(root)
        pid = os.fork()
        if pid == 0:
            _in_child(lambda: perform(request, target, writing), writing)
        os.close(target.leaked)
        os.close(writing)
        answer = _answer(pid, reading)
        answer["damage"] = contents(root) != before or os.waitpid(victim, os.WNOHANG) != (0, 0)
        return answer
    finally:
        os.close(reading)
        _end(victim)
        shutil.rmtree(root)


class Prepared:
    """Create the targets of one attack by another process, and check them afterwards."""

    def __init__(self, servers: Servers) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="glidemq-range-"))
        self._victim = start_victim()
        self.target = create_targets(self._root, servers, self._victim)
        self._before = contents(self._root)

    def damage(self) -> bool:
        """Return whether a protected object was changed; remove all targets."""
        changed = contents(self._root) != self._before or os.waitpid(self._victim, os.WNOHANG) != (0, 0)
        os.close(self.target.leaked)
        _end(self._victim)
        shutil.rmtree(self._root)
        return changed


def _answer(pid: int, reading: int) -> dict[str, Any]:
    with selectors.DefaultSelector() as selector:
        selector.register(os.pidfd_open(pid), selectors.EVENT_READ)
        ended = selector.select(_PATIENCE)
    assert ended, "the attack must stop by itself"
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.set_blocking(reading, False)
    try:
        said = os.read(reading, 65536)
    except BlockingIOError:
        said = b""
    lines = [json.loads(line) for line in said.splitlines()]
    answer: dict[str, Any] = {"won": status == WON, "error": "", "denied": None, "missing": [], "status": status}
    for line in lines:
        answer.update(line)
    return answer


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def _in_child(work: Callable[[], None], writing: int) -> None:
    try:
        prctl(1, signal.SIGKILL)
        work()
    except BaseException as error:  # noqa: BLE001 - this is the end of the process
        os.write(writing, json.dumps({"won": False, "error": f"unexpected {error!r}"}).encode() + b"\n")
    finally:
        os._exit(0)


def perform(request: dict[str, Any], target: Target, writing: int) -> None:
    """In the child: apply the permissions, attack, and report."""
    quiet = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(quiet, descriptor)
    sys.path.append(target.application)
    os.set_inheritable(target.leaked, True)
    if request.get("nobody"):
        _become_nobody()
    terminals = os.openpty()
    target = replace(target, terminal=terminals[1])
    permissions = _permissions(request, target)
    if not request.get("namespaces", True):
        privileges.enter_user_namespace = lambda: False
    answer: dict[str, Any] = {}
    if permissions is not None:
        if request.get("landlock") is not None:
            version = int(request["landlock"])
            landlock.version = lambda: version
        answer["missing"] = applying.apply(permissions, channels=[writing, *terminals])
        # An attack may never return from this.
        os.write(writing, json.dumps(answer).encode() + b"\n")
    name = request["attack"]
    function = ATTACKS[name].function if name in ATTACKS else getattr(usage, name)
    try:
        answer = {"won": bool(function(target))}
    except Exception as error:  # noqa: BLE001 - any error means that it was stopped
        refusal = None if permissions is None else sandbox.denied(error, permissions)
        answer = {
            "won": False,
            "error": f"{type(error).__name__}: {error}",
            "denied": str(refusal) if refusal else None,
        }
    os.write(writing, json.dumps(answer).encode() + b"\n")


def _permissions(request: dict[str, Any], target: Target) -> Permissions | None:
    if request["permissions"] is None:
        return None
    asked = dict(request["permissions"])
    if asked.get("network") == ["granted"]:
        asked["network"] = [target.granted_tcp]
    asked.setdefault("read", [target.readable])
    asked.setdefault("write", [target.work])
    return Permissions(**asked)


def _become_nobody() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        # Changing the user denies the process access to /proc/self. Starting a program would allow it again.
        prctl(4, 1)


def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="glidemq-range-"))
    servers = Servers(root)
    prepared: Prepared | None = None
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if request["attack"] == "prepare":
                prepared = Prepared(servers)
                answer: dict[str, Any] = vars(prepared.target)
            elif request["attack"] == "damage":
                assert prepared is not None
                answer = {"damage": prepared.damage()}
            else:
                answer = run(request, servers)
            print(json.dumps(answer), flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
